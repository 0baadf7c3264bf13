"""Slow oracle of every op: plain Python and NumPy, written to be read. The kernels must equal it exactly.

Shapes: N graph nodes, E edges, S seeds, B requested ids, F feature width.
"""

from .draws import NodeDraws, philox, stream_keys
from .eviction import CACHE_MODELS, CacheModel
from .files import planned_reads, read_rows
from .labor import sample_labor, source_draw
from .layers import LayerHop, importance_tree, sample_layers
from .neighbors import Hop, expand_hops, sample_neighbors, sample_positions, sample_typed_neighbors
from .orders import breadth_first, round_robin
from .shadow import sample_shadow
from .tables import coo_to_csc, dequantized, gather_rows, gather_tiered, is_csc, random_keys
from .walks import random_walk, sample_walks
from .weighted import alias_shares, build_alias, sample_weighted

__all__ = [
    "CACHE_MODELS",
    "CacheModel",
    "Hop",
    "LayerHop",
    "NodeDraws",
    "alias_shares",
    "breadth_first",
    "build_alias",
    "coo_to_csc",
    "dequantized",
    "expand_hops",
    "gather_rows",
    "gather_tiered",
    "importance_tree",
    "is_csc",
    "philox",
    "planned_reads",
    "random_keys",
    "random_walk",
    "read_rows",
    "round_robin",
    "sample_labor",
    "sample_layers",
    "sample_neighbors",
    "sample_positions",
    "sample_shadow",
    "sample_typed_neighbors",
    "sample_walks",
    "sample_weighted",
    "source_draw",
    "stream_keys",
]
