"""Turning what users hold (tensors, arrays, lists) into the one form the kernels take, without copying."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from lightning_gnnload.errors import GnnLoadError, GraphDataError


def as_array(values: Any, *, what: str) -> np.ndarray:
    """Converts ``values`` to a C-contiguous NumPy array; tensors and arrays that are contiguous are not copied.

    Raises:
        GraphDataError: a tensor that is not on the CPU, or values that make no numeric array.
    """
    if isinstance(values, torch.Tensor):
        _check_tensor(values, what)
        values = values.detach()
    try:
        # torch has dtypes that NumPy lacks, and lists may be ragged.
        array = np.ascontiguousarray(values.numpy() if isinstance(values, torch.Tensor) else values)
        # One reversed entry counts as contiguous, but not in torch; kernels read numbers at their natural places.
        if any(step < 0 for step in array.strides) or not array.flags.aligned:
            array = array.copy()
    except (TypeError, ValueError, RuntimeError) as error:
        raise GraphDataError(
            f"{what}: this makes no NumPy array ({error}). Give one number an entry, in a dtype that NumPy has."
        ) from error
    if array.dtype.kind not in "iufb" or not array.dtype.isnative:
        order = "" if array.dtype.isnative else " in this machine's byte order"
        text = array.dtype.kind in "US" or (
            array.dtype.kind == "O" and any(isinstance(each, str) for each in array.flat)
        )
        advice = (
            " Text ids become numbers with their tables, by GraphData.from_tables or gnnload build; text labels by "
            "names, y = numpy.unique(labels, return_inverse=True)."
        )
        raise GraphDataError(
            f"{what}: numbers{order} are needed, but the dtype is {array.dtype}.{advice if text else ''}"
        )
    # C has two names for its 64-bit integers, and torch knows only one of them.
    return array.view(array.dtype.str) if array.dtype.char in "qQ" else array


def _check_tensor(values: torch.Tensor, what: str) -> None:
    if values.device.type != "cpu":
        raise GraphDataError(
            f"{what}: a tensor on {values.device} was given; it must be on the CPU. Call .cpu() first."
        )
    if values.layout is not torch.strided:
        raise GraphDataError(f"{what}: a {values.layout} tensor was given; it must be dense. Call .to_dense() first.")


MOST_SINGLE = float(np.finfo(np.float32).max)
"""The largest number that float32 holds."""


def as_single(values: np.ndarray, *, what: str, error: type[GnnLoadError] = GraphDataError) -> np.ndarray:
    """Converts float64 to float32, as models compute; other arrays stay as they are.

    Raises:
        GraphDataError, or ``error``: a number that float32 does not hold. What is infinite or none before stays so.
    """
    if values.dtype != np.float64:
        return values
    beyond = np.isfinite(values) & (np.abs(values) > MOST_SINGLE)
    if beyond.any():
        first = np.unravel_index(int(beyond.argmax()), values.shape)
        raise error(
            f"{what}[{', '.join(map(str, first))}] is {values[first]}, as {int(beyond.sum())} are, but float32 holds "
            f"numbers up to {MOST_SINGLE:.5g}. Give them in a larger unit, or their logarithms."
        )
    return values.astype(np.float32)


def as_ids(values: Any, *, what: str, num_nodes: int | None = None) -> np.ndarray:
    """Converts node ids to int64 ``[B]`` and checks their range where ``num_nodes`` is given.

    A boolean mask ``[num_nodes]`` stands for the ids of the nodes where it is true, in ascending order.

    Raises:
        GraphDataError: not one-dimensional, not integers, out of range, or a mask of other nodes than there are.
    """
    array = as_array(values, what=what)
    if array.dtype.kind == "b" and array.size:
        if num_nodes is None:
            raise GraphDataError(
                f"{what}: a boolean mask was given; node ids are needed. Give numpy.flatnonzero(mask)."
            )
        if array.shape != (num_nodes,):
            raise GraphDataError(
                f"{what}: a boolean mask of shape {array.shape} was given, but there are {num_nodes} nodes; give one "
                f"entry for each of them, or node ids."
            )
        return np.flatnonzero(array).astype(np.int64, copy=False)
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
        raise GraphDataError(
            f"{what}: one-dimensional integer node ids are needed, "
            f"but the shape is {array.shape} and the dtype {array.dtype}."
        )
    ids = array.astype(np.int64, copy=False)
    if num_nodes is not None and ids.size:
        low, high = int(ids.min()), int(ids.max())
        if low < 0 or high >= num_nodes:
            bad = int(np.flatnonzero((ids < 0) | (ids >= num_nodes))[0])
            raise GraphDataError(
                f"{what}: id {ids[bad]} at position {bad} is not a node; ids must lie in [0, {num_nodes})."
            )
    return ids


def is_integer(rows: torch.Tensor) -> bool:
    """Returns whether entries are whole numbers, of whatever width."""
    return not (rows.is_floating_point() or rows.is_complex() or rows.dtype is torch.bool)


def as_rows(values: Any, *, what: str) -> torch.Tensor:
    """Converts a table of rows to a contiguous CPU tensor that shares memory with ``values`` where it can.

    Tensors keep dtypes that NumPy lacks (bfloat16). Read-only memory maps are accepted: nothing here writes to them.
    """
    if isinstance(values, torch.Tensor):
        _check_tensor(values, what)
        return values.detach().contiguous()
    array = as_array(values, what=what)
    if array.dtype == np.longdouble:
        raise GraphDataError(f"{what}: torch has no {array.dtype}. Convert it with .astype('float64').")
    return tensor_view(array)


def tensor_view(array: np.ndarray) -> torch.Tensor:
    """Returns a tensor over the array's memory. A read-only array stays so by agreement: torch has no such notion."""
    if array.flags.writeable:
        return torch.from_numpy(array)
    view = array.view()
    interface = dict(view.__array_interface__)
    interface["data"] = (interface["data"][0], False)

    class _Writeable:
        """Lends the memory under a writeable flag and keeps the array alive, so that torch does not warn."""

        __array_interface__ = interface
        base = view

    return torch.from_numpy(np.asarray(_Writeable()))
