"""Checked entry points to the kernels. Nothing above this layer imports native code."""

from .alias import AliasTable, build_alias
from .apart import draw_layer
from .arena import add_hop
from .blocks import MAX_LINKED_BLOCKS, deal_nodes, grow_blocks, join_blocks, link_blocks
from .by_type import SplitEdges, SplitNodes, split_edges, split_nodes
from .checks import ARENA_ALIGNMENT, as_integer
from .dealing import DealtSeeds, deal_seeds, settle_nodes, vote_nodes
from .dispatch import (
    MAX_NODES,
    ArenaTooSmall,
    DrawKey,
    HopLayout,
    SampleLayout,
    Workspace,
    check_csc,
    gather_rows,
    instruction_sets,
    random_keys,
    use_instruction_set,
)
from .dynamic_cache import EVICTIONS, SLOT_BYTES, DynamicCache
from .edge_lists import SplitEdgeList, list_edges, split_edge_list
from .edge_types import MAX_EDGE_TYPES, EdgeTypeIndex, index_edge_types
from .files import MOST_IN_FLIGHT, RowFile, RowReader, gather_mapped, read_rows, unwatch_map, watch_map
from .hgt import sample_hgt
from .induced import InducedEdges, induced_edges
from .inputs import SamplerInput
from .labor import sample_labor
from .layers import LAYER_METHODS, importance_tree, sample_layers
from .negatives import CORRUPT, Corrupt, draw_negatives, find_edges, mark_edges, num_corrupt_dst
from .neighbors import fanout_table, sample_neighbors, sample_typed_neighbors
from .orders import breadth_first, round_robin
from .parts import MAX_CLOSED_PARTS, spread_parts
from .quantized import gather_quantized
from .queries import Queries, TypedLists
from .runs import EdgeList, NodesOfType, Runs, build_runs, check_runs, coo_to_csc
from .shadow import sample_shadow
from .steps import ENDS, GOES_ON, RESTARTS, STUCK, rank_visits, step_walks
from .tiers import MAX_SHARDS, SLOT_BITS, gather_tiered
from .walks import WalkRuns, Walks, check_visits, random_walk, sample_walks
from .weighted import sample_weighted

__all__ = [
    "ARENA_ALIGNMENT",
    "CORRUPT",
    "ENDS",
    "EVICTIONS",
    "GOES_ON",
    "LAYER_METHODS",
    "MAX_CLOSED_PARTS",
    "MAX_EDGE_TYPES",
    "MAX_LINKED_BLOCKS",
    "MAX_NODES",
    "MAX_SHARDS",
    "MOST_IN_FLIGHT",
    "RESTARTS",
    "SLOT_BITS",
    "SLOT_BYTES",
    "STUCK",
    "AliasTable",
    "ArenaTooSmall",
    "Corrupt",
    "DealtSeeds",
    "DrawKey",
    "DynamicCache",
    "EdgeList",
    "EdgeTypeIndex",
    "HopLayout",
    "InducedEdges",
    "NodesOfType",
    "Queries",
    "RowFile",
    "RowReader",
    "Runs",
    "SampleLayout",
    "SamplerInput",
    "SplitEdgeList",
    "SplitEdges",
    "SplitNodes",
    "TypedLists",
    "WalkRuns",
    "Walks",
    "Workspace",
    "add_hop",
    "as_integer",
    "breadth_first",
    "build_alias",
    "build_runs",
    "check_csc",
    "check_runs",
    "check_visits",
    "coo_to_csc",
    "deal_nodes",
    "deal_seeds",
    "draw_layer",
    "draw_negatives",
    "fanout_table",
    "find_edges",
    "gather_mapped",
    "gather_quantized",
    "gather_rows",
    "gather_tiered",
    "grow_blocks",
    "importance_tree",
    "index_edge_types",
    "induced_edges",
    "instruction_sets",
    "join_blocks",
    "link_blocks",
    "list_edges",
    "mark_edges",
    "num_corrupt_dst",
    "random_keys",
    "random_walk",
    "rank_visits",
    "read_rows",
    "round_robin",
    "sample_hgt",
    "sample_labor",
    "sample_layers",
    "sample_neighbors",
    "sample_shadow",
    "sample_typed_neighbors",
    "sample_walks",
    "sample_weighted",
    "settle_nodes",
    "split_edge_list",
    "split_edges",
    "split_nodes",
    "spread_parts",
    "step_walks",
    "unwatch_map",
    "use_instruction_set",
    "vote_nodes",
    "watch_map",
]
