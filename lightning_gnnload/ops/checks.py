"""Checks of what callers hand to the kernels, which read memory as it lies.

Shapes: N graph nodes, E edges, S seeds, L hops.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ..errors import GnnLoadError, GraphFormatError, SamplerConfigError

ARENA_ALIGNMENT = 64  # a cache line, and the widest vector load
INDEX_DTYPES = (np.int32, np.int64)


def check_graph(indptr: np.ndarray, indices: np.ndarray, ends: bool = True) -> None:
    """Checks that two arrays have the form of a graph; :func:`.check_csc` checks whether they are one.

    Raises:
        GraphFormatError: their dtypes or lengths are not those of CSC.
    """
    check_array("indptr", indptr, (np.int64,), 1, GraphFormatError)
    check_array("indices", indices, INDEX_DTYPES, 1, GraphFormatError)
    if indptr.shape[0] == 0:
        raise GraphFormatError("indptr is empty, but must have N + 1 entries: [0] for a graph without nodes.")
    if ends and indptr[-1] != indices.shape[0]:
        raise GraphFormatError(
            f"indptr[-1] is {indptr[-1]} but indices has {indices.shape[0]} edges. indptr must have N + 1 "
            "entries and end at E. If the graph is stored as COO, build it with Graph.from_coo(src, dst)."
        )


def as_integer(name: str, value: Any, error: type[GnnLoadError] = SamplerConfigError) -> int:
    """Returns a plain integer, of NumPy's too, which native code does not take; floats fail, as they would be cut."""
    try:
        return operator.index(value)
    except (TypeError, RuntimeError):  # a tensor of no number, or of several, says the latter
        raise error(f"{name} is {value!r}, but must be an integer.") from None


def as_list(name: str, values: Any) -> list[Any]:
    """Returns a list of any iterable; NumPy's arrays of no dimension only look like one."""
    try:
        return list(values)
    except TypeError:
        raise SamplerConfigError(f"{name} is {values!r}, but must be a list, one entry a hop.") from None


def as_flag(name: str, value: Any) -> bool:
    """Returns a plain bool, of NumPy's too; what is merely true in a condition, as arrays and texts are, fails."""
    if not isinstance(value, bool | np.bool_):
        raise SamplerConfigError(f"{name} is {value!r}, but must be True or False.")
    return bool(value)


def check_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    """Raises SamplerConfigError where ``value`` is none of these texts."""
    if not isinstance(value, str) or value not in choices:
        *others, last = (f'"{choice}"' for choice in choices)
        raise SamplerConfigError(f"{name} is {value!r}, but must be {', '.join(others)} or {last}.")


def check_kind(name: str, value: Any, kind: type | tuple[type, ...]) -> None:
    """Raises SamplerConfigError where ``value`` is of another class, or of none of these."""
    if not isinstance(value, kind):
        kinds = " or ".join(each.__name__ for each in (kind if isinstance(kind, tuple) else (kind,)))
        raise SamplerConfigError(f"{name} is {value!r}, but must be a {kinds}.")


def check_array(
    name: str,
    array: Any,
    dtypes: Sequence[DTypeLike] | None,
    ndim: int | None,
    error: type[GnnLoadError],
    writable: bool = False,
    aligned: bool = True,
    count: int | None = None,
) -> None:
    """Checks one array for the kernels, which read memory as it lies and so need exactly what they expect."""
    # Subclasses mean more than their memory says: a mask, a unit.
    if type(array) is not np.ndarray and not isinstance(array, np.memmap):
        raise error(f"{name} is a {type(array).__name__}, but must be a NumPy array; torch tensors have .numpy().")
    if dtypes is not None and array.dtype not in dtypes:
        names = " or ".join(str(np.dtype(dtype)) for dtype in dtypes)
        raise error(f"{name} has dtype {array.dtype}, but must be {names}: convert it with {name}.astype(...).")
    if ndim is not None and array.ndim != ndim:
        raise error(f"{name} has shape {array.shape}, but must have {ndim} dimension{'s' if ndim > 1 else ''}.")
    if not array.flags.c_contiguous:
        raise error(f"{name} is not contiguous: pass numpy.ascontiguousarray({name}).")
    if aligned and not array.flags.aligned:
        raise error(f"{name} is not aligned in memory to its dtype: pass {name}.copy().")
    if writable and not array.flags.writeable:
        raise error(f"{name} is read-only, but is written to.")
    if count is not None and len(array) != count:
        raise error(f"{name} has {len(array)} entries, but {count} are needed: one each.")


def check_names(names: np.ndarray | None, indptr: np.ndarray) -> None:
    """Checks the ids by which nodes draw: int64, one a node, or None, where they are the nodes' own.

    Raises:
        GraphFormatError: something else.
    """
    if names is None:
        return
    check_array("names", names, (np.int64,), 1, GraphFormatError)
    if len(names) != len(indptr) - 1:
        raise GraphFormatError(f"names has {len(names)} entries, but the graph has {len(indptr) - 1} nodes: one each.")


def check_apart(out_name: str, out: np.ndarray, *others: tuple[str, np.ndarray | None]) -> None:
    """Raises SamplerConfigError where the output overlaps one of the inputs, which would change under the kernel."""
    for name, array in others:
        # Compares bounds alone, which takes no time and is exact for arrays without gaps.
        if array is not None and np.may_share_memory(out, array):
            raise SamplerConfigError(
                f"{out_name} and {name} share memory, but {out_name} is written to: give it its own."
            )
