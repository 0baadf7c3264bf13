"""What a loader measures: each mini-batch on its way to the trainer, and where its time went in sum."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple

from lightning_gnnload.data.features import Reads, TierReads, summed_reads
from lightning_gnnload.pipeline.payload import Payload, Timing


class QueueFill(NamedTuple):
    """How full a loader's queue is, in mini-batches: ``ready`` for the trainer, ``lent`` (the trainer still uses their
    memory), of ``slots`` in all (0: unbounded)."""

    ready: int
    lent: int = 0
    slots: int = 0


class BatchCost(NamedTuple):
    """The cost of a mini-batch that lies in no slot; a :class:`.Payload` has that of the others."""

    num_seeds: int
    num_nodes: int
    num_edges: int
    timing: Timing
    reads: Reads


@dataclass(frozen=True, kw_only=True)
class Delivery(Timing):
    """The timeline and the figures of one mini-batch, from its making to the trainer.

    Moments are seconds of ``time.monotonic``, the machine's own clock: they compare between its processes.

    Attributes:
        step: of the epoch.
        num_seeds: of this trainer's slice.
        num_nodes: input nodes.
        num_edges: sampled edges.
        asked_s: when the trainer asked for it.
        taken_s: when the trainer got it.
        convert_s: when turning it into what the model expects began and ended.
        fill: the queue when the trainer asked.
        reads: where its features came from, nearest tier first; empty where their store does not count.
    """

    step: int
    num_seeds: int
    num_nodes: int
    num_edges: int
    asked_s: float
    taken_s: float
    convert_s: tuple[float, float]
    fill: QueueFill
    reads: Reads = ()

    @classmethod
    def of(
        cls,
        source: Payload | BatchCost,
        step: int,
        *,
        asked_s: float,
        taken_s: float,
        convert_s: tuple[float, float],
        fill: QueueFill,
    ) -> Delivery:
        """Joins the maker's figures of a mini-batch with the loader's."""
        return cls(
            **vars(source.timing),
            step=step,
            num_seeds=source.num_seeds,
            num_nodes=source.num_nodes,
            num_edges=source.num_edges,
            asked_s=asked_s,
            taken_s=taken_s,
            convert_s=convert_s,
            fill=fill,
            reads=source.reads,
        )

    @property
    def wait_ms(self) -> float:
        """How long the trainer waited for it."""
        return (self.taken_s - self.asked_s) * 1e3

    @property
    def convert_ms(self) -> float:
        return (self.convert_s[1] - self.convert_s[0]) * 1e3

    @property
    def trainer_converts(self) -> bool:
        """Whether the trainer converted it, after taking it; else its maker did."""
        return self.convert_s[0] >= self.taken_s


@dataclass
class LoaderStats:
    """The sums over all mini-batches that one loader has delivered.

    Attributes:
        num_batches: mini-batches delivered.
        num_seeds: seeds of these.
        num_nodes: input nodes of these.
        num_edges: sampled edges of these.
        num_ready: mini-batches that waited for the trainer when it asked, itself included; summed.
        sample_ms: sampling, summed over the threads or ranks that did it.
        gather_ms: gathering features and labels, likewise.
        convert_ms: turning mini-batches into what the model expects.
        wait_ms: the trainer waited for a mini-batch that was not ready.
        reads: where the features came from, summed by tier; empty where their store does not count.
    """

    num_batches: int = 0
    num_seeds: int = 0
    num_nodes: int = 0
    num_edges: int = 0
    num_ready: int = 0
    sample_ms: float = 0.0
    gather_ms: float = 0.0
    convert_ms: float = 0.0
    wait_ms: float = 0.0
    reads: Reads = ()

    def add(self, delivery: Delivery) -> None:
        """Counts one delivered mini-batch."""
        self.num_batches += 1
        self.num_seeds += delivery.num_seeds
        self.num_nodes += delivery.num_nodes
        self.num_edges += delivery.num_edges
        self.num_ready += delivery.fill.ready
        self.sample_ms += delivery.sample_ms
        self.gather_ms += delivery.gather_ms
        self.convert_ms += delivery.convert_ms
        self.wait_ms += delivery.wait_ms
        self.reads = summed_reads((self.reads, delivery.reads))

    def __sub__(self, other: LoaderStats) -> LoaderStats:
        sums = [f.name for f in fields(self) if f.name != "reads"]
        return LoaderStats(
            **{name: getattr(self, name) - getattr(other, name) for name in sums},
            reads=_difference(self.reads, other.reads),
        )


def _difference(after: Reads, before: Reads) -> Reads:
    """Returns what was read in between, by tier."""
    return summed_reads((after, tuple(TierReads(tier, -rows, -num_bytes) for tier, rows, num_bytes in before)))
