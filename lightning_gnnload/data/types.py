"""GraphTypes: the node and edge types of a graph; each node type is a range of the graph's node ids."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from lightning_gnnload.errors import GraphFormatError, SamplerConfigError
from lightning_gnnload.ops import MAX_EDGE_TYPES, MAX_NODES

EdgeType = tuple[str, str, str]
"""``(source node type, relation, destination node type)``, as PyG and DGL name the edges of a heterogeneous graph."""


@dataclass(frozen=True)
class GraphTypes:
    """Names T node types, with their numbers of nodes, and K edge types as triples.

    The nodes of a type have consecutive ids in the graph. The in-neighbours of a node by edges of one type are a run.
    Every node has a run for each edge type that leads to its node type, in the order of ``edge_types``: the node
    type's slots.

    Raises:
        GraphFormatError: a name twice or that is none, an edge type between unknown node types, a negative count, or
            more nodes or types than can be numbered.

    Example:
        >>> types = GraphTypes(("user", "item"), (2, 3), (("user", "buys", "item"), ("item", "rev_buys", "user")))
        >>> types.range_of("item"), types.slots_of("item")
        (range(2, 5), (0,))
    """

    node_types: tuple[str, ...]
    num_nodes: tuple[int, ...]
    edge_types: tuple[EdgeType, ...]

    def __post_init__(self) -> None:
        if max(len(self.node_types), len(self.edge_types)) >= MAX_EDGE_TYPES:
            raise GraphFormatError(
                f"{len(self.node_types)} types of nodes and {len(self.edge_types)} of edges are too many: there may be "
                f"less than {MAX_EDGE_TYPES} of each."
            )
        self.check_names(self.node_types, self.edge_types)
        if len(self.num_nodes) != len(self.node_types) or min(self.num_nodes, default=0) < 0:
            raise GraphFormatError(
                f"num_nodes={self.num_nodes} for the node types {self.node_types}: one count of 0 or more each is "
                "needed."
            )
        if sum(self.num_nodes) >= MAX_NODES:
            raise GraphFormatError(
                f"{sum(self.num_nodes)} nodes are too many: there may be less than {MAX_NODES}. Is an id too large?"
            )
        for edge_type in self.edge_types:
            for end in (edge_type[0], edge_type[2]):
                if end not in self.node_types:
                    raise GraphFormatError(
                        f"the edge type {edge_type} names the node type {end!r}, which is not among {self.node_types}. "
                        f"Give its number of nodes: num_nodes={{{end!r}: ...}}."
                    )

    @staticmethod
    def check_names(node_types: Iterable[Any], edge_types: Iterable[Any]) -> None:
        """Raises GraphFormatError for a node type that is no text, an edge type that is no triple, or one twice."""
        for label, names in (("node type", tuple(node_types)), ("edge type", tuple(edge_types))):
            for name in names:
                triple = (name,) * 3 if label == "node type" else name
                if type(triple) is not tuple or len(triple) != 3 or not _are_texts(triple):
                    raise GraphFormatError(
                        f"{name!r} is no {label}: a text names a node type, ('source type', 'relation', 'target type') "
                        "an edge type."
                    )
            # Joined, as tables are named: ("a", "b__c", "d") and ("a__b", "c", "d") would share theirs.
            joined = list(map("__".join, names)) if label == "edge type" else names
            if len(set(joined)) != len(names):
                twice = next(name for name, text in zip(names, joined, strict=True) if joined.count(text) > 1)
                raise GraphFormatError(f"the {label} {twice!r} is given twice; name each once.")

    @cached_property
    def first_node(self) -> np.ndarray:
        """int64 ``[T + 1]``: the ids of type ``t`` are ``first_node[t]`` to ``first_node[t + 1] - 1``."""
        return np.concatenate([[0], np.cumsum(self.num_nodes, dtype=np.int64)]).astype(np.int64)

    @cached_property
    def slots(self) -> tuple[tuple[int, ...], ...]:
        """For each node type, the numbers of the edge types that lead to it, ascending."""
        slots: dict[str, list[int]] = {name: [] for name in self.node_types}
        for number, (_, _, dst) in enumerate(self.edge_types):
            slots[dst].append(number)
        return tuple(map(tuple, slots.values()))

    @cached_property
    def first_run(self) -> np.ndarray:
        """int64 ``[T + 1]``: the run of slot ``s`` of node ``v`` of type ``t`` is number
        ``first_run[t] + (v - first_node[t]) * len(slots[t]) + s``."""
        runs = [count * len(slots) for count, slots in zip(self.num_nodes, self.slots, strict=True)]
        return np.concatenate([[0], np.cumsum(runs, dtype=np.int64)]).astype(np.int64)

    def slots_of(self, node_type: str) -> tuple[int, ...]:
        """Returns the numbers of the edge types that lead to this node type."""
        return self.slots[self.node_type_number(node_type)]

    @cached_property
    def endpoint_types(self) -> tuple[np.ndarray, np.ndarray]:
        """The numbers of the source and target node type of each edge type, int32 ``[K]`` each."""
        numbers = {name: number for number, name in enumerate(self.node_types)}
        src, dst = ([numbers[edge_type[end]] for edge_type in self.edge_types] for end in (0, 2))
        return np.array(src, np.int32), np.array(dst, np.int32)

    def range_of(self, node_type: str) -> range:
        t = self.node_type_number(node_type)
        return range(int(self.first_node[t]), int(self.first_node[t + 1]))

    def nodes_of_runs(self, runs: np.ndarray) -> np.ndarray:
        """Returns the node of each of these runs, int64 ``[B]``.

        Example:
            >>> types = GraphTypes(("user", "item"), (2, 3), (("user", "buys", "item"), ("user", "sells", "item")))
            >>> types.nodes_of_runs(np.array([0, 3, 4])).tolist()
            [2, 3, 4]
        """
        # A type without slots has no runs, so that "right" skips it.
        widths = np.array([len(slots) for slots in self.slots], np.int64)
        end = np.searchsorted(self.first_run, runs, side="right") - 1
        return self.first_node[end] + (runs - self.first_run[end]) // widths[end]

    def node_type_number(self, name: str) -> int:
        """Raises SamplerConfigError: there is no such type."""
        if not isinstance(name, str) or name not in self.node_types:
            raise SamplerConfigError(
                f"{name!r:.200} is no node type of the graph; these are {', '.join(self.node_types)}."
            )
        return self.node_types.index(name)

    def edge_type_number(self, name: Any) -> int:
        """Finds an edge type by its number, triple, ``"src__relation__dst"`` or, if that is unique, its relation."""
        if type(name) is int and 0 <= name < len(self.edge_types):
            return name
        matches: list[int] = []
        if isinstance(name, Sequence) and _are_texts(name):
            key = name if isinstance(name, str) else tuple(name)
            matches = [k for k, t in enumerate(self.edge_types) if key in (t, "__".join(t), t[1])]
        if len(matches) != 1:
            count = "several edge types" if matches else "no edge type"
            names = ", ".join(map("__".join, self.edge_types))
            raise SamplerConfigError(f"{name!r:.200} names {count} of the graph; these are {names}.")
        return matches[0]

    def runs_of(self, edge_type: int) -> slice:
        """Returns the runs by edges of this type, one for each node of the type that it ends in, in their order.

        Example:
            >>> types = GraphTypes(("user", "item"), (2, 3), (("user", "buys", "item"), ("user", "sells", "item")))
            >>> list(range(6))[types.runs_of(1)]
            [1, 3, 5]
        """
        target = self.endpoint_types[1][edge_type]
        slots, (first, last) = self.slots[target], self.first_run[target : target + 2].tolist()
        return slice(first + slots.index(edge_type), last, len(slots))

    def number_of(self, nodes: np.ndarray) -> np.ndarray:
        """Returns the number of each node's type, int64 ``[B]``, for ids in the graph."""
        return np.searchsorted(self.first_node, nodes, side="right") - 1

    def type_of_runs(self, runs: np.ndarray) -> np.ndarray:
        """Returns the number of the edge type of each of these runs, int32 ``[B]``."""
        widths = np.array([len(slots) for slots in self.slots], np.int64)
        slot_type = np.array([edge_type for slots in self.slots for edge_type in slots], np.int32)
        end = np.searchsorted(self.first_run, runs, side="right") - 1
        slot = (runs - self.first_run[end]) % widths[end]
        return slot_type[(np.cumsum(widths) - widths)[end] + slot]

    def to_json(self) -> dict[str, Any]:
        return {
            "node_types": list(self.node_types),
            "num_nodes": list(self.num_nodes),
            "edge_types": [list(edge_type) for edge_type in self.edge_types],
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> GraphTypes:
        """Reads what :meth:`to_json` wrote. Raises GraphFormatError: it is something else."""
        try:
            edge_types = tuple(tuple(edge_type) for edge_type in values["edge_types"])
            return cls(tuple(values["node_types"]), tuple(map(operator.index, values["num_nodes"])), edge_types)
        except (KeyError, TypeError, ValueError) as error:
            raise GraphFormatError(f"{values!r:.200} describes no types of nodes and edges: {error}.") from error

    def __repr__(self) -> str:
        nodes = ", ".join(
            f"{name}: {stop - start}"
            for name, (start, stop) in zip(self.node_types, pairwise(map(int, self.first_node)), strict=True)
        )
        return f"GraphTypes({{{nodes}}}, {['__'.join(edge_type) for edge_type in self.edge_types]})"


def _are_texts(parts: Iterable[Any]) -> bool:
    return all(isinstance(part, str) for part in parts)


def by_edge_type(name: str, values: Mapping[Any, Any], number_of: Callable[[Any], int]) -> dict[int, Any]:
    """Returns ``values``, which are given by edge type, by its number, as ``number_of`` an edge type is.

    Raises:
        SamplerConfigError: a type that is given under two names.
    """
    by_number: dict[int, Any] = {}
    names: dict[int, Any] = {}
    for edge_type, value in values.items():
        number = number_of(edge_type)
        if number in names:
            raise SamplerConfigError(
                f"{name}: {names[number]!r} and {edge_type!r} are one edge type. Give it once, under one of its names."
            )
        names[number], by_number[number] = edge_type, value
    return by_number
