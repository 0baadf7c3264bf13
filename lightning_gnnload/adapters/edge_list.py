"""Lists of edges as GraphData: arrays, pairs, data frames, and text files of two columns."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch

from lightning_gnnload.adapters.columns import chosen, drawable_weights, time_column
from lightning_gnnload.adapters.named_columns import numeric_array, omitted
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.userids import UserIds
from lightning_gnnload.errors import GraphDataError

# With more nodes for each edge, ids are hardly the numbers of nodes: a graph of them would be all but empty.
_MOST_NODES_AN_END = 1000
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
    named = _named(edges, src, dst)
    dropped = {src, dst, *omitted(without, named, "the edge list")}
    names = {"src": src, "dst": dst, "edge_weight_name": edge_weight_name, "time_name": time_name}
    for argument, name in names.items():
        chosen(named, name or [], argument, "the edge list")
    tables = {name: _column(rows, name) for name, rows in named.items() if name not in dropped}
    endpoints = _endpoint(named[src], src), _endpoint(named[dst], dst)
    user_ids, endpoints = _numbered(*endpoints, nodes, has_count=num_nodes is not None)
    if user_ids is not None and num_nodes is not None:
        raise GraphDataError(
            f"num_nodes={num_nodes} is for ends that are numbers of nodes. Give nodes=, a list of ids."
        )
    graph = Graph.from_coo(
        *endpoints,
        num_nodes if user_ids is None else len(user_ids),
        edge_weight=drawable_weights(repr(edge_weight_name), tables.get(edge_weight_name)),  # type: ignore[arg-type]
        edge_time=time_column(tables, time_name),
        keep_order=True,
    )
    columns["edge_tables"] = tables | dict(columns.get("edge_tables") or {})
    # The user's own user_ids= come before the texts of the edges.
    return GraphData(graph, **(columns if user_ids is None else {"user_ids": user_ids} | columns))


def _named(edges: Any, src: str, dst: str) -> dict[str, Any]:
    """Returns the columns of a list of edges by name; an array, a list of pairs or a file has the endpoints alone."""
    if isinstance(edges, Mapping):
        return dict(edges)
    if hasattr(edges, "columns"):
        return {name: edges[name] for name in edges.columns}
    return dict(zip((src, dst), _endpoints(edges), strict=True))


def _endpoints(edges: Any) -> tuple[Any, Any]:
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
    return numeric_array(rows, f"column {name!r} of the edge list", name)


def _endpoint(rows: Any, name: str) -> np.ndarray:
    array = np.asarray(rows)
    # Columns of texts in pandas are Python objects; NumPy's own texts sort and compare much faster.
    if array.dtype.kind == "O" and all(isinstance(value, str) for value in array.tolist()):
        array = array.astype(str)
    if array.dtype.kind not in "iuU" and array.size:
        odd = next((value for value in array.tolist() if not isinstance(value, int | str)), array.dtype)
        raise GraphDataError(
            f"{name!r} of the edge list: whole numbers or texts are needed, but there is {odd!r}. Remove edges without "
            f"an end first."
        )
    return array


def _numbered(
    src: np.ndarray, dst: np.ndarray, nodes: Any, *, has_count: bool
) -> tuple[UserIds | None, tuple[np.ndarray, np.ndarray]]:
    """Returns the user's ids, None where endpoints are numbers of nodes, and the endpoints as such numbers."""
    is_text = [endpoint.dtype.kind == "U" for endpoint in (src, dst)]
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
