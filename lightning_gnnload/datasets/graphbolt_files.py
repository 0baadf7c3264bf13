"""Readers of the files that GraphBolt's folders hold: arrays, which are mapped, and lists of edges.

NumPy's files are read without objects, torch's as tensors alone.
"""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path

import numpy as np
import torch

from lightning_gnnload.datasets.description import Description
from lightning_gnnload.datasets.foreign import load_tensors, reading
from lightning_gnnload.errors import DatasetError
from lightning_gnnload.host.progress import progress


def map_array(entry: Description) -> np.ndarray | torch.Tensor:
    """Maps the array of an entry with ``format`` and ``path``, ``[R, ...]``; what is read of it is up to the system."""
    entry.take("in_memory", bool, optional=True)  # files are mapped either way
    format_, file = entry.choose("format", ("numpy", "torch")), entry.path("path")
    rows = _map_npy(file) if format_ == "numpy" else _tensor(file)
    if rows.ndim < 1:
        raise DatasetError(f"{file} holds a single number; rows are needed.")
    return rows


def read_edges(entry: Description) -> np.ndarray:
    """Reads the edges of an entry: integers ``[2, E]``, sources and targets."""
    format_, file = entry.choose("format", ("csv", "numpy")), entry.path("path")
    if format_ == "csv":
        return _csv_edges(file)
    edges = _map_npy(file)
    if edges.ndim != 2 or len(edges) != 2 or edges.dtype.kind not in "iu":
        hint = " Save its transpose." if edges.ndim == 2 and edges.shape[1] == 2 else ""
        raise DatasetError(
            f"{file}: edges are {edges.dtype} {list(edges.shape)}, but integers [2, E] are needed.{hint}"
        )
    return edges


def _map_npy(file: Path) -> np.ndarray:
    with reading(file, "One array of numbers is needed, saved by numpy.save."):
        rows = np.load(file, mmap_mode="r", allow_pickle=False)
    if not isinstance(rows, np.ndarray):
        rows.close()
        raise DatasetError(f"{file} is an archive of arrays; one array is needed. Save it with numpy.save.")
    if rows.dtype.kind not in "iufb" or not rows.dtype.isnative:
        raise DatasetError(f"{file} holds {rows.dtype}; numbers in this machine's byte order are needed.")
    return rows


def _tensor(file: Path) -> torch.Tensor:
    with reading(file, "A tensor is needed, saved by torch.save."):
        with open(file, "rb") as opened:
            is_archive = opened.read(2) == b"PK"
        try:  # torch maps archives alone; what older versions wrote is read
            rows = load_tensors(file, mmap=is_archive)
        except pickle.UnpicklingError as error:
            raise DatasetError(
                f"{file} holds more than a tensor, and Python objects are not unpickled here. Save the tensor alone, "
                "by torch.save or numpy.save."
            ) from error
    if not isinstance(rows, torch.Tensor) or not _is_plain(rows):
        raise DatasetError(f"{file} holds a {type(rows).__name__}; a dense tensor of numbers is needed.")
    if rows.numel() * rows.element_size() > rows.untyped_storage().nbytes():
        raise DatasetError(f"{file} holds an expanded tensor, {list(rows.shape)}. Save its .contiguous().")
    return rows


def _is_plain(rows: torch.Tensor) -> bool:
    odd = rows.is_nested or rows.is_quantized or rows.is_complex() or rows.device.type != "cpu"
    return rows.layout is torch.strided and not odd


def _csv_edges(file: Path) -> np.ndarray:
    needed = "Pairs of node ids are needed, source and target, without a header; rows count from 0."
    with reading(file, needed), progress(f"Reading {file.name}", None), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of a file without edges
        warnings.simplefilter("error", DeprecationWarning)  # of fractions, which are no ids
        pairs = np.loadtxt(file, np.int64, comments=None, delimiter=",", quotechar='"', ndmin=2, encoding="utf-8-sig")
    if pairs.size and pairs.shape[1] != 2:
        raise DatasetError(
            f"{file} has {pairs.shape[1]} columns; two are needed, source and target, without an index of rows."
        )
    return pairs.T if pairs.size else np.empty((2, 0), np.int64)
