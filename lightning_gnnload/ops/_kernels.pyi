"""What kernels/bind/ defines. The contract of each function is in its header, kernels/*/*.h."""

import numpy as np

MAX_BUDGET: int
MAX_FANOUT: int
MAX_HOPS: int
MAX_SHARDS: int
MAX_EDGE_TYPES: int
MOST_IN_FLIGHT: int
MAX_TYPED_HOPS: int
MAX_WEIGHTED_FANOUT: int
NO_NEIGHBOR: int
SLOT_BITS: int
STREAM_BYTES: int
MAX_VISITS: int
MAX_WALK_BLOCKS: int

Hops = list[tuple[int, int, int, int, int, int, int, int]]
Layout = tuple[int, Hops, int, int]

def best_isa() -> int: ...
def used_isa() -> int: ...
def set_isa(isa: int) -> None: ...

class Workspace:
    def __init__(self, num_nodes: int, use_hash: bool) -> None: ...

def evictions() -> list[tuple[str, int]]: ...

class DynamicCache:
    def __init__(self, num_nodes: int, num_slots: int, row_bytes: int, eviction: int) -> None: ...
    def read(
        self,
        ids: np.ndarray,
        positions: np.ndarray | None,
        out: np.ndarray,
        num_out: int,
        missed_ids: np.ndarray,
        missed_positions: np.ndarray,
    ) -> int: ...
    def admit(self, ids: np.ndarray, positions: np.ndarray | None, out: np.ndarray, num_out: int) -> None: ...
    def visit(self, ids: np.ndarray) -> int: ...
    def contains(self, ids: np.ndarray, has: np.ndarray) -> None: ...
    @property
    def num_bytes(self) -> int: ...

def add_hop(
    workspace: Workspace,
    num_graph_nodes: int,
    known: np.ndarray,
    counts: np.ndarray,
    neighbors: np.ndarray,
    edge_ids: np.ndarray | None,
    edge_weights: np.ndarray | None,
    edge_types: np.ndarray | None,
    arena: np.ndarray,
    max_local: int = ...,
) -> Layout: ...
def sample_neighbors(
    workspace: Workspace,
    indptr: np.ndarray,
    indices: np.ndarray,
    seeds: np.ndarray,
    fanouts: list[int],
    seed: int,
    epoch: int,
    step: int,
    hop: int,
    names: np.ndarray | None,
    arena: np.ndarray,
    replace: bool,
    expand_new: bool,
    edge_ids: bool,
    max_local: int = ...,
) -> Layout: ...
def random_walk(
    indptr: np.ndarray,
    indices: np.ndarray,
    table: np.ndarray | None,
    starts: np.ndarray,
    length: int,
    num_walks: int,
    end_below: int,
    restart_below: int,
    seed: int,
    epoch: int,
    step: int,
    hop: int,
    names: np.ndarray | None,
    traces: np.ndarray,
) -> None: ...
def sample_walks(
    workspace: Workspace,
    indptr: np.ndarray,
    indices: np.ndarray,
    table: np.ndarray | None,
    seeds: np.ndarray,
    num_hops: int,
    num_neighbors: int,
    num_walks: int,
    length: int,
    end_below: int,
    restart_below: int,
    seed: int,
    epoch: int,
    step: int,
    hop: int,
    names: np.ndarray | None,
    arena: np.ndarray,
    include_self: bool,
    normalize: bool,
    expand_new: bool,
    max_local: int = ...,
) -> Layout: ...
def sample_layers(
    workspace: Workspace,
    indptr: np.ndarray,
    indices: np.ndarray,
    seeds: np.ndarray,
    budgets: list[int],
    method: int,
    importance_tree: np.ndarray | None,
    seed: int,
    epoch: int,
    step: int,
    hop: int,
    names: np.ndarray | None,
    arena: np.ndarray,
    replace: bool,
    normalize: bool,
    keep_known: bool,
    expand_new: bool,
    edge_ids: bool,
    num_drawn: int,
    weights: np.ndarray | None,
    max_local: int = ...,
) -> Layout: ...
def importance_tree(
    indptr: np.ndarray, indices: np.ndarray, weights: np.ndarray | None, entries: np.ndarray
) -> None: ...

class RowReader:
    def __init__(self, row_bytes: int, unit: int, in_flight: int, use_ring: bool) -> None: ...
    @property
    def has_ring(self) -> bool: ...
    def read(
        self,
        fd: int,
        name: str,
        offset: int,
        num_rows: int,
        row_bytes: int,
        unit: int,
        ids: np.ndarray,
        positions: np.ndarray | None,
        out: np.ndarray,
        num_out: int,
    ) -> tuple[int, int]: ...

def watch_map(bytes: np.ndarray, name: str) -> int: ...
def unwatch_map(number: int) -> None: ...
def gather_mapped(
    table: np.ndarray,
    num_rows: int,
    ids: np.ndarray,
    positions: np.ndarray | None,
    out: np.ndarray,
    num_out: int,
) -> bool: ...
def gather_rows(
    table: np.ndarray,
    num_rows: int,
    ids: np.ndarray,
    out: np.ndarray,
    positions: np.ndarray | None = ...,
    num_out: int = ...,
) -> None: ...
def gather_quantized(
    codes: np.ndarray,
    num_rows: int,
    scale: np.ndarray,
    offset: np.ndarray,
    ids: np.ndarray,
    positions: np.ndarray | None,
    out: np.ndarray,
    num_out: int,
    format: int,
) -> None: ...
def gather_tiered(
    location: np.ndarray,
    shards: list[np.ndarray],
    shard_rows: list[int],
    backing: np.ndarray | None,
    row_bytes: int,
    ids: np.ndarray,
    positions: np.ndarray | None,
    out: np.ndarray,
    num_out: int,
    missed_ids: np.ndarray | None,
    missed_positions: np.ndarray | None,
) -> tuple[tuple[int, ...], int]: ...
def check_csc(indptr: np.ndarray, indices: np.ndarray) -> None: ...
def coo_to_csc(
    src: np.ndarray, dst: np.ndarray, indptr: np.ndarray, indices: np.ndarray, order: np.ndarray | None
) -> None: ...
def breadth_first(
    indptr: np.ndarray,
    indices: np.ndarray,
    reversed_indptr: np.ndarray | None,
    reversed_indices: np.ndarray | None,
    position: np.ndarray,
    roots: np.ndarray,
    order: np.ndarray,
    tree: np.ndarray,
) -> int: ...
def round_robin(sequences: list[np.ndarray], starts: np.ndarray, order: np.ndarray) -> None: ...
def spread_parts(
    indptr: np.ndarray, indices: np.ndarray, fresh: np.ndarray, held: np.ndarray, next: np.ndarray
) -> int: ...
def deal_seeds(
    indptr: np.ndarray,
    indices: np.ndarray,
    seeds: np.ndarray,
    quotas: np.ndarray,
    part: np.ndarray,
    num_seeds: np.ndarray,
    num_nodes: np.ndarray,
    held: np.ndarray,
    seen: np.ndarray,
    held_nodes: bool,
    hops: int,
    overlap_weight: int,
    smoothing: int,
    max_edges: int,
) -> int: ...
def deal_nodes(
    indptr: np.ndarray,
    indices: np.ndarray,
    is_seed: np.ndarray,
    num_parts: int,
    node_capacity: int,
    seed_capacity: int,
    part_of: np.ndarray,
) -> int: ...
def grow_blocks(
    indptr: np.ndarray,
    indices: np.ndarray,
    sources: np.ndarray,
    most: int,
    block_of: np.ndarray,
    sizes: np.ndarray,
) -> int: ...
def join_blocks(
    indptr: np.ndarray,
    indices: np.ndarray,
    block_of: np.ndarray,
    sizes: np.ndarray,
    is_large: np.ndarray,
    most: int,
    joins: np.ndarray,
) -> None: ...
def link_blocks(
    indptr: np.ndarray, indices: np.ndarray, block_of: np.ndarray, num_blocks: int, counts: np.ndarray
) -> None: ...
def settle_nodes(held: np.ndarray | None, part: np.ndarray, num_own: np.ndarray) -> None: ...
def vote_nodes(
    indptr: np.ndarray,
    indices: np.ndarray,
    open: np.ndarray,
    held: np.ndarray | None,
    part: np.ndarray,
    num_own: np.ndarray,
    capacity: int,
    begin: int,
    end: int,
) -> None: ...
def random_keys(seed: int, epoch: int, ids: np.ndarray, keys: np.ndarray) -> None: ...
def count_edge_type_runs(indptr: np.ndarray, types: np.ndarray, run_ptr: np.ndarray) -> bool: ...
def index_edge_types(
    indptr: np.ndarray,
    types: np.ndarray,
    run_ptr: np.ndarray,
    run_type: np.ndarray,
    run_end: np.ndarray,
    order: np.ndarray | None,
) -> None: ...
def sample_typed(
    workspace: Workspace,
    indptr: np.ndarray,
    indices: np.ndarray,
    run_ptr: np.ndarray,
    run_type: np.ndarray,
    run_end: np.ndarray,
    order: np.ndarray | None,
    seeds: np.ndarray,
    fanouts: list[int],
    num_types: int,
    seed: int,
    epoch: int,
    step: int,
    hop: int,
    names: np.ndarray | None,
    arena: np.ndarray,
    replace: bool,
    expand_new: bool,
    edge_ids: bool,
) -> Layout: ...
def build_alias(indptr: np.ndarray, weights: np.ndarray, table: np.ndarray) -> None: ...
def sample_weighted(
    workspace: Workspace,
    indptr: np.ndarray,
    indices: np.ndarray,
    table: np.ndarray,
    seeds: np.ndarray,
    fanouts: list[int],
    seed: int,
    epoch: int,
    step: int,
    hop: int,
    names: np.ndarray | None,
    arena: np.ndarray,
    replace: bool,
    expand_new: bool,
    edge_ids: bool,
    max_local: int = ...,
) -> Layout: ...
def sample_shadow(
    workspace: Workspace,
    indptr: np.ndarray,
    indices: np.ndarray,
    seeds: np.ndarray,
    fanouts: list[int],
    seed: int,
    epoch: int,
    step: int,
    hop: int,
    names: np.ndarray | None,
    arena: np.ndarray,
    num_layers: int,
    edge_ids: bool,
    max_local: int = ...,
) -> Layout: ...
def sample_labor(
    workspace: Workspace,
    indptr: np.ndarray,
    indices: np.ndarray,
    seeds: np.ndarray,
    fanouts: list[int],
    seed: int,
    epoch: int,
    step: int,
    hop: int,
    names: np.ndarray | None,
    arena: np.ndarray,
    importance: int,
    layer_dependency: bool,
    fixed_count: bool,
    estimate_sum: bool,
    expand_new: bool,
    edge_ids: bool,
    max_local: int = ...,
) -> Layout: ...
def rank_visits(
    starts: np.ndarray,
    visits: np.ndarray,
    num_neighbors: int,
    include_self: bool,
    normalize: bool,
    counts: np.ndarray,
    neighbors: np.ndarray,
    weights: np.ndarray,
) -> int: ...
def draw_layer(
    degrees: np.ndarray,
    budget: int,
    replace: bool,
    normalize: bool,
    seed: int,
    epoch: int,
    step: int,
    hop: int,
    name: int,
    counts: np.ndarray,
    places: np.ndarray,
    weights: np.ndarray,
) -> int: ...
def step_walks(
    indptr: np.ndarray,
    indices: np.ndarray,
    table: np.ndarray | None,
    places: np.ndarray,
    starts: np.ndarray,
    numbers: np.ndarray,
    length: int,
    num_walks: int,
    end_below: int,
    restart_below: int,
    t: int,
    seed: int,
    epoch: int,
    step: int,
    hop: int,
    nodes: np.ndarray,
    fates: np.ndarray,
) -> None: ...
