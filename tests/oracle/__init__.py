"""Slow oracle of every op: plain Python and NumPy, written to be read. The kernels must equal it exactly.

Shapes: N graph nodes, E edges, S seeds, B requested ids, F feature width.
"""

from .aggregate import add_to_sources, max_neighbors, sum_destinations, sum_neighbors
from .apart import draw_layer, rank_visits, step_walks
from .blocks import deal_nodes, grow_blocks, join_blocks, link_blocks
from .dealing import deal_seeds, settle_nodes, vote_nodes
from .draws import NodeDraws
from .dropout import dropout_mask, dropped
from .eviction import CACHE_MODELS, CacheModel
from .files import planned_reads, read_rows
from .hgt import budgets_of, exponential, sample_hgt
from .labor import sample_labor, source_draw
from .layers import LayerHop, importance_tree, sample_layers
from .negatives import Edge, draw_negatives, is_known
from .neighbors import Hop, add_hop, expand_hops, sample_neighbors, sample_positions
from .orders import breadth_first
from .parts import spread_parts
from .shadow import induced_edges, sample_shadow
from .tables import coo_to_csc, dequantized, gather_rows, gather_tiered, is_csc, random_keys
from .typed import TypedEdge, TypedHop, TypedSampling
from .walks import Lists, random_walk, sample_walks
from .weighted import alias_shares, build_alias, sample_weighted

__all__ = [
    "CACHE_MODELS",
    "CacheModel",
    "Edge",
    "Hop",
    "LayerHop",
    "Lists",
    "NodeDraws",
    "TypedEdge",
    "TypedHop",
    "TypedSampling",
    "add_hop",
    "add_to_sources",
    "alias_shares",
    "breadth_first",
    "budgets_of",
    "build_alias",
    "coo_to_csc",
    "deal_nodes",
    "deal_seeds",
    "dequantized",
    "draw_layer",
    "draw_negatives",
    "dropout_mask",
    "dropped",
    "expand_hops",
    "exponential",
    "gather_rows",
    "gather_tiered",
    "grow_blocks",
    "importance_tree",
    "induced_edges",
    "is_csc",
    "is_known",
    "join_blocks",
    "link_blocks",
    "max_neighbors",
    "planned_reads",
    "random_keys",
    "random_walk",
    "rank_visits",
    "read_rows",
    "sample_hgt",
    "sample_labor",
    "sample_layers",
    "sample_neighbors",
    "sample_positions",
    "sample_shadow",
    "sample_walks",
    "sample_weighted",
    "settle_nodes",
    "source_draw",
    "spread_parts",
    "step_walks",
    "sum_destinations",
    "sum_neighbors",
    "vote_nodes",
]
