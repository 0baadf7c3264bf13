"""Where the edges of each destination begin, by how many it has."""

from __future__ import annotations

import torch

from .batch import MAX_LOCAL, THREADS, DeviceBatch
from .hop import HopInMaking


def start_edges(batch: DeviceBatch, hop: HopInMaking, num_edges: torch.Tensor) -> None:
    """Writes ``hop.starts`` and ``hop.last_edge``.

    Args:
        num_edges: int32, read as unsigned, of each node of the batch that is a destination to expand.
    """
    batch.device.launch(
        "start_edges",
        "sum_edges",
        blocks=batch.blocks(hop.most_dst),
        threads=THREADS,
        num_edges=num_edges,
        first=hop.first,
        num_dst=hop.num_dst,
        first_edge=hop.first_edge,
        max_edges=MAX_LOCAL,
        starts=hop.starts,
        last_edge=hop.last_edge,
        words=batch.state.scan_words(hop.most_dst // THREADS + 1),
        error=batch.state.error,
    )
