"""Passes over all nodes: one a stage, block by block, with rows on disk between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from lightning_gnnload.inference.calls import Rows
from lightning_gnnload.inference.neighborhoods import InLists, spread_nodes
from lightning_gnnload.inference.rows import StoredRows
from lightning_gnnload.inference.stages import Key, StageReads, Stages, find_reads

Plan = Mapping[tuple[Key, str], StageReads]
"""What each stage reads for nodes of each type."""
_TRIED = 5  # nodes, to find what a stage reads


@dataclass(frozen=True)
class Bounds:
    """How large blocks are: at most ``max_edges``, or one destination, and ``max_nodes`` destinations.

    Files may be expected to keep ``memory_bytes`` in memory; ``half`` stores floats as float16.
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
    totals = np.cumsum(indptr[nodes + 1] - indptr[nodes])
    begin = 0
    while begin < len(nodes):
        before = int(totals[begin - 1]) if begin else 0
        end = int(np.searchsorted(totals, before + max_edges, side="right"))
        end = min(max(end, begin + 1), begin + max_nodes, len(nodes))
        yield slice(begin, end)
        begin = end


@dataclass
class Passes:
    """Runs a model's stages over nodes, by the plan of what each reads.

    ``stored`` has the rows that later stages read, in files in ``folder``.
    """

    stages: Stages
    lists: InLists
    plan: Plan
    folder: Path
    bounds: Bounds
    stored: dict[tuple[Key, str], StoredRows] = field(default_factory=dict)

    def over(self, nodes: Callable[[Key, str], np.ndarray], advance: Callable[[int], None]) -> dict[str, StoredRows]:
        """Returns the model's output by node type, a row for each of the requested nodes, in their order.

        ``nodes`` gives the ids within the type, int64, that a stage computes; those of the last stage are the output's.
        ``advance`` takes the number of nodes and edges of each block that is done.
        """
        last_read = self._last_read()
        for index, key in enumerate(self.stages.keys):
            for node_type in sorted({name for stage, name in self.plan if stage == key}):
                self._pass(key, node_type, nodes(key, node_type), advance)
            # Rows that no later stage reads give the disk's room back.
            for name in [name for name in self.stored if last_read.get(name, -1) <= index and name[0] != key]:
                self.stored.pop(name).remove()
        return {name: rows for (key, name), rows in self.stored.items() if key == self.stages.output}

    def _pass(self, key: Key, node_type: str, ids: np.ndarray, advance: Callable[[int], None]) -> None:
        first, is_output = self.first_of(node_type), key == self.stages.output
        indptr, reads = self.lists.data.graph.indptr[first:], self.plan[key, node_type]
        if not len(ids) and not is_output:
            self._open(key, node_type, self.stages.gives(key)[node_type], 0)
            return
        if is_output:  # the last stage reads no edges, so that nodes alone bound its blocks
            indptr = np.zeros(self.num_nodes(node_type) + 1, np.int64)
        slices = parts(indptr, ids, self.bounds.max_edges, self.bounds.max_nodes)
        # An output without rows is computed as well: it says of which shape they are.
        for part in slices if len(ids) else [slice(0, 0)]:
            nodes = ids[part] + first
            hop = self.lists.without_edges(nodes) if is_output else self.lists.hop(nodes, reads.edge_types)
            rows = self.stages.at(key, hop, node_type, reads, self.stored)
            if (key, node_type) not in self.stored:
                count = len(ids) if is_output else self.num_nodes(node_type)
                self._open(key, node_type, Rows(tuple(rows.shape[1:]), rows.dtype), count)
            self.stored[key, node_type].write(np.arange(part.start, part.stop) if is_output else ids[part], rows)
            advance(len(nodes) + hop.blocks[0].num_edges)

    def _open(self, key: Key, node_type: str, rows: Rows, count: int) -> None:
        number = 0 if self.stages.types is None else self.stages.types.node_type_number(node_type)
        name = f"{key.call}{'.degrees' * key.degrees}.{number}.npy"
        # Degrees may exceed float16, and the output is the user's.
        half = self.bounds.half and not key.degrees and key != self.stages.output
        self.stored[key, node_type] = StoredRows(
            self.folder / name, count, *rows, half=half, memory_bytes=self.bounds.memory_bytes
        )

    def _last_read(self) -> dict[tuple[Key, str], int]:
        """Returns the last stage, by its position, that reads the rows of each."""
        position = {key: index for index, key in enumerate(self.stages.keys)}
        last = dict[tuple[Key, str], int]()
        for (key, node_type), reads in self.plan.items():
            sources = {(Key(number), name) for number in reads.stored for name in self.stages.calls[number].gives}
            if key.call in self.stages.degrees_of:
                sources.add((Key(self.stages.degrees_of[key.call], degrees=True), node_type))
            for source in sources:
                last[source] = max(last.get(source, -1), position[key])
        for node_type in {name for key, name in self.plan if key == self.stages.output}:
            last[self.stages.output, node_type] = len(position)
        return last

    def plan_for(self, node_type: str) -> Plan:
        """Returns the plan without outputs for other node types."""
        output = self.stages.output
        return {(key, name): reads for (key, name), reads in self.plan.items() if key != output or name == node_type}

    def num_nodes(self, node_type: str) -> int:
        types = self.stages.types
        return self.lists.data.num_nodes if types is None else len(types.range_of(node_type))

    def num_edges(self, key: Key, node_type: str) -> int:
        """Counts the edges that a stage passes for nodes of a type."""
        first, indptr = self.first_of(node_type), self.lists.data.graph.indptr
        return 0 if key == self.stages.output else int(indptr[first + self.num_nodes(node_type)] - indptr[first])

    def first_of(self, node_type: str) -> int:
        return 0 if self.stages.types is None else self.stages.types.range_of(node_type).start


def find_plan(stages: Stages, lists: InLists, output_types: list[str]) -> dict[tuple[Key, str], StageReads]:
    """Finds what every stage reads, for nodes of every type that it gives rows for."""
    plan = {}
    for key in stages.keys:
        for node_type in output_types if key == stages.output else stages.gives(key):
            nodes = _few(lists, stages, node_type)

            def hop(edge_types: tuple[int, ...] | None, nodes: np.ndarray = nodes, key: Key = key) -> object:
                return lists.without_edges(nodes) if key == stages.output else lists.hop(nodes, edge_types)

            plan[key, node_type] = find_reads(stages, key, node_type, hop) if len(nodes) else StageReads()  # type: ignore[arg-type]
    return plan


def _few(lists: InLists, stages: Stages, node_type: str) -> np.ndarray:
    """Returns a few nodes of a type, with few edges, but two at least, if there are such, and each type of edges."""
    graph, types = lists.data.graph, stages.types
    nodes, degrees = spread_nodes(graph, range(graph.num_nodes) if types is None else types.range_of(node_type))
    ordered = nodes[np.argsort(degrees, kind="stable")]
    with_edges = ordered[np.sort(degrees) > 1]
    few = with_edges[:_TRIED] if len(with_edges) else ordered[-_TRIED:]
    if types is None:
        return few
    # Else, what is read by rare edges alone would count as not read.
    assert graph.run_ptr is not None
    number = types.node_type_number(node_type)
    num_slots = len(types.slots[number])
    runs = types.first_run[number] + (ordered - types.first_node[number])[:, None] * num_slots + np.arange(num_slots)
    has_type = graph.run_ptr[runs + 1] > graph.run_ptr[runs]
    rare = [ordered[int(column.argmax())] for column in has_type.T if column.any()]
    return np.unique(np.concatenate([few, np.array(rare, few.dtype)]))


def reach_of(stages: Stages, plan: Plan) -> int:
    """Returns over how many hops of in-neighbours the model's output for a node reaches."""
    depth: dict[int, int] = {}
    for call in stages.calls:
        read = {number for (key, _), reads in plan.items() if key.call == call.number for number in reads.stored}
        depth[call.number] = 1 + max((depth[number] for number in read), default=0)
    beyond = 1 if stages.degrees_of else 0  # sources at the end of the last hop count their own edges
    return max(depth.values(), default=0) + beyond


def widest(stages: Stages, plan: Plan) -> int:
    """Returns the bytes of the widest rows that stages read or give, for each node."""
    shapes = [rows for call in stages.calls for rows in call.gives.values()]
    tables = [store.row_bytes for store in stages.batches.columns.data.stores.values()]
    return max([torch.Size(shape.row_shape).numel() * shape.dtype.itemsize for shape in shapes] + tables)
