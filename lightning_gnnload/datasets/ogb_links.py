"""Readers of OGB's splits of links, which are files of ``torch.save``, read as tensors, arrays and texts alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lightning_gnnload.data.seedtable import SeedTable
from lightning_gnnload.datasets.foreign import load_tensors, reading
from lightning_gnnload.errors import DatasetError, GraphDataError

Columns = dict[str, Any]  # what a file of a split holds: arrays, or lists of texts, by name
_FORMS = ("edge", "source_node", "head")


def read_links(folder: Path) -> tuple[Columns, Columns, Columns]:
    """Reads what ``train.pt``, ``valid.pt`` and ``test.pt`` hold; raises DatasetError for a file that is missing,
    damaged, or holds what is neither tensors, arrays nor texts."""
    train, val, test = (_columns(folder / f"{name}.pt") for name in ("train", "valid", "test"))
    return train, val, test


def seeds_of_links(
    split: Columns, file: str, ranges: Mapping[str, range] | None = None, years: np.ndarray | bool = False
) -> SeedTable:
    """Makes the seed table of a split; ``file`` names it in errors.

    Pairs of ``edge`` are rows; those of ``edge_neg`` follow, and labels ``y`` are 1 and 0. Negatives of single rows are
    the column ``"negatives"``: of destinations, then of sources. ``ranges`` are the ids of each node type, of typed
    triples, whose ids count within types. ``years`` are of nodes, int64 ``[N]``: a row's time is its source's; or
    whether the file's own years are times.
    """
    try:
        return _pairs(split, years is True) if "edge" in split else _rows(split, ranges, years)
    except (KeyError, ValueError, IndexError, TypeError, GraphDataError) as error:
        names = ", ".join(map(str, split))
        raise DatasetError(f"{file}: the columns {names} make no table of links: {error!r}. {_REMEDY}") from error


def _pairs(split: Columns, times: bool) -> SeedTable:
    edge, false = split["edge"], split.get("edge_neg")
    for pairs in (edge, edge if false is None else false):
        if pairs.ndim != 2 or pairs.shape[1] != 2:
            raise ValueError(f"pairs are {list(pairs.shape)}, but [R, 2] is needed")
    columns: dict[str, Any] = {"src": edge[:, 0], "dst": edge[:, 1]}
    if false is not None:
        columns = {"src": np.append(edge[:, 0], false[:, 0]), "dst": np.append(edge[:, 1], false[:, 1])}
        columns["y"] = np.repeat([1, 0], [len(edge), len(false)])
    num_false = 0 if false is None else len(false)
    if "weight" in split:  # a false edge weighs as much as any
        columns["weight"] = np.append(split["weight"].reshape(-1), np.ones(num_false)).astype(np.float32)
    if "year" in split:
        year = split["year"].reshape(-1)
        # False edges are asked about when the last of the true ones are.
        year = np.append(year, np.full(num_false, year.max(initial=0))).astype(np.int64)
        columns["columns"] = {"year": year}
        if times:
            columns["time"] = year
    return SeedTable(**columns)


def _rows(split: Columns, ranges: Mapping[str, range] | None, years: np.ndarray | bool) -> SeedTable:
    if "source_node" in split:
        names = {"src": "source_node", "dst": "target_node", "dst_false": "target_node_neg"}
    else:
        names = {"src": "head", "dst": "tail", "dst_false": "tail_neg", "src_false": "head_neg"}
    ids = {ours: split[theirs] for ours, theirs in names.items() if theirs in split}
    if ranges is not None:
        for end in ("src", "dst"):
            row_ranges = [ranges[node_type] for node_type in split[f"{names[end]}_type"]]
            first, count = np.array([[r.start, len(r)] for r in row_ranges], np.int64).reshape(-1, 2).T
            for name in {end, f"{end}_false"} & ids.keys():
                ids[name] = _in_range(ids[name], first, count)
    columns = {"relation": split["relation"].astype(np.int64)} if "relation" in split else {}
    false = [ids[name] for name in ("dst_false", "src_false") if name in ids]
    if false:
        columns["negatives"] = _narrow(np.concatenate(false, axis=1))
    time = years[ids["src"]] if isinstance(years, np.ndarray) else None
    return SeedTable(src=ids["src"], dst=ids["dst"], columns=columns, time=time)


def _narrow(ids: np.ndarray) -> np.ndarray:
    """Returns int32 where it does: thousand negatives a row are most of the table."""
    return ids.astype(np.int32 if ids.size == 0 or ids.max() < 2**31 else np.int64)


def _in_range(ids: np.ndarray, first: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Returns ids in the graph ``[R, ...]`` of those that count within their rows' types, which have ``count`` nodes
    from ``first`` on."""
    first, count = (column.reshape(-1, *[1] * (ids.ndim - 1)) for column in (first, count))
    bad = (ids < 0) | (ids >= count)
    if bad.any():
        raise ValueError(f"{ids[bad][0]} is no node of its row's type")
    return ids + first


def _columns(file: Path) -> Columns:
    anew = (
        f"Objects are not unpickled here. If you trust it, write it anew as tensors: d = torch.load({file.name!r}, "
        f"weights_only=False); torch.save({{k: v if isinstance(v, list) else torch.as_tensor(v) for k, v in d.items()"
        f"}}, {file.name!r}). Else unzip OGB's archive anew."
    )
    with reading(file, anew):
        contents = load_tensors(file, safe_classes=_STAND_INS)
        columns = {str(name): _plain(value) for name, value in contents.items()}
    if not columns.keys() & {*_FORMS}:
        raise DatasetError(
            f"{file} has {', '.join(columns) or 'nothing'}, but one of {', '.join(_FORMS)} is needed. {_REMEDY}"
        )
    return columns


def _plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.numpy()
    if isinstance(value, _Array):
        return value.array()
    if isinstance(value, list) and all(isinstance(text, str) for text in value):
        return value
    if isinstance(value, list) and all(type(number) is int for number in value):
        return np.array(value, np.int64)
    raise TypeError(f"a {type(value).__name__} is neither tensor, array nor texts")


class _Dtype:
    """Stands in for ``numpy.dtype`` while a file is read: keeps what it is given."""

    def __init__(self, code: Any = None, *_: Any) -> None:
        self.code, self.order = code, "<"

    def __setstate__(self, state: Any) -> None:
        self.order = state[1]

    def dtype(self) -> np.dtype[Any]:
        code = self.code.decode() if isinstance(self.code, bytes) else self.code
        if not isinstance(code, str) or code[:1] not in ("i", "u", "f") or not code[1:].isdigit():
            raise TypeError(f"an array of dtype {self.code!r:.50} has no numbers")
        order = self.order.decode() if isinstance(self.order, bytes) else self.order
        return np.dtype(code).newbyteorder(">" if order == ">" else "<")


class _Array:
    """Stands in for ``numpy.ndarray`` likewise; NumPy itself trusts what a pickle says of an array."""

    def __setstate__(self, state: Any) -> None:
        _, self.shape, self.dtype, self.by_column, self.raw = state

    def array(self) -> np.ndarray:
        dtype = self.dtype.dtype()
        if not isinstance(self.raw, bytes) or math.prod(self.shape) * dtype.itemsize != len(self.raw):
            raise TypeError("an array has other bytes than it says")
        flat = np.frombuffer(self.raw, dtype).astype(dtype.newbyteorder("="))
        return flat.reshape(self.shape, order="F" if self.by_column else "C")


def _empty_array(*_: Any) -> _Array:
    return _Array()


def _empty_array_of_old(*_: Any) -> _Array:
    return _Array()


def _rename(stand_in: Any, module: str, name: str) -> Any:
    stand_in.__module__, stand_in.__name__, stand_in.__qualname__ = module, name, name
    return stand_in


# By the names of what they stand for, by which torch.load finds them.
_STAND_INS = [
    _rename(_Dtype, "numpy", "dtype"),
    _rename(_Array, "numpy", "ndarray"),
    _rename(_empty_array, "numpy._core.multiarray", "_reconstruct"),
    _rename(_empty_array_of_old, "numpy.core.multiarray", "_reconstruct"),
]
_REMEDY = "The split folder is incomplete or damaged: delete the data set's folder and prepare again."
