"""Converting what users pass (tensors, arrays, lists) to the form that kernels take, without copying."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from lightning_gnnload.errors import GnnLoadError, GraphDataError


def as_array(values: Any, *, name: str) -> np.ndarray:
    """Converts values to a C-contiguous, aligned NumPy array of numbers, without a copy where they are one."""
    if isinstance(values, torch.Tensor):
        _check_tensor(values, name)
        values = values.detach()
    try:
        # torch has dtypes that NumPy lacks, and lists may be ragged.
        array = np.ascontiguousarray(values.numpy() if isinstance(values, torch.Tensor) else values)
        # A single entry with a negative stride counts as contiguous to NumPy, but not to torch.
        if any(step < 0 for step in array.strides) or not array.flags.aligned:
            array = array.copy()
    except (TypeError, ValueError, RuntimeError) as error:
        raise GraphDataError(
            f"{name}: this makes no NumPy array ({error}). Give one number an entry, in a dtype that NumPy has."
        ) from error
    if array.dtype.kind not in "iufb" or not array.dtype.isnative:
        raise _no_numbers(array, name)
    # C has two names for its 64-bit integers, and torch knows only one of them.
    return array.view(array.dtype.str) if array.dtype.char in "qQ" else array


def _no_numbers(array: np.ndarray, name: str) -> GraphDataError:
    order = "" if array.dtype.isnative else " in this machine's byte order"
    advice = ""
    if array.dtype.kind in "US" or (array.dtype.kind == "O" and any(isinstance(entry, str) for entry in array.flat)):
        advice = (
            " Text ids become numbers with their tables, by GraphData.from_tables or gnnload build; text labels by "
            "names, y = numpy.unique(labels, return_inverse=True)."
        )
    return GraphDataError(f"{name}: numbers{order} are needed, but the dtype is {array.dtype}.{advice}")


def _check_tensor(values: torch.Tensor, name: str) -> None:
    if values.device.type != "cpu":
        raise GraphDataError(
            f"{name}: a tensor on {values.device} was given; it must be on the CPU. Call .cpu() first."
        )
    if values.layout is not torch.strided:
        raise GraphDataError(f"{name}: a {values.layout} tensor was given; it must be dense. Call .to_dense() first.")


MOST_SINGLE = float(np.finfo(np.float32).max)
"""The largest number that float32 holds."""


def as_single(values: np.ndarray, *, name: str, error: type[GnnLoadError] = GraphDataError) -> np.ndarray:
    """Converts float64 to float32, as models compute; other dtypes, infinities and NaN stay.

    Raises GraphDataError, or ``error``: a number that float32 does not hold.
    """
    if values.dtype != np.float64:
        return values
    # Beyond that, the conversion would make them infinite, and the loss NaN.
    beyond = np.isfinite(values) & (np.abs(values) > MOST_SINGLE)
    if beyond.any():
        first = np.unravel_index(int(beyond.argmax()), values.shape)
        raise error(
            f"{name}[{', '.join(map(str, first))}] is {values[first]}, as {int(beyond.sum())} are, but float32 holds "
            f"numbers up to {MOST_SINGLE:.5g}. Give them in a larger unit, or their logarithms."
        )
    return values.astype(np.float32)


def as_ids(values: Any, *, name: str, num_nodes: int | None = None) -> np.ndarray:
    """Converts node ids, or a boolean mask ``[num_nodes]``, to int64 ids ``[B]``, and checks their range.

    Without ``num_nodes`` the range is not checked, and masks are refused.
    """
    array = as_array(values, name=name)
    if array.dtype.kind == "b" and array.size:
        return _masked_ids(array, name, num_nodes)
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
        raise GraphDataError(
            f"{name}: one-dimensional integer node ids are needed, "
            f"but the shape is {array.shape} and the dtype {array.dtype}."
        )
    ids = array.astype(np.int64, copy=False)
    if num_nodes is not None and ids.size:
        low, high = int(ids.min()), int(ids.max())
        if low < 0 or high >= num_nodes:
            bad = int(np.flatnonzero((ids < 0) | (ids >= num_nodes))[0])
            raise GraphDataError(
                f"{name}: id {ids[bad]} at position {bad} is not a node; ids must lie in [0, {num_nodes})."
            )
    return ids


def check_each_once(ids: np.ndarray, *, name: str) -> None:
    """Raises GraphDataError where one of the nodes of a split, int64 ``[B]``, appears again."""
    ordered = np.sort(ids)
    twice = np.flatnonzero(ordered[1:] == ordered[:-1])
    if len(twice):
        raise GraphDataError(
            f"{name} ids: node {ordered[twice[0]]} appears more than once; each node may be in a split once."
        )


def _masked_ids(mask: np.ndarray, name: str, num_nodes: int | None) -> np.ndarray:
    if num_nodes is None:
        raise GraphDataError(f"{name}: a boolean mask was given; node ids are needed. Give numpy.flatnonzero(mask).")
    if mask.shape != (num_nodes,):
        raise GraphDataError(
            f"{name}: a boolean mask of shape {mask.shape} was given, but there are {num_nodes} nodes; give one "
            f"entry for each of them, or node ids."
        )
    return np.flatnonzero(mask).astype(np.int64, copy=False)


def is_integer(rows: torch.Tensor) -> bool:
    """Returns whether the dtype is one of whole numbers, of any width."""
    return not (rows.is_floating_point() or rows.is_complex() or rows.dtype is torch.bool)


def as_rows(values: Any, *, name: str) -> torch.Tensor:
    """Converts a table of rows to a contiguous CPU tensor, which shares memory with ``values`` where it can.

    Tensors keep dtypes that NumPy lacks (bfloat16).
    """
    if isinstance(values, torch.Tensor):
        _check_tensor(values, name)
        return values.detach().contiguous()
    array = as_array(values, name=name)
    if array.dtype == np.longdouble:
        raise GraphDataError(f"{name}: torch has no {array.dtype}. Convert it with .astype('float64').")
    return tensor_view(array)


def tensor_view(array: np.ndarray) -> torch.Tensor:
    """Returns a tensor over the array's memory; nobody may write to it where the array is read-only."""
    if array.flags.writeable:
        return torch.from_numpy(array)
    return torch.from_numpy(np.asarray(_ShownWriteable(array)))


class _ShownWriteable:
    """Shows NumPy read-only memory, such as a mapped file's, as if it could be written to: torch has no read-only
    tensors, and warns of such arrays."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array  # keeps the memory
        interface = array.__array_interface__
        self.__array_interface__ = {**interface, "data": (interface["data"][0], False)}
