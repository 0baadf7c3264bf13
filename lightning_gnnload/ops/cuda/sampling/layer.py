"""Layer: the edges into a hop's destinations, of which layer-wise sampling takes some.

Shapes: E edges into the destinations; M items, edges that may be taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from . import batch as batches
from .batch import THREADS, DeviceBatch
from .sample import HopBuilder

_MOST_SORTED = 4096  # by a block: 48 KB of shared memory, which a device gives any kernel
_DRAW_BYTES = 12  # of shared memory: a number and its draw


@dataclass
class Layer:
    """The edges of one layer-wise hop, numbered in the order of destinations and their lists.

    Source: ``kernels/sample_layers/sample_layers_cuda.cu``.
    """

    offsets: torch.Tensor  # int64, the number of each destination's first edge
    num_edges: torch.Tensor  # int64 [1]: E
    num_items: torch.Tensor  # int64 [1]: M
    most_items: int = 0  # M at most, as far as the host knows
    numbers: torch.Tensor | None = None  # int64 [M], the items' edges, ascending; None: all edges
    factors: torch.Tensor | None = None  # float64 [M], 0 where an item is not taken; None: all are taken, by 1
    places: torch.Tensor | None = None  # int32 [M + 1], taken items before each
    divisors: torch.Tensor | None = None  # float64, by destination, of its factors

    @classmethod
    def measure(cls, batch: DeviceBatch, hop: HopBuilder) -> Layer:
        """Numbers all edges; ``hop.last_edge`` is where they end if all are taken."""
        words = batch.device.empty(2, torch.int64)
        # One counter for both, as all edges are items until draw_edges() replaces the second.
        layer = cls(batch.device.empty(batch.most_nodes + 1, torch.int64), words[:1], words[:1])
        batch.launch(
            "sample_layers",
            "measure_layer",
            blocks=batch.blocks(hop.most_dst),
            indptr=batch.topology.indptr,
            hop=hop,
            layer=layer,
            words=batch.state.scan_words(hop.most_dst // THREADS + 1),
        )
        return layer

    def place(self, batch: DeviceBatch, hop: HopBuilder, normalize: bool) -> None:
        """Places the items that were taken: writes ``hop.starts`` and ``hop.last_edge``."""
        self.places = batch.device.empty(self.most_items + 1, torch.int32)
        self.divisors = batch.device.empty(len(self.offsets), torch.float64)
        batch.launch(
            "sample_layers",
            "place_edges",
            blocks=batch.blocks(self.most_items),
            hop=hop,
            layer=self,
            max_edges=batches.MAX_LOCAL,
            words=batch.state.scan_words(self.most_items // THREADS + 1),
        )
        batch.launch(
            "sample_layers",
            "end_rows",
            blocks=batch.blocks(hop.most_dst * 32),
            hop=hop,
            layer=self,
            normalize=int(normalize),
        )


def draw_edges(batch: DeviceBatch, hop: HopBuilder, layer: Layer, budget: int, replace: bool) -> None:
    """Makes ``budget`` edges the layer's items, or all of them where the budget suffices: drawn uniformly, as DSP does,
    without reading a whole list.

    Source: ``kernels/draw_layer/draw_layer_cuda.cu``.
    """
    device, blocks = batch.device, batch.blocks(budget)
    num_drawn = device.empty(1, torch.int64)
    numbers = device.empty(budget, torch.int64)
    arguments: dict[str, Any] = {"num_edges": layer.num_edges, "num_drawn": num_drawn, "budget": budget}
    batch.launch(
        "draw_layer",
        "draw_numbers",
        blocks=blocks,
        key=hop.key,
        names=batch.topology.names,
        **arguments,
        replace=int(replace),
        numbers=numbers,
    )
    # Stable, so that of the draws of one number the earliest keeps it.
    ordered = _sorted(batch, numbers)
    if not replace:  # draws of a number that an earlier draw has are replaced
        repeats = device.empty(budget, torch.int32)
        batch.launch(
            "draw_layer",
            "mark_repeats",
            blocks=blocks,
            sorted=ordered[0],
            draws=ordered[1],
            num_drawn=num_drawn,
            repeats=repeats,
        )
        settled = device.empty(budget, torch.int64)
        batch.launch(
            "draw_layer",
            "settle_numbers",
            blocks=blocks,
            **arguments,
            numbers=numbers,
            repeats=repeats,
            settled=settled,
        )
        ordered = _sorted(batch, settled)
    layer.numbers, layer.num_items, layer.most_items = ordered[0], num_drawn, budget
    layer.factors = device.empty(budget, torch.float64)
    batch.launch("draw_layer", "weigh_numbers", blocks=blocks, layer=layer, budget=budget, replace=int(replace))


def _sorted(batch: DeviceBatch, numbers: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the numbers of a hop's draws, int64, in order, and the draw of each: equal ones by draw."""
    count = len(numbers)
    if count > _MOST_SORTED:
        return torch.sort(numbers, stable=True)
    size = 1 << max((count - 1).bit_length(), 1)
    ordered, draws = (batch.device.empty(count, torch.int64) for _ in range(2))
    batch.launch(
        "draw_layer",
        "sort_numbers",
        blocks=1,
        threads=min(max(size // 2, 32), 1024),
        shared_bytes=size * _DRAW_BYTES,
        numbers=numbers,
        count=count,
        size=size,
        sorted=ordered,
        draws=draws,
    )
    return ordered, draws
