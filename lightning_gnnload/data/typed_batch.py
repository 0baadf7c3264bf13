"""TypedMiniBatch: a mini-batch of a graph with types, cut by node type and edge type."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch

from lightning_gnnload.data.block import Block, MiniBatch, NotOfALibrary, check_layers
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.seedform import NODE_SEEDS, SeedForm
from lightning_gnnload.data.typed_parts import ColumnOf, TypedParts
from lightning_gnnload.data.types import EdgeType


@dataclass(eq=False)
class TypedMiniBatch(NotOfALibrary):
    """Holds a mini-batch by type: nodes of each type, and for each hop one block an edge type.

    It is the :class:`MiniBatch` of the same draws, stably partitioned: nodes of a type keep their order, and so do
    edges. All types of the graph are there, with empty tensors where nothing was drawn.

    Attributes:
        nodes: int64 ``[V_t]`` by node type: ids within the type, in order of first occurrence, seeds first.
        num_seeds: how many of each type's nodes are seeds.
        blocks: L dicts, outermost hop first, of a :class:`Block` by edge type. Its sources are nodes of the type that
            the edges come from, ``nodes[src][:num_src]``; its destinations ``nodes[dst][:num_dst]``. Local ids count
            within these, and where both types are one, destinations are a prefix of the sources.
        num_src: L dicts: how many of each type's nodes are sources of the hop.
        num_dst: L dicts: how many are its destinations.
        x: features of ``nodes`` by node type, ``[V_t, F_t]``; types without features are left out.
        y: labels of the seeds by node type, ``[S_t]`` or ``[S_t, C]``, of those types that have seeds.
        epoch: the epoch of the draw key.
        step: the step of the draw key.
        tables: further features, by node type and name: ``[V_t, ...]``.
        rows: by node type, the row of the mini-batch that each of ``nodes`` belongs to, int32 ``[V_t]``, where every
            row has nodes of its own (``sharing="disjoint"``); with ``"time"``, the number of its time among the
            mini-batch's, ascending; empty where all share nodes.
        seed_columns: as of a :class:`MiniBatch`. Places in ``"src"``, ``"dst"`` and ``"negatives"`` count within the
            node type of that end; labels of links are ``"y"``, as they belong to no node.
        seed_form: the kind of the seeds.

    Example:
        >>> graph = Graph.from_hetero({"user": 2, "item": 3}, {("user", "buys", "item"): ([0, 1, 1], [2, 2, 0])})
        >>> hop = Block(torch.tensor([0, 2]).int(), torch.tensor([1, 2]).int(), 1, 3, edge_type=torch.zeros(2).int())
        >>> batch = TypedMiniBatch.of(MiniBatch(torch.tensor([4, 1, 0]), 1, [hop]), graph)
        >>> batch.nodes["user"].tolist(), batch.nodes["item"].tolist()
        ([1, 0], [2])
        >>> batch.blocks[0]["user", "buys", "item"]
        Block(num_dst=1, num_src=2, num_edges=2)
    """

    nodes: dict[str, torch.Tensor]
    num_seeds: dict[str, int]
    blocks: list[dict[EdgeType, Block]]
    num_src: list[dict[str, int]]
    num_dst: list[dict[str, int]]
    x: dict[str, torch.Tensor] = field(default_factory=dict)
    y: dict[str, torch.Tensor] = field(default_factory=dict)
    epoch: int = 0
    step: int = 0
    tables: dict[str, dict[str, torch.Tensor]] = field(default_factory=dict)
    rows: dict[str, torch.Tensor] = field(default_factory=dict)
    seed_columns: dict[str, torch.Tensor] = field(default_factory=dict)
    seed_form: SeedForm = NODE_SEEDS

    @classmethod
    def of(cls, batch: MiniBatch, graph: Graph, columns: ColumnOf | None = None) -> TypedMiniBatch:
        """Cuts a mini-batch by type, in time linear in its size; tables of one type are views of it.

        A batch on a device is cut by the host, which waits for its structure.

        Args:
            batch: of ``graph``; its blocks have ``edge_type`` or ``edge_ids``.
            graph: has ``types``.
            columns: of those tables of the batch, of nodes and ``edge.<name>`` of edges, that have rows of one type.

        Raises:
            SamplerConfigError: nothing says of which type an edge is.
            GraphFormatError: a node of no type, or an edge between nodes of other types than its own.
        """
        parts = TypedParts(batch, graph, columns or {})
        x, tables = parts.node_tables()
        return cls(
            parts.nodes(),
            parts.counts(batch.num_seeds),
            parts.blocks(),
            [parts.counts(block.num_src) for block in batch.blocks],
            [parts.counts(block.num_dst) for block in batch.blocks],
            x,
            parts.labels(),
            batch.epoch,
            batch.step,
            tables,
            parts.rows(),
            parts.seed_columns(),
            batch.seed_form,
        )

    @property
    def seeds(self) -> dict[str, torch.Tensor]:
        """int64, ids within the type, of those node types that have seeds."""
        return {name: self.nodes[name][:count] for name, count in self.num_seeds.items() if count}

    @property
    def links(self) -> dict[EdgeType, dict[str, torch.Tensor]]:
        """The columns of seeds that are links, by their edge type, as :attr:`seed_columns` has them."""
        return {link.edge_type: dict(part) for link, part in self.seed_form.by_type(self.seed_columns)}  # type: ignore[misc]

    @property
    def device(self) -> torch.device:
        return next(iter(self.nodes.values())).device

    def expect_layers(self, num_layers: int) -> None:
        """Checks that there are as many hops as a model consumes.

        Raises:
            SamplerConfigError: the sampler drew another number of hops.
        """
        check_layers(len(self.blocks), num_layers)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> TypedMiniBatch:
        """Returns this mini-batch on ``device``: itself, where it lies there."""
        if self.device == torch.device(device):
            return self
        return self._map(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def record_stream(self, stream: Any) -> None:
        """Tells the allocator that ``stream`` uses the tensors, as :meth:`.MiniBatch.record_stream` does."""
        self._map(lambda tensor: tensor.record_stream(stream) or tensor)  # type: ignore[func-returns-value]

    def clone(self) -> TypedMiniBatch:
        """Returns a copy in memory of its own, so that the recycled buffer can go back to its pool."""
        return self._map(torch.Tensor.clone)

    def _map(self, function: Callable[[torch.Tensor], torch.Tensor]) -> TypedMiniBatch:
        return replace(self, **{field.name: _mapped(getattr(self, field.name), function) for field in fields(self)})

    def __repr__(self) -> str:
        nodes = {name: len(ids) for name, ids in self.nodes.items()}
        edges = [sum(block.num_edges for block in hop.values()) for hop in self.blocks]
        seeds = {name: count for name, count in self.num_seeds.items() if count}
        return f"TypedMiniBatch(num_seeds={seeds}, num_nodes={nodes}, num_edges={edges})"


def _mapped(value: Any, function: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Applies ``function`` to all tensors of nested lists, dicts and blocks."""
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, dict):
        return {name: _mapped(part, function) for name, part in value.items()}
    if isinstance(value, list):
        return [_mapped(part, function) for part in value]
    if isinstance(value, Block):
        return replace(value, **{part.name: _mapped(getattr(value, part.name), function) for part in fields(value)})
    return value
