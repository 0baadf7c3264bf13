"""Layer: the edges into a hop's destinations, of which layer-wise sampling takes some.

Shapes: E edges into the destinations; M items, edges that may be taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from . import batch as batches
from .batch import THREADS, DeviceBatch
from .hop import HopInMaking


@dataclass
class Layer:
    """One hop's edges, numbered in the order of destinations and their lists.

    Attributes:
        offsets: int64, for each destination the number of its first edge.
        num_edges: int64 ``[1]``: E.
        num_items: int64 ``[1]``: M.
        most_items: M, at most.
        numbers: int64 ``[M]``, the items' edges, ascending; None: all edges.
        factors: float64 ``[M]``, 0 of an item that is not taken; None: all are taken, with factor 1.
        places: int32 ``[M + 1]``, taken items before each.
        divisors: float64, for each destination what its factors are divided by.

    Source: ``kernels/sample_layers/sample_layers_cuda.cu``.
    """

    offsets: torch.Tensor
    num_edges: torch.Tensor
    num_items: torch.Tensor
    most_items: int = 0
    numbers: torch.Tensor | None = None
    factors: torch.Tensor | None = None
    places: torch.Tensor | None = None
    divisors: torch.Tensor | None = None

    @classmethod
    def measure(cls, batch: DeviceBatch, hop: HopInMaking) -> Layer:
        """Numbers all edges; ``hop.last_edge`` is where they end if all are taken."""
        words = batch.device.empty(2, torch.int64)
        layer = cls(batch.device.empty(batch.most_nodes + 1, torch.int64), words[:1], words[:1])
        batch.device.launch(
            "sample_layers",
            "measure_layer",
            blocks=batch.blocks(hop.most_dst),
            threads=THREADS,
            indptr=batch.topology.indptr,
            **destinations_of(batch, hop),
            first_edge=hop.first_edge,
            offsets=layer.offsets,
            num_edges=layer.num_edges,
            last_edge=hop.last_edge,
            words=batch.state.scan_words(hop.most_dst // THREADS + 1),
            error=batch.state.error,
        )
        return layer

    def place(self, batch: DeviceBatch, hop: HopInMaking, normalize: bool) -> None:
        """Where taken items go: writes ``hop.starts`` and ``hop.last_edge``."""
        self.places = batch.device.empty(self.most_items + 1, torch.int32)
        self.divisors = batch.device.empty(len(self.offsets), torch.float64)
        items: dict[str, Any] = {"factors": self.factors, "num_items": self.num_items, "places": self.places}
        batch.device.launch(
            "sample_layers",
            "place_edges",
            blocks=batch.blocks(self.most_items),
            threads=THREADS,
            **items,
            first_edge=hop.first_edge,
            max_edges=batches.MAX_LOCAL,
            last_edge=hop.last_edge,
            words=batch.state.scan_words(self.most_items // THREADS + 1),
            error=batch.state.error,
        )
        batch.device.launch(
            "sample_layers",
            "end_rows",
            blocks=batch.blocks(hop.most_dst * 32),
            threads=THREADS,
            first=hop.first,
            num_dst=hop.num_dst,
            first_edge=hop.first_edge,
            offsets=self.offsets,
            numbers=self.numbers,
            **items,
            normalize=int(normalize),
            starts=hop.starts,
            divisors=self.divisors,
            error=batch.state.error,
        )


def destinations_of(batch: DeviceBatch, hop: HopInMaking) -> dict[str, Any]:
    """Of a hop."""
    return {"nodes": batch.nodes, "first": hop.first, "num_dst": hop.num_dst}
