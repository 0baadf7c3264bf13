"""Streams: what a trainer asks of a sampler, and what the sampler keeps of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from lightning_gnnload.pipeline.slots import Slot
from lightning_gnnload.pipeline.source import BatchSource
from lightning_gnnload.pipeline.wire import Channel


@dataclass(frozen=True)
class StreamSpec:
    """What a trainer asks for: the mini-batches of steps ``[start, stop)`` of one loader of a phase, in one epoch.

    ``reload`` changes when Lightning has asked the data module for its loaders anew.
    """

    phase: str
    loader: int
    reload: int
    epoch: int
    start: int
    stop: int


@dataclass(eq=False)
class Stream:
    """A stream that a trainer has opened; of its steps, the sampler makes those of its own share, in order."""

    trainer: Trainer
    number: int
    spec: StreamSpec
    next_step: int
    source: BatchSource | None = None
    num_out: int = 0
    closed: bool = False


@dataclass(eq=False)
class SharedSlot:
    """A slot of one trainer; ``stream`` is whose mini-batch it holds, or is to hold."""

    number: int
    memory: Slot
    stream: Stream | None = None
    sent_before: bool = False


@dataclass(eq=False)
class Trainer:
    """A trainer, as a sampler sees it. Its slots are its own, so that a slow trainer takes none from the others."""

    channel: Channel
    rank: int
    streams: dict[int, Stream] = field(default_factory=dict)
    slots: list[SharedSlot] = field(default_factory=list)
    free: list[SharedSlot] = field(default_factory=list)
    said_bye: bool = False
