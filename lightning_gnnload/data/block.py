"""Block and MiniBatch: what a sampler makes and a model consumes.

Neither is frozen, since Lightning refuses to convert frozen dataclasses to the precision of the model.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch

from lightning_gnnload.data.seedform import NODE_SEEDS, SeedForm
from lightning_gnnload.data.slab import Header
from lightning_gnnload.errors import SamplerConfigError
from lightning_gnnload.ops import SampleLayout


@dataclass(eq=False)
class Block:
    """Holds one bipartite layer of a mini-batch (message-flow graph) in compressed sparse columns.

    Destination ``d`` receives from sources ``indices[indptr[d]:indptr[d + 1]]``. Destinations are a prefix of the
    sources: destination ``d`` and source ``d`` are the same node.

    Attributes:
        indptr: int32 ``[num_dst + 1]``.
        indices: int32 ``[num_edges]``, local ids in ``[0, num_src)``.
        num_dst: number of destination nodes.
        num_src: number of source nodes.
        edge_ids: int64 ``[num_edges]``, positions in ``Graph.indices``; None unless the sampler was asked for them.
        edge_weight: float32 ``[num_edges]``, what the sampler says each edge counts; None where all count alike.
        edge_type: int32 ``[num_edges]``; None unless the sampler draws by type.
        x: features of the edges, ``[num_edges, F]``; None where the graph has none.
        tables: further features of the edges by name, ``[num_edges, F]`` or ``[num_edges]``; from an
            :class:`EdgeTable`, a row for each of the M edges of its type, ``[M, F]`` or ``[M]``.
        positions: for each of the latter, by name: where these edges stand in ``indices``, int64 ``[M]``, ascending.

    Example:
        >>> from lightning_gnnload import Graph, NeighborSampler
        >>> [block] = NeighborSampler([-1]).sample(Graph.from_coo([1, 2], [0, 0]), [0]).blocks
        >>> block.indptr.tolist(), block.indices.tolist(), block.num_dst, block.num_src
        ([0, 2], [1, 2], 1, 3)
    """

    indptr: torch.Tensor
    indices: torch.Tensor
    num_dst: int
    num_src: int
    edge_ids: torch.Tensor | None = None
    edge_weight: torch.Tensor | None = None
    edge_type: torch.Tensor | None = None
    x: torch.Tensor | None = None
    tables: dict[str, torch.Tensor] = field(default_factory=dict)
    positions: dict[str, torch.Tensor] = field(default_factory=dict)

    @property
    def num_edges(self) -> int:
        return self.indices.numel()

    @property
    def in_degrees(self) -> torch.Tensor:
        """int32 ``[num_dst]``."""
        return self.indptr.diff()

    def edge_dst(self) -> torch.Tensor:
        """Returns the destination of each edge, which CSC leaves implicit: int64 ``[num_edges]``."""
        # With output_size, repeat_interleave need not wait for the device to learn the number of edges.
        return torch.repeat_interleave(self.in_degrees.long(), output_size=self.num_edges)

    def normalized_edge_weight(self) -> torch.Tensor:
        """Returns each edge's weight as a share of its destination's sum, for a weighted mean: floats ``[num_edges]``.

        The dtype is that of ``edge_weight``, or torch's default, which Lightning sets to the model's precision. All
        edges count alike where there is no ``edge_weight``. Where a destination's weights sum to zero, its shares are
        zeros.
        """
        if self.edge_weight is None:
            return self.normalized(torch.ones_like(self.indices, dtype=torch.get_default_dtype()))
        return self.normalized(self.edge_weight)

    def normalized(self, weight: torch.Tensor) -> torch.Tensor:
        """Returns floats of the edges, ``[num_edges]``, as shares of their destination's sum, likewise."""
        # Sums of 16 bits stop growing at some hundred edges.
        wide = weight.float() if weight.element_size() < 4 else weight
        dst = self.edge_dst()
        total = wide.new_zeros(self.num_dst).index_add_(0, dst, wide)
        # By infinity, not by the smallest number, which would turn weights of -1 and 1 into infinite shares.
        return (wide / total.masked_fill(total == 0, torch.inf)[dst]).to(weight.dtype)

    def __repr__(self) -> str:
        return f"Block(num_dst={self.num_dst}, num_src={self.num_src}, num_edges={self.num_edges})"


class NotOfALibrary:
    """Tells a model that expects another library's mini-batches how to get them."""

    if not TYPE_CHECKING:  # which looks at attributes by itself

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):  # asked for by pickle and copy
                raise AttributeError(name)
            formats = import_module("lightning_gnnload.adapters.formats").FORMATS  # which are above this file
            library = next((library for library, form in formats.items() if name in form.words), None)
            advice = f" GraphDataModule(batch_format={library!r}) gives batches that do." if library else ""
            names = ", ".join(field.name for field in fields(self))
            raise AttributeError(f"a {type(self).__name__} has no {name!r}; it has {names}.{advice}")

        def __getitem__(self, _: Any) -> Any:  # unpacking asks for it, where there is no __iter__
            raise TypeError(
                f"a {type(self).__name__} is no tuple and no dict: it has batch.x, batch.y, batch.blocks and more. "
                f"GraphDataModule(batch_format='dgl') gives (input_nodes, output_nodes, blocks), and 'pyg' a Data."
            )


@dataclass(eq=False)
class MiniBatch(NotOfALibrary):
    """Holds a mini-batch: its seeds, the nodes that their sampled neighbourhood needs, and one block a layer.

    Attributes:
        nodes: int64 ``[V]``, input node ids in order of first occurrence; ``nodes[:num_seeds]`` are the seeds.
        num_seeds: S.
        blocks: L blocks, outermost hop first, as a model consumes them; the last one's destinations are the seeds.
        x: features of ``nodes``, ``[V, F]``, or None.
        y: labels of the seeds, ``[S]`` or ``[S, C]``, or None; of a :class:`SeedTable` with labels, those of its rows.
        epoch: the epoch of the draw key.
        step: the step of the draw key.
        tables: further features by name: ``[V, F]`` or ``[V]``, a row for each of ``nodes``; from a
            :class:`NodeTable`, ``[M, F]`` or ``[M]``, a row for each of the M nodes of its type.
        positions: for each of the latter, by name: where these nodes stand in ``nodes``, int64 ``[M]``, ascending,
            so that ``h[batch.positions[name]] = project[name](batch.tables[name])``.
        rows: the row of each of ``nodes`` in the mini-batch's seeds, int32 ``[V]``, where every seed has nodes of its
            own (``sharing="disjoint"``), or of the time that they share; None where nodes are shared by all.
        seed_columns: what belongs to each of the R rows of a :class:`SeedTable`, ``[R, ...]`` by name: ``"input_id"``,
            the row's number, int64; ``"time"``, ``"weight"`` and further columns, as the table has them; of links
            ``"src"`` and ``"dst"``, the places of the ends among the seeds, int64, and, with :class:`Negatives`,
            ``"negatives"`` and ``"negative_mask"`` ``[R, M]``: places of the negatives, and which are there. Those of
            mode ``"binary"`` follow the rows in ``"src"`` and ``"dst"``, ``[P]``, with ``"label"`` 1 for edges and 0
            for them, float32, and ``"row"``, the place in the mini-batch of the row that each is of. Row ``i`` of nodes
            is seed ``i``.
        seed_form: the kind of the seeds.

    All tensors lie on one device. On the CPU they may be views of one recycled buffer, which goes back to its
    pool when the last of them is gone; whoever keeps a tensor keeps the whole buffer, and may :meth:`clone`.

    Example:
        >>> from lightning_gnnload import Graph, NeighborSampler
        >>> batch = NeighborSampler([-1, -1]).sample(Graph.from_coo([1, 2, 3], [0, 0, 1]), [0])
        >>> batch.nodes.tolist(), [block.num_edges for block in batch.blocks]
        ([0, 1, 2, 3], [3, 2])
    """

    nodes: torch.Tensor
    num_seeds: int
    blocks: list[Block] = field(default_factory=list)
    x: torch.Tensor | None = None
    y: torch.Tensor | None = None
    epoch: int = 0
    step: int = 0
    tables: dict[str, torch.Tensor] = field(default_factory=dict)
    positions: dict[str, torch.Tensor] = field(default_factory=dict)
    rows: torch.Tensor | None = None
    seed_columns: dict[str, torch.Tensor] = field(default_factory=dict)
    seed_form: SeedForm = NODE_SEEDS

    @classmethod
    def of(cls, header: Header, memory: Any) -> MiniBatch:
        """Returns the mini-batch that lies in ``memory``, without a copy; its tensors keep the memory alive.

        Args:
            header: says what lies there, and where.
            memory: a buffer of the host, or a uint8 tensor ``[bytes]`` on any device.

        Raises:
            ValueError: parts of it lie beyond the end of ``memory``.
        """
        schema, lengths, batch = header.schema, header.lengths, dict[str, Any]()
        hops: list[dict[str, Any]] = [
            {"num_dst": lengths[num_ptr] - 1, "num_src": lengths[num_src]} for num_ptr, num_src in schema.hops
        ]
        spans = {axis: header.spans(axis.part) for axis in schema.over_hops}
        columns = zip(schema.columns, schema.names, header.views(memory), strict=True)
        for (axis, field_name, *_), names, rows in columns:
            if axis not in spans:
                where, parts = [batch if axis.hop < 0 else hops[axis.hop]], [rows]
            else:
                where, parts = hops, [*map(rows.__getitem__, spans[axis])]
            for values, part in zip(where, parts, strict=True):
                if names:
                    values.setdefault(field_name, {}).update(dict.fromkeys(names, part))
                else:
                    values[field_name] = part
        batch |= {"num_seeds": header.num_seeds, "epoch": header.epoch, "step": header.step}
        return cls(blocks=[Block(**hop) for hop in reversed(hops)], seed_form=schema.seed_form, **batch)

    @classmethod
    def view(cls, buffer: Any, layout: SampleLayout, num_seeds: int, *, epoch: int = 0, step: int = 0) -> MiniBatch:
        """Returns a mini-batch over what a sampler wrote to ``buffer``, as :meth:`of` does."""
        header, _ = Header.place(layout, num_seeds, epoch, step)
        return cls.of(header, buffer)

    @property
    def seeds(self) -> torch.Tensor:
        """int64 ``[S]``."""
        return self.nodes[: self.num_seeds]

    @property
    def num_nodes(self) -> int:
        return self.nodes.numel()

    @property
    def device(self) -> torch.device:
        return self.nodes.device

    def expect_layers(self, num_layers: int) -> None:
        """Checks that there are as many blocks as a model consumes.

        Raises:
            SamplerConfigError: the sampler drew another number of hops.
        """
        check_layers(len(self.blocks), num_layers)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> MiniBatch:
        """Returns this mini-batch on ``device``: itself, where it lies there."""
        if self.device == torch.device(device):
            return self
        return self._map(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def record_stream(self, stream: Any) -> None:
        """Tells the allocator that ``stream`` uses the tensors: their memory is not given out again before the work
        that was queued there by the time they are freed is done."""
        self._map(lambda tensor: tensor.record_stream(stream) or tensor)

    def clone(self) -> MiniBatch:
        """Returns a copy in memory of its own, so that the recycled buffer can go back to its pool."""
        return self._map(torch.Tensor.clone)

    def _map(self, function: Any) -> MiniBatch:
        def apply(values: Block | MiniBatch) -> dict[str, Any]:
            values_by_name = ((f.name, getattr(values, f.name)) for f in fields(values))
            return {name: function(value) for name, value in values_by_name if isinstance(value, torch.Tensor)}

        def named(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            return {name: function(tensor) for name, tensor in tensors.items()}

        return replace(
            self,
            **apply(self),
            blocks=[
                replace(block, **apply(block), tables=named(block.tables), positions=named(block.positions))
                for block in self.blocks
            ],
            tables=named(self.tables),
            positions=named(self.positions),
            seed_columns=named(self.seed_columns),
        )

    def __repr__(self) -> str:
        parts = [f"num_seeds={self.num_seeds}", f"num_nodes={self.num_nodes}", f"blocks={self.blocks}"]
        columns = {"x": self.x, "y": self.y, **self.tables}
        parts += [f"{name}={list(value.shape)}" for name, value in columns.items() if value is not None]
        return f"MiniBatch({', '.join(parts)})"


def check_layers(num_hops: int, num_layers: int) -> None:
    """Raises SamplerConfigError: a model has another number of layers than the sampler drew hops."""
    if num_hops != num_layers:
        raise SamplerConfigError(
            f"the model has {num_layers} layers, but the sampler drew {num_hops} hops. "
            f"Give the sampler one fanout a layer, for example NeighborSampler({[10] * num_layers})."
        )
