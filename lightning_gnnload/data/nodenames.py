"""NodeNames: the columns that say which nodes the rows of results are of, by the user's own ids."""

from __future__ import annotations

import numpy as np

from lightning_gnnload.data.graphdata import GraphData

NODE, NODE_TYPE = "node", "node_type"
RESERVED = (NODE_TYPE, "row", "time", "prediction", "class")
"""Columns of results, whose names are not the user's."""


class NodeNames:
    """Names nodes by the user's own ids, or by their numbers within their type where the data have no ids of it.

    Args:
        data: the graph, its types, and the user's ids.
        nodes: all that will be named, by their ids in the graph, int64 ``[S]``. Those of one type are in a column that
            is named as the user's; where they are of several types, each has its type in ``"node_type"`` beside it.

    Attributes:
        column: the name of the column of ids: ``"node"`` where the user has no ids, where types differ in the name, or
            where it is one of ``RESERVED``.

    Example:
        >>> from lightning_gnnload import Graph, UserIds
        >>> ids = UserIds.of(["ann", "bob"], column="user_id")
        >>> names = NodeNames(GraphData(Graph.from_coo([0], [1]), user_ids=ids), np.arange(2))
        >>> {name: rows.tolist() for name, rows in names.columns(np.array([1])).items()}
        {'user_id': ['bob']}
    """

    def __init__(self, data: GraphData, nodes: np.ndarray) -> None:
        self._types = types = data.graph.types
        found = [] if types is None else np.unique(types.number_of(nodes)).tolist()
        self._node_types = {number: types.node_types[number] for number in found} if types is not None else {0: ""}
        self._ids = {number: data.user_ids.get(name) for number, name in self._node_types.items()}
        columns = {NODE if ids is None else ids.column for ids in self._ids.values()}
        self.column = columns.pop() if len(columns) == 1 and not columns & {*RESERVED} else NODE

    def columns(self, nodes: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the columns of some of the nodes, by name: ids are int64 ``[n]``, or str in an object array ``[n]``,
        as they are where any type's ids are texts."""
        if len(self._node_types) == 1:
            [number] = self._node_types
            return {self.column: self._named(number, nodes)}
        assert self._types is not None
        of_type = self._types.number_of(nodes)
        has_texts = any(ids is not None and ids.kind == "text" for ids in self._ids.values())
        found = np.empty(len(nodes), object if has_texts else np.int64)
        for number in self._node_types:
            at = of_type == number
            named = self._named(number, nodes[at])
            found[at] = named.astype(str) if has_texts else named
        return {NODE_TYPE: np.array(self._types.node_types, object)[of_type], self.column: found}

    def _named(self, number: int, nodes: np.ndarray) -> np.ndarray:
        rows = nodes if self._types is None else nodes - self._types.first_node[number]
        ids = self._ids[number]
        return rows if ids is None else ids.take(rows)
