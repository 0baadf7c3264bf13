"""What PyG's tests ask of ``torch_sparse.SparseTensor``, in torch's own terms.

PyG has a class of that name that refuses to be made where torch-sparse is missing. It is given these methods, so that
``isinstance`` holds wherever PyG asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch_geometric.typing import SparseTensor


def _make(
    self: Any,
    row: Tensor | None = None,
    rowptr: Tensor | None = None,
    col: Tensor | None = None,
    value: Tensor | None = None,
    sparse_sizes: Sequence[int | None] | None = None,
    is_sorted: bool = False,
    trust_data: bool = False,
) -> None:
    """Entries are kept in the order of rows, those of a row in the order of columns."""
    assert col is not None
    if row is None:
        assert rowptr is not None
        row = torch.repeat_interleave(torch.arange(len(rowptr) - 1), rowptr.diff())
    given = list(sparse_sizes or (None, None))
    sizes = [int(ids.max()) + 1 if size is None else size for ids, size in zip((row, col), given, strict=True)]
    order = torch.argsort(row * sizes[1] + col, stable=True)
    self._row, self._col, self._sizes = row[order], col[order], tuple(sizes)
    self._value = None if value is None else value[order]


def _coo(self: Any) -> tuple[Tensor, Tensor, Tensor | None]:
    return self._row, self._col, self._value


def _csr(self: Any) -> tuple[Tensor, Tensor, Tensor | None]:
    counts = torch.bincount(self._row, minlength=self._sizes[0])
    return torch.cat([torch.zeros(1, dtype=torch.long), counts.cumsum(0)]), self._col, self._value


def _transposed(self: Any) -> Any:
    return SparseTensor(row=self._col, col=self._row, value=self._value, sparse_sizes=self._sizes[::-1])


def _picked(self: Any, index: tuple[Tensor, Tensor]) -> Any:
    """The rows and columns of these ids, none of them named twice."""
    new = [torch.full((size,), -1) for size in self._sizes]
    for numbers, ids in zip(new, index, strict=True):
        numbers[ids] = torch.arange(len(ids))
    row, col = new[0][self._row], new[1][self._col]
    kept = (row >= 0) & (col >= 0)
    sizes = [len(ids) for ids in index]
    return SparseTensor(row=row[kept], col=col[kept], value=self._value[kept], sparse_sizes=sizes)


def _storage(self: Any) -> Any:
    return SimpleNamespace(row=lambda: self._row, col=lambda: self._col, value=lambda: self._value)


_METHODS = {
    "__init__": _make,
    "__getitem__": _picked,
    "coo": _coo,
    "cpu": lambda self: self,
    "csc": lambda self: self.t().csr(),
    "csr": _csr,
    "device": lambda self: self._row.device,
    "is_cuda": lambda self: False,
    "nnz": lambda self: len(self._row),
    "size": lambda self, dim: self._sizes[dim],
    "sparse_size": lambda self, dim: self._sizes[dim],
    "sparse_sizes": lambda self: self._sizes,
    "storage": property(_storage),
    "t": _transposed,
}


def put_in_place() -> None:
    for name, method in _METHODS.items():
        setattr(SparseTensor, name, method)
