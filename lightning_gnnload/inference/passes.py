"""Passes over all nodes: one a stage, block by block, with rows on disk between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from lightning_gnnload.inference.calls import Rows
from lightning_gnnload.inference.neighborhoods import InLists
from lightning_gnnload.inference.rows import StoredRows
from lightning_gnnload.inference.stages import Key, Reads, Stages, find_reads

Plan = Mapping[tuple[Key, str], Reads]
"""What each stage reads for nodes of each type."""
_TRIED = 5  # nodes, to find what a stage reads
_CANDIDATES = 1000


@dataclass(frozen=True)
class Bounds:
    """How large blocks are.

    Attributes:
        max_edges: of a block; a node with more stands alone.
        max_nodes: destinations of a block.
        memory_bytes: what files may be expected to keep in memory.
        half: store floats as float16.
    """

    max_edges: int
    max_nodes: int
    memory_bytes: int
    half: bool


def parts(indptr: np.ndarray, nodes: np.ndarray, max_edges: int, max_nodes: int) -> Iterator[slice]:
    """Cuts nodes into runs with at most so many in-edges; a node that has more stands alone.

    Example:
        >>> list(parts(np.array([0, 2, 4, 9, 10]), np.arange(4), max_edges=4, max_nodes=10))
        [slice(0, 2, None), slice(2, 3, None), slice(3, 4, None)]
    """
    ends = np.cumsum(indptr[nodes + 1] - indptr[nodes])
    begin = 0
    while begin < len(nodes):
        before = int(ends[begin - 1]) if begin else 0
        end = int(np.searchsorted(ends, before + max_edges, side="right"))
        end = min(max(end, begin + 1), begin + max_nodes, len(nodes))
        yield slice(begin, end)
        begin = end


@dataclass
class Passes:
    """Runs a model's stages over nodes.

    Attributes:
        stages: of the model.
        lists: the in-neighbours.
        plan: what stages read.
        folder: where rows lie.
        bounds: how large blocks are.
        stored: the rows that later stages read.
    """

    stages: Stages
    lists: InLists
    plan: Plan
    folder: Path
    bounds: Bounds
    stored: dict[tuple[Key, str], StoredRows] = field(default_factory=dict)

    def over(self, nodes: Callable[[Key, str], np.ndarray], done: Callable[[int], None]) -> dict[str, StoredRows]:
        """Returns the model's output by node type, a row for each of the nodes that were asked for, in their order.

        Args:
            nodes: of a stage and a node type, ids within the type, int64; those of the last stage are the output's.
            done: is told the number of nodes and edges whenever a block is done.
        """
        last_read = self._last_read()
        for index, key in enumerate(self.stages.keys):
            for node_type in sorted({name for each, name in self.plan if each == key}):
                ids = nodes(key, node_type)
                self._pass(key, node_type, ids, done)
            for name in [name for name in self.stored if last_read.get(name, -1) <= index and name[0] != key]:
                self.stored.pop(name).remove()
        return {name: rows for (key, name), rows in self.stored.items() if key == self.stages.output}

    def _pass(self, key: Key, node_type: str, ids: np.ndarray, done: Callable[[int], None]) -> None:
        first, of_output = self.first_of(node_type), key == self.stages.output
        indptr, reads = self.lists.data.graph.indptr, self.plan[key, node_type]
        whole = indptr[first : first + self.num_nodes(node_type) + 1]
        edges = np.zeros(len(whole), np.int64) if of_output else whole
        if not len(ids) and not of_output:
            self._open(key, node_type, self.stages.gives(key)[node_type], 0)
        for part in parts(edges, ids, self.bounds.max_edges, self.bounds.max_nodes) if len(ids) else [slice(0, 0)]:
            of_part = ids[part] + first
            if not len(ids) and not of_output:
                break
            hop = self.lists.without_edges(of_part) if of_output else self.lists.hop(of_part, reads.kinds)
            rows = self.stages.at(key, hop, node_type, reads, self.stored)
            if (key, node_type) not in self.stored:
                count = len(ids) if of_output else self.num_nodes(node_type)
                self._open(key, node_type, Rows(tuple(rows.shape[1:]), rows.dtype), count)
            self.stored[key, node_type].write(np.arange(part.start, part.stop) if of_output else ids[part], rows)
            done(len(of_part) + hop.blocks[0].num_edges)

    def _open(self, key: Key, node_type: str, rows: Rows, count: int) -> None:
        of_type = 0 if self.stages.types is None else self.stages.types.node_type_number(node_type)
        name = f"{key.call}{'.degrees' * key.degrees}.{of_type}.npy"
        half = self.bounds.half and not key.degrees and key != self.stages.output
        self.stored[key, node_type] = StoredRows(
            self.folder / name, count, *rows, half=half, memory_bytes=self.bounds.memory_bytes
        )

    def _last_read(self) -> dict[tuple[Key, str], int]:
        """Returns the last stage, by its place, that reads the rows of each."""
        places, found = {key: index for index, key in enumerate(self.stages.keys)}, dict[tuple[Key, str], int]()
        for (key, node_type), reads in self.plan.items():
            wanted = {(Key(number), name) for number in reads.stored for name in self.stages.calls[number].gives}
            if key.call in self.stages.degrees_of:
                wanted.add((Key(self.stages.degrees_of[key.call], degrees=True), node_type))
            for each in wanted:
                found[each] = max(found.get(each, -1), places[key])
        for node_type in {name for key, name in self.plan if key == self.stages.output}:
            found[self.stages.output, node_type] = len(places)
        return found

    def of_output(self, node_type: str) -> Plan:
        """Returns the plan without outputs for other node types."""
        return {at: reads for at, reads in self.plan.items() if at[0] != self.stages.output or at[1] == node_type}

    def num_nodes(self, node_type: str) -> int:
        types = self.stages.types
        return self.lists.data.num_nodes if types is None else len(types.range_of(node_type))

    def num_edges(self, key: Key, node_type: str) -> int:
        """Counts the edges that a stage passes for nodes of a type."""
        first, indptr = self.first_of(node_type), self.lists.data.graph.indptr
        return 0 if key == self.stages.output else int(indptr[first + self.num_nodes(node_type)] - indptr[first])

    def first_of(self, node_type: str) -> int:
        return 0 if self.stages.types is None else self.stages.types.range_of(node_type).start


def find_plan(stages: Stages, lists: InLists, output_types: list[str]) -> dict[tuple[Key, str], Reads]:
    """Finds what every stage reads, for nodes of every type that it gives rows for."""
    plan = {}
    for key in stages.keys:
        for node_type in output_types if key == stages.output else stages.gives(key):
            nodes = _few(lists, stages, node_type)

            def hop(kinds: tuple[int, ...] | None, nodes: np.ndarray = nodes, key: Key = key) -> object:
                return lists.without_edges(nodes) if key == stages.output else lists.hop(nodes, kinds)

            plan[key, node_type] = find_reads(stages, key, node_type, hop) if len(nodes) else Reads()  # type: ignore[arg-type]
    return plan


def _few(lists: InLists, stages: Stages, node_type: str) -> np.ndarray:
    """Returns a few nodes of a type, with few edges, but some."""
    graph, types = lists.data.graph, stages.types
    nodes = range(graph.num_nodes) if types is None else types.range_of(node_type)
    tried = np.unique(np.linspace(nodes.start, max(nodes.stop - 1, nodes.start), _CANDIDATES).astype(np.int64))[
        : len(nodes)
    ]
    degrees = graph.indptr[tried + 1] - graph.indptr[tried] if len(tried) else tried
    ordered = tried[np.argsort(degrees, kind="stable")]
    with_edges = ordered[np.sort(degrees) > 1]
    return with_edges[:_TRIED] if len(with_edges) else ordered[-_TRIED:]


def reach_of(stages: Stages, plan: Plan) -> int:
    """Returns how many hops of in-neighbours the model's output for a node goes back to."""
    depth: dict[int, int] = {}
    for call in stages.calls:
        read = {number for (key, _), reads in plan.items() if key.call == call.number for number in reads.stored}
        depth[call.number] = 1 + max((depth[number] for number in read), default=0)
    beyond = 1 if stages.degrees_of else 0  # sources at the end of the last hop count their own edges
    return max(depth.values()) + beyond


def widest(stages: Stages, plan: Plan) -> int:
    """Returns the bytes of the widest rows that stages read or give, for each node."""
    given = [rows for call in stages.calls for rows in call.gives.values()]
    stores = stages.batches.columns.data.stores.values()
    return max(
        [torch.Size(each.row_shape).numel() * each.dtype.itemsize for each in given] + [s.row_bytes for s in stores]
    )
