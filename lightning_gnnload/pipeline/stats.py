"""LoaderStats: where a loader's time went."""

from __future__ import annotations

from dataclasses import dataclass, fields

from lightning_gnnload.pipeline.source import Payload


@dataclass
class LoaderStats:
    """Sums over the mini-batches that one loader delivered.

    Attributes:
        num_batches: mini-batches delivered.
        num_nodes: input nodes of these.
        num_edges: sampled edges of these.
        sample_ms: sampling, summed over the threads or ranks that did it.
        gather_ms: gathering features and labels, likewise.
        convert_ms: turning mini-batches into what the model expects.
        wait_ms: the trainer waited for a mini-batch that was not ready.
    """

    num_batches: int = 0
    num_nodes: int = 0
    num_edges: int = 0
    sample_ms: float = 0.0
    gather_ms: float = 0.0
    convert_ms: float = 0.0
    wait_ms: float = 0.0

    def add(self, payload: Payload, *, wait_ms: float, convert_ms: float) -> None:
        """Counts one delivered mini-batch."""
        self.num_batches += 1
        self.num_nodes += payload.layout.num_nodes
        self.num_edges += payload.num_edges
        self.sample_ms += payload.sample_ms
        self.gather_ms += payload.gather_ms
        self.convert_ms += convert_ms
        self.wait_ms += wait_ms

    def __sub__(self, other: LoaderStats) -> LoaderStats:
        return LoaderStats(**{f.name: getattr(self, f.name) - getattr(other, f.name) for f in fields(self)})
