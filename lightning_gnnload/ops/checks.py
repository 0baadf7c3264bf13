"""Checks of what callers pass to the kernels, which read memory as it is and trust it.

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


def check_csc_form(indptr: np.ndarray, indices: np.ndarray, check_end: bool = True) -> None:
    """Raises GraphFormatError unless two arrays have the dtypes and lengths of CSC; :func:`.check_csc` looks at their
    values."""
    check_array("indptr", indptr, (np.int64,), 1, GraphFormatError)
    check_array("indices", indices, INDEX_DTYPES, 1, GraphFormatError)
    if indptr.shape[0] == 0:
        raise GraphFormatError("indptr is empty, but must have N + 1 entries: [0] for a graph without nodes.")
    if check_end and indptr[-1] != indices.shape[0]:
        raise GraphFormatError(
            f"indptr[-1] is {indptr[-1]} but indices has {indices.shape[0]} edges. indptr must have N + 1 "
            "entries and end at E. If the graph is stored as COO, build it with Graph.from_coo(src, dst)."
        )


def as_integer(name: str, value: Any, error: type[GnnLoadError] = SamplerConfigError) -> int:
    """Returns a plain integer, since native code does not take NumPy's; refuses floats, which would be cut off."""
    try:
        return operator.index(value)
    except (TypeError, RuntimeError):  # the latter from a tensor that does not hold exactly one number
        raise error(f"{name} is {value!r}, but must be an integer.") from None


def as_integer_within(
    name: str, value: Any, least: int, most: int, error: type[GnnLoadError] = SamplerConfigError
) -> int:
    """Returns a plain integer in ``[least, most]``; raises ``error`` for anything else."""
    if type(value) is not int:  # nearly all are, and a call less counts where every batch is checked
        value = as_integer(name, value, error)
    if not least <= value <= most:
        raise error(f"{name} is {value}, but must lie in [{least}, {most}].")
    return value


def as_list(name: str, values: Any) -> list[Any]:
    """Returns any iterable as a list; raises SamplerConfigError for what is none, as NumPy's arrays of no dimension."""
    try:
        return list(values)
    except TypeError:
        raise SamplerConfigError(f"{name} is {values!r}, but must be a list, one entry a hop.") from None


def as_flag(name: str, value: Any, error: type[GnnLoadError] = SamplerConfigError) -> bool:
    """Returns a plain bool, of NumPy's too; refuses what is merely true in a condition, as arrays and texts are."""
    if not isinstance(value, bool | np.bool_):
        raise error(f"{name} is {value!r}, but must be True or False.")
    return bool(value)


def check_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    """Raises SamplerConfigError where ``value`` is none of these texts."""
    if not isinstance(value, str) or value not in choices:
        *choices_before, last = (f'"{choice}"' for choice in choices)
        raise SamplerConfigError(f"{name} is {value!r}, but must be {', '.join(choices_before)} or {last}.")


def check_kind(name: str, value: Any, expected: type | tuple[type, ...]) -> None:
    """Raises SamplerConfigError where ``value`` is of no such class."""
    if not isinstance(value, expected):
        kinds = " or ".join(cls.__name__ for cls in (expected if isinstance(expected, tuple) else (expected,)))
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
    """Checks one array for the kernels, which need exactly the dtype and layout that they expect."""
    # Subclasses may mean more than their memory says: a mask, a unit.
    if type(array) is not np.ndarray and not isinstance(array, np.memmap):
        raise error(f"{name} is a {type(array).__name__}, but must be a NumPy array; torch tensors have .numpy().")
    if dtypes is not None and array.dtype not in dtypes:
        names = " or ".join(str(np.dtype(dtype)) for dtype in dtypes)
        raise error(f"{name} has dtype {array.dtype}, but must be {names}: convert it with {name}.astype(...).")
    if ndim is not None and array.ndim != ndim:
        raise error(f"{name} has shape {array.shape}, but must have {ndim} dimension{'s' if ndim > 1 else ''}.")
    # Refused instead of copied: a silent copy of a feature table could take all memory.
    if not array.flags.c_contiguous:
        raise error(f"{name} is not contiguous: pass numpy.ascontiguousarray({name}).")
    if aligned and not array.flags.aligned:
        raise error(f"{name} is not aligned in memory to its dtype: pass {name}.copy().")
    if writable and not array.flags.writeable:
        raise error(f"{name} is read-only, but is written to.")
    if count is not None and len(array) != count:
        raise error(f"{name} has {len(array)} entries, but {count} are needed: one each.")


def check_global_ids(names: np.ndarray | None, indptr: np.ndarray) -> None:
    """Checks the global ids by which nodes draw, int64 ``[N]`` or None; raises GraphFormatError."""
    if names is None:
        return
    check_array("names", names, (np.int64,), 1, GraphFormatError)
    if len(names) != len(indptr) - 1:
        raise GraphFormatError(f"names has {len(names)} entries, but the graph has {len(indptr) - 1} nodes: one each.")


def check_apart(out_name: str, out: np.ndarray, *inputs: tuple[str, np.ndarray | None]) -> None:
    """Raises SamplerConfigError where the output overlaps an input, which would change while the kernel reads it."""
    for name, array in inputs:
        # Not shares_memory(), which may take exponential time: bounds alone are exact for arrays without gaps.
        if array is not None and np.may_share_memory(out, array):
            raise SamplerConfigError(
                f"{out_name} and {name} share memory, but {out_name} is written to: give it its own."
            )
