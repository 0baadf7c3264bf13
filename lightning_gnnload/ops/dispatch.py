"""The only importer of native code: typed, checked entry points to the CPU kernels.

Arrays are C-contiguous NumPy arrays (memory maps included); no function here copies an input. Every kernel is
a single-threaded pure function that releases the GIL: parallelism is one thread, one batch. What each must
equal, element by element, is in :mod:`lightning_gnnload.ops.reference`.

Shapes: N graph nodes, E edges, S seeds, L hops, B requested ids, F feature width.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike

from ..errors import GnnLoadError, GraphFormatError, KernelsMissingError, SamplerConfigError, SeedError

try:
    from . import _kernels
except ImportError as error:
    raise KernelsMissingError(
        "The compiled CPU kernels (lightning_gnnload.ops._kernels) cannot be imported: "
        f"{error}. Install the package with a C++17 compiler present: pip install lightning-gnnload"
    ) from error

ALL_NEIGHBORS = -1
MAX_FANOUT: int = _kernels.MAX_FANOUT
MAX_HOPS: int = _kernels.MAX_HOPS
MAX_NODES = 1 << 48
ARENA_ALIGNMENT = 64

# Up to 1 GiB of stamps a thread; beyond it a table as large as the batch costs no more time.
MAX_STAMP_NODES = 1 << 28

_INDEX_DTYPES = (np.int32, np.int64)


@dataclass(frozen=True)
class DrawKey:
    """What a draw depends on besides the node: unsigned numbers of 64, 32 and 32 bits.

    Raises:
        SamplerConfigError: one of them does not fit.
    """

    seed: int
    epoch: int
    step: int

    def __post_init__(self) -> None:
        for name, bits in (("seed", 64), ("epoch", 32), ("step", 32)):
            value = _integer(f"DrawKey: {name}", getattr(self, name))
            object.__setattr__(self, name, value)
            if not 0 <= value < 1 << bits:
                raise SamplerConfigError(f"DrawKey: {name} is {value}, but must lie in [0, 2**{bits}).")


@dataclass(frozen=True)
class HopLayout:
    """Where one hop lies in an arena: byte offsets of ``indptr`` int32 ``[num_dst + 1]``, ``indices`` int32
    ``[num_edges]`` (local ids) and, when asked for, ``edge_ids`` int64 ``[num_edges]`` (-1 when not).

    ``num_dst`` and ``num_src`` count the nodes known before and after the hop.
    """

    num_dst: int
    num_src: int
    num_edges: int
    indptr_offset: int
    indices_offset: int
    edge_ids_offset: int


@dataclass(frozen=True)
class SampleLayout:
    """What :func:`sample_neighbors` wrote: ``nodes`` int64 ``[num_nodes]`` at 0, hops at the arena's end.

    Bytes ``[free_begin, free_end)`` between them are unused (both multiples of 64).
    """

    num_nodes: int
    hops: tuple[HopLayout, ...]
    free_begin: int
    free_end: int


class ArenaTooSmall(Exception):  # noqa: N818  a signal between kernel and slot pool, not an error
    """The arena is too small. It now holds nothing of use; sampling again into a larger one gives the batch.

    ``needed_bytes`` is what the part that failed needs, more than the arena has; later parts may need more.
    """

    def __init__(self, needed_bytes: int) -> None:
        super().__init__(needed_bytes)
        self.needed_bytes = needed_bytes


class Workspace:
    """Scratch memory of one thread: the deduplication table for graphs of up to ``num_nodes`` nodes.

    One call at a time may use it; a second one, from another thread, is refused. It is clean after each call,
    failed ones included.

    Args:
        num_nodes: N of the largest graph it is used with.
        table: ``"stamp"``: 4 bytes for each node of the graph; ``"hash"``: 32 to 64 bytes for each node of
            the largest batch so far; ``"auto"``: stamps up to 2**28 nodes.
    """

    def __init__(self, num_nodes: int, table: Literal["auto", "stamp", "hash"] = "auto") -> None:
        num_nodes = _integer("Workspace: num_nodes", num_nodes)
        if not 0 <= num_nodes < MAX_NODES:
            raise SamplerConfigError(f"Workspace: num_nodes is {num_nodes}, but must lie in [0, 2**48).")
        if table not in ("auto", "stamp", "hash"):
            raise SamplerConfigError(f'Workspace: table is {table!r}, but must be "auto", "stamp" or "hash".')
        if table == "auto":
            table = "stamp" if num_nodes <= MAX_STAMP_NODES else "hash"
        self.num_nodes, self.table = num_nodes, table
        self._native = _kernels.Workspace(num_nodes, table == "hash")


def sample_neighbors(
    workspace: Workspace,
    indptr: np.ndarray,
    indices: np.ndarray,
    seeds: np.ndarray,
    fanouts: Sequence[int],
    key: DrawKey,
    arena: np.ndarray,
    *,
    replace: bool = False,
    expand: Literal["all", "new"] = "all",
    edge_ids: bool = False,
) -> SampleLayout:
    """Sample the neighbourhood of ``seeds`` into ``arena``: a pure function of everything but the workspace.

    ``nodes`` are in order of first occurrence, seeds first; destination ``j`` of every hop is ``nodes[j]``.
    Picks are in the order of draws, or in adjacency order where all neighbours are taken. With
    ``expand="new"`` the hops share one ``indptr`` and one ``indices``, each hop a prefix of the next.

    Args:
        workspace: scratch memory, of this thread alone.
        indptr: int64 ``[N + 1]``, and ``indices`` int32 or int64 ``[E]``: a graph that passed
            :func:`check_csc`.
        seeds: int64 ``[S]``, distinct.
        fanouts: neighbours a node at each hop, nearest hop first; -1 takes all.
        key: decides every draw.
        arena: uint8, writable, starting at a multiple of 64 bytes.
        replace: draw each neighbour independently.
        expand: ``"all"``: every node known so far is a destination of the next hop (DGL); ``"new"``: only
            those that the last hop found (PyG).
        edge_ids: also write each edge's position in ``indices``.

    Raises:
        SeedError: a seed out of range or repeated.
        SamplerConfigError: a fanout of 0 or below -1, or a batch beyond int32 local ids.
        ArenaTooSmall: sample again with at least ``needed_bytes``.

    Source: GraphSAGE (NIPS'17), section 3.1; TurboGNN, section III-B for the kernel that this one does without.
    """
    _check_graph(indptr, indices)
    _check_array("seeds", seeds, (np.int64,), 1, SeedError)
    _check_array("arena", arena, (np.uint8,), 1, SamplerConfigError, writable=True)
    if arena.size and arena.ctypes.data % ARENA_ALIGNMENT:
        raise SamplerConfigError(
            f"arena starts at address {arena.ctypes.data:#x}, but must start at a multiple of {ARENA_ALIGNMENT} bytes."
        )
    fanouts = _check_fanouts(fanouts)
    if expand not in ("all", "new"):
        raise SamplerConfigError(f'expand is {expand!r}, but must be "all" or "new".')
    num_nodes, hops, free_begin, free_end = _kernels.sample_neighbors(
        workspace._native,
        indptr,
        indices,
        seeds,
        fanouts,
        key.seed,
        key.epoch,
        key.step,
        arena,
        bool(replace),
        expand == "new",
        bool(edge_ids),
    )
    return SampleLayout(num_nodes, tuple(HopLayout(*hop) for hop in hops), free_begin, free_end)


def gather_rows(table: np.ndarray, ids: np.ndarray, out: np.ndarray) -> None:
    """``out[i] = table[ids[i]]``, into memory that the caller reuses.

    Args:
        table: ``[N, F]`` or ``[N]``, any dtype.
        ids: int64 ``[B]``.
        out: ``[B, F]`` or ``[B]``, dtype of ``table``, writable, not overlapping it.

    Raises:
        SeedError: an id outside ``[0, N)``; ``out`` is then unchanged.
        GnnLoadError: shapes or dtypes that do not fit each other.
    """
    _check_array("table", table, None, None, GnnLoadError)
    _check_array("ids", ids, (np.int64,), 1, SeedError)
    _check_array("out", out, (table.dtype,), table.ndim, GnnLoadError, writable=True)
    if table.ndim not in (1, 2) or table.dtype.hasobject:
        raise GnnLoadError(
            f"table has dtype {table.dtype} and shape {table.shape}, but must hold plain numbers, as [N] or [N, F]."
        )
    if out.shape != (ids.shape[0], *table.shape[1:]):
        raise GnnLoadError(
            f"out has shape {out.shape}, but {ids.shape[0]} ids of a table of shape {table.shape} "
            f"need {(ids.shape[0], *table.shape[1:])}."
        )
    _kernels.gather_rows(_as_bytes(table), table.shape[0], ids, _as_bytes(out))


def coo_to_csc(
    src: np.ndarray, dst: np.ndarray, num_nodes: int, *, keep_order: bool = False
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Group edges by destination; an edge src -> dst makes src an in-neighbour of dst.

    Args:
        src: int32 or int64 ``[E]``, and ``dst`` likewise.
        num_nodes: N.
        keep_order: also return each edge's position in the input.

    Returns:
        ``indptr`` int64 ``[N + 1]``, ``indices`` ``[E]`` in the dtype of ``src``, and ``order`` int64 ``[E]``
        or None. The sort is stable: edges into one node keep their order.

    Raises:
        GraphFormatError: an id outside ``[0, N)``, or arrays that do not fit each other.

    Example:
        >>> indptr, indices, _ = coo_to_csc(np.array([2, 0, 1]), np.array([1, 1, 0]), 3)
        >>> indptr.tolist(), indices.tolist()
        ([0, 1, 3, 3], [1, 2, 0])
    """
    _check_array("src", src, _INDEX_DTYPES, 1, GraphFormatError)
    _check_array("dst", dst, _INDEX_DTYPES, 1, GraphFormatError)
    if len(src) != len(dst):
        raise GraphFormatError(f"src has {len(src)} edges, but dst has {len(dst)}: each edge needs one entry in both.")
    if not 0 <= num_nodes < MAX_NODES:
        raise GraphFormatError(f"num_nodes is {num_nodes}, but must lie in [0, 2**48).")
    indptr = np.empty(num_nodes + 1, np.int64)
    indices = np.empty_like(src)
    order = np.empty(len(src), np.int64) if keep_order else None
    _kernels.coo_to_csc(src, dst, indptr, indices, order)
    return indptr, indices, order


def check_csc(indptr: np.ndarray, indices: np.ndarray) -> None:
    """Check that two arrays are a graph: every other kernel trusts what passed here.

    Args:
        indptr: int64 ``[N + 1]``.
        indices: int32 or int64 ``[E]``.

    Raises:
        GraphFormatError: ``indptr`` does not start at 0, falls, or does not end at E; an index outside
            ``[0, N)``; an in-degree of 2**32 or more. Names the first bad position and its value.
    """
    _check_graph(indptr, indices, ends=False)
    _kernels.check_csc(indptr, indices)


def random_keys(seed: int, epoch: int, ids: np.ndarray) -> np.ndarray:
    """Ordering keys uint64 ``[B]`` of ``ids`` int64 ``[B]``: ``ids[np.argsort(keys)]`` is a shuffle.

    An id's key does not depend on the other ids.
    """
    key = DrawKey(seed, epoch, step=0)
    _check_array("ids", ids, (np.int64,), 1, SeedError)
    keys = np.empty(ids.shape[0], np.uint64)
    _kernels.random_keys(key.seed, key.epoch, ids, keys)
    return keys


def _check_graph(indptr: np.ndarray, indices: np.ndarray, ends: bool = True) -> None:
    _check_array("indptr", indptr, (np.int64,), 1, GraphFormatError)
    _check_array("indices", indices, _INDEX_DTYPES, 1, GraphFormatError)
    if indptr.shape[0] == 0:
        raise GraphFormatError("indptr is empty, but must have N + 1 entries: [0] for a graph without nodes.")
    if ends and indptr[-1] != indices.shape[0]:
        raise GraphFormatError(
            f"indptr[-1] is {indptr[-1]} but indices has {indices.shape[0]} edges. indptr must have N + 1 "
            "entries and end at E. If the graph is stored as COO, build it with Graph.from_coo(src, dst)."
        )


def _integer(name: str, value: Any) -> int:
    """NumPy's integers too, which native code does not take; no floats, which it would have to round."""
    try:
        return operator.index(value)
    except TypeError:
        raise SamplerConfigError(f"{name} is {value!r}, but must be an integer.") from None


def _check_fanouts(fanouts: Sequence[int]) -> list[int]:
    fanouts = [_integer(f"fanouts[{hop}]", fanout) for hop, fanout in enumerate(fanouts)]
    if len(fanouts) > MAX_HOPS:
        raise SamplerConfigError(f"fanouts has {len(fanouts)} hops, but at most {MAX_HOPS} are possible.")
    for hop, fanout in enumerate(fanouts):
        if fanout != ALL_NEIGHBORS and not 1 <= fanout <= MAX_FANOUT:
            raise SamplerConfigError(
                f"fanouts[{hop}] is {fanout}, but must lie in [1, {MAX_FANOUT}], or be -1 for all."
            )
    return fanouts


def _check_array(
    name: str,
    array: Any,
    dtypes: Sequence[DTypeLike] | None,
    ndim: int | None,
    error: type[GnnLoadError],
    writable: bool = False,
) -> None:
    """Kernels read memory as it lies: what they get must be exactly what they expect."""
    if not isinstance(array, np.ndarray):
        raise error(f"{name} is a {type(array).__name__}, but must be a NumPy array; torch tensors have .numpy().")
    if dtypes is not None and array.dtype not in dtypes:
        names = " or ".join(str(np.dtype(dtype)) for dtype in dtypes)
        raise error(f"{name} has dtype {array.dtype}, but must be {names}: convert it with {name}.astype(...).")
    if ndim is not None and array.ndim != ndim:
        raise error(f"{name} has shape {array.shape}, but must have {ndim} dimension{'s' if ndim > 1 else ''}.")
    if not array.flags.c_contiguous:
        raise error(f"{name} is not contiguous: pass numpy.ascontiguousarray({name}).")
    if writable and not array.flags.writeable:
        raise error(f"{name} is read-only, but is written to.")


def _as_bytes(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view(np.uint8)
