"""NodeIdColumns: the columns of results that say, by the user's own ids, which node a row is of."""

from __future__ import annotations

import numpy as np

from lightning_gnnload.data.graphdata import GraphData

NODE, NODE_TYPE = "node", "node_type"
RESERVED = (NODE_TYPE, "row", "time", "prediction", "class")
"""Columns of results with names of ours, which a user's column of ids cannot have there."""


class NodeIdColumns:
    """Gives nodes the user's own ids, or their numbers within their type where the data have no ids of it.

    ``nodes`` are all that will be looked up, int64 ``[S]``. Those of several types get a column ``"node_type"``, too.

    Example:
        >>> from lightning_gnnload import Graph, UserIds
        >>> ids = UserIds.of(["ann", "bob"], column="user_id")
        >>> names = NodeIdColumns(GraphData(Graph.from_coo([0], [1]), user_ids=ids), np.arange(2))
        >>> {name: rows.tolist() for name, rows in names.columns(np.array([1])).items()}
        {'user_id': ['bob']}
    """

    def __init__(self, data: GraphData, nodes: np.ndarray) -> None:
        self._types = types = data.graph.types
        type_numbers = [] if types is None else np.unique(types.number_of(nodes)).tolist()
        self._node_types = (
            {number: types.node_types[number] for number in type_numbers} if types is not None else {0: ""}
        )
        self._ids = {number: data.user_ids.get(name) for number, name in self._node_types.items()}
        columns = {NODE if ids is None else ids.column for ids in self._ids.values()}
        # The user's name of the column, unless types differ in it, or it is a name of ours.
        self.column = columns.pop() if len(columns) == 1 and not columns & {*RESERVED} else NODE

    def columns(self, nodes: np.ndarray) -> dict[str, np.ndarray]:
        """Returns columns by name: ids are int64 ``[n]``, or str in an object array if any type's ids are texts."""
        if len(self._node_types) == 1:
            [number] = self._node_types
            return {self.column: self._ids_of(number, nodes)}
        assert self._types is not None
        numbers = self._types.number_of(nodes)
        # One column holds one dtype: where a type has texts, numbers of the others become texts, too.
        has_texts = any(ids is not None and ids.kind == "text" for ids in self._ids.values())
        column = np.empty(len(nodes), object if has_texts else np.int64)
        for number in self._node_types:
            at = numbers == number
            ids_of_type = self._ids_of(number, nodes[at])
            column[at] = ids_of_type.astype(str) if has_texts else ids_of_type
        return {NODE_TYPE: np.array(self._types.node_types, object)[numbers], self.column: column}

    def _ids_of(self, number: int, nodes: np.ndarray) -> np.ndarray:
        rows = nodes if self._types is None else nodes - self._types.first_node[number]
        ids = self._ids[number]
        return rows if ids is None else ids.take(rows)
