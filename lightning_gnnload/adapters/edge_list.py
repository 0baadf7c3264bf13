"""Lists of edges as GraphData: arrays, pairs, data frames, and text files of two columns."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch

from lightning_gnnload.adapters.columns import chosen, drawable_weights, times_of
from lightning_gnnload.adapters.named_columns import as_numbers, left_out
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.userids import UserIds
from lightning_gnnload.errors import GraphDataError

_MOST_NODES_AN_END = 1000  # beyond which ids are hardly the numbers of nodes
_BY_NAME = "Give a dict: GraphData.from_edge_list({'src': sources, 'dst': destinations})."


def from_edge_list(
    edges: Any,
    *,
    nodes: Any = None,
    num_nodes: int | None = None,
    src: str = "src",
    dst: str = "dst",
    edge_weight_name: str | None = None,
    time_name: str | None = None,
    without: Iterable[str] = (),
    **columns: Any,
) -> GraphData:
    """Converts a list of edges, each from a source to a destination.

    Ends that are whole numbers are the numbers of nodes, from 0 on. Ends that are texts become ``user_ids``; their
    nodes are numbered in the order of ``nodes`` or, without it, of the sorted texts.

    Args:
        edges: an array or tensor ``[2, E]`` or ``[E, 2]``; a list of pairs; a DataFrame, or a dict of columns, by
            name; or the path of a file with two whole numbers a line, and lines of comment that begin with ``#`` or
            ``%``, as SNAP's data sets are.
        nodes: your ids of all nodes, ``[N]``, in the order of the rows of ``x``, ``y`` and tables; ends are then
            such ids, texts or whole numbers of any size.
        num_nodes: N, where ends are numbers; one more than the largest when None.
        src: the column of sources in a DataFrame or dict.
        dst: that of destinations.
        edge_weight_name: the column that samplers draw by; mini-batches carry it, too.
        time_name: the column that says since when an edge is there, for samplers by time; mini-batches carry it,
            too.
        without: names of columns that are left out. All others become edge tables.
        **columns: ``x``, ``y``, ``train`` and all else that :class:`.GraphData` takes beside the graph.

    Raises:
        GraphDataError: two edges in a 2 by 2 array, which may lie either way; ends that are neither whole numbers
            nor texts, or not among ``nodes``; a column that is not there, or that holds no numbers.

    Example:
        >>> from lightning_gnnload import GraphData
        >>> data = GraphData.from_edge_list([("ann", "bob"), ("cleo", "bob"), ("bob", "ann")])
        >>> data.num_nodes, data.user_ids[""].take(data.graph.in_neighbors(1)).tolist()
        (3, ['ann', 'cleo'])
    """
    ends = src, dst
    named = dict(zip(ends, _ends(edges), strict=True))
    if isinstance(edges, Mapping) or hasattr(edges, "columns"):
        named = {name: edges[name] for name in (edges if isinstance(edges, Mapping) else edges.columns)}
    gone = left_out(without, named, "the edge list")
    asked = {"src": src, "dst": dst, "edge_weight_name": edge_weight_name, "time_name": time_name}
    for argument, name in asked.items():
        chosen(named, name or [], argument, "the edge list")
    of_edges = {name: _column(rows, name) for name, rows in named.items() if name not in ends and name not in gone}
    has_count = num_nodes is not None
    user_ids, between = _numbered(_end(named[src], src), _end(named[dst], dst), nodes, has_count=has_count)
    if user_ids is not None and num_nodes is not None:
        raise GraphDataError(
            f"num_nodes={num_nodes} is for ends that are numbers of nodes. Give nodes=, a list of ids."
        )
    graph = Graph.from_coo(
        *between,
        num_nodes if user_ids is None else len(user_ids),
        edge_weight=drawable_weights(repr(edge_weight_name), of_edges.get(edge_weight_name)),  # type: ignore[arg-type]
        edge_time=times_of(of_edges, time_name),
        keep_order=True,
    )
    columns["edge_tables"] = of_edges | dict(columns.get("edge_tables") or {})
    return GraphData(graph, **(columns if user_ids is None else {"user_ids": user_ids} | columns))


def _ends(edges: Any) -> tuple[Any, Any]:
    """Returns the two ends of edges that lie in an array, a list of pairs or a file; of columns by name, nothing."""
    if isinstance(edges, Mapping) or hasattr(edges, "columns"):
        return None, None
    if isinstance(edges, str | os.PathLike):
        return _read(edges)
    array = edges.detach().cpu().numpy() if isinstance(edges, torch.Tensor) else np.asarray(edges)
    if array.size == 0:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    if array.shape == (2, 2):
        raise GraphDataError(
            f"GraphData.from_edge_list: an edge list of 2 by 2 may have an edge a row or an edge a column. {_BY_NAME}"
        )
    if array.ndim != 2 or 2 not in array.shape:
        raise GraphDataError(
            f"GraphData.from_edge_list: an array [2, E] or [E, 2] is needed, but the shape is {list(array.shape)}. "
            f"{_BY_NAME}"
        )
    return tuple(array if len(array) == 2 else array.T)


def _read(path: Any) -> tuple[np.ndarray, np.ndarray]:
    try:
        src, dst = np.loadtxt(path, np.int64, comments=["#", "%"], ndmin=2, unpack=True)
        return src, dst
    except ValueError as error:
        raise GraphDataError(
            f"{os.fspath(path)}: two whole numbers a line are needed, with spaces or tabs between them ({error}). "
            f"Tables with texts or further columns are read by `gnnload build`, or by pandas: "
            f"GraphData.from_edge_list(pandas.read_csv(path))."
        ) from error


def _column(rows: Any, name: str) -> np.ndarray:
    rows = rows.detach().numpy() if isinstance(rows, torch.Tensor) else rows
    return as_numbers(rows, f"column {name!r} of the edge list", name)


def _end(rows: Any, name: str) -> np.ndarray:
    array = np.asarray(rows)
    if array.dtype.kind == "O" and all(isinstance(each, str) for each in array.tolist()):
        array = array.astype(str)
    if array.dtype.kind not in "iuU" and array.size:
        odd = next((each for each in array.tolist() if not isinstance(each, int | str)), array.dtype)
        raise GraphDataError(
            f"{name!r} of the edge list: whole numbers or texts are needed, but there is {odd!r}. Remove edges without "
            f"an end first."
        )
    return array


def _numbered(
    src: np.ndarray, dst: np.ndarray, nodes: Any, *, has_count: bool
) -> tuple[UserIds | None, tuple[np.ndarray, np.ndarray]]:
    """Returns the user's ids, None where ends are numbers of nodes, and the ends as such numbers."""
    is_text = [end.dtype.kind == "U" for end in (src, dst)]
    if any(is_text) and not all(is_text):
        raise GraphDataError("one end of the edges is text and the other is a number: both name nodes of one kind.")
    if nodes is not None:
        ids = UserIds.of(nodes)
        return ids, (ids.rows_of(src.tolist()), ids.rows_of(dst.tolist()))
    if not all(is_text):
        largest = max(int(src.max()), int(dst.max())) if len(src) else 0
        if not has_count and largest > _MOST_NODES_AN_END * (len(src) + len(dst)):
            raise GraphDataError(
                f"GraphData.from_edge_list: the ends of {len(src)} edges go up to {largest}. Where they are the "
                f"numbers of nodes, say how many there are: num_nodes={largest + 1}. Where they are ids of your own, "
                f"give nodes=numpy.unique(edges)."
            )
        return None, (src, dst)
    names, numbers = np.unique(np.concatenate([src, dst]), return_inverse=True)
    return UserIds.of(names), (numbers[: len(src)], numbers[len(src) :])
