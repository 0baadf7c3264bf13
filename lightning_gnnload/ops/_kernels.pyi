"""What kernels/bind/ defines. The contract of each function is in its header, kernels/*/*.h."""

import numpy as np

MAX_FANOUT: int
MAX_HOPS: int

Hops = list[tuple[int, int, int, int, int, int, int, int]]
Layout = tuple[int, Hops, int, int]

def best_isa() -> int: ...
def used_isa() -> int: ...
def set_isa(isa: int) -> None: ...

class Workspace:
    def __init__(self, num_nodes: int, use_hash: bool) -> None: ...

def sample_neighbors(
    workspace: Workspace,
    indptr: np.ndarray,
    indices: np.ndarray,
    seeds: np.ndarray,
    fanouts: list[int],
    seed: int,
    epoch: int,
    step: int,
    arena: np.ndarray,
    replace: bool,
    expand_new: bool,
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
    arena: np.ndarray,
    importance: int,
    layer_dependency: bool,
    fixed_count: bool,
    estimate_sum: bool,
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
    arena: np.ndarray,
    num_layers: int,
    edge_ids: bool,
    max_local: int = ...,
) -> Layout: ...
def gather_rows(table: np.ndarray, num_rows: int, ids: np.ndarray, out: np.ndarray) -> None: ...
def check_csc(indptr: np.ndarray, indices: np.ndarray) -> None: ...
def coo_to_csc(
    src: np.ndarray, dst: np.ndarray, indptr: np.ndarray, indices: np.ndarray, order: np.ndarray | None
) -> None: ...
def random_keys(seed: int, epoch: int, ids: np.ndarray, keys: np.ndarray) -> None: ...
