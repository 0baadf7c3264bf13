"""Payload: a mini-batch in a slot, as a sampler sends it: what lies where, and what it took to make."""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass, replace
from itertools import starmap
from typing import Any

from lightning_gnnload.data.block import MiniBatch
from lightning_gnnload.data.features import Reads, TierReads
from lightning_gnnload.data.slab import Header, Schema
from lightning_gnnload.errors import QueueProtocolError

_MOST_READ = 1 << 48


@dataclass(frozen=True)
class Timing:
    """Which thread of which global rank made a mini-batch, when (``time.monotonic`` of this machine, a reader's, too),
    and how long sampling, gathering and the processor took."""

    made_by: int
    thread: str
    began_s: float
    sample_ms: float
    gather_ms: float
    cpu_ms: float

    @property
    def sampled_s(self) -> float:
        """When sampling ended, and gathering began."""
        return self.began_s + self.sample_ms / 1e3

    @property
    def made_s(self) -> float:
        """When gathering ended."""
        return self.sampled_s + self.gather_ms / 1e3


@dataclass(frozen=True)
class Payload:
    """Describes a mini-batch in a slot, what it cost to make, and where its features came from (nearest tier first)."""

    header: Header
    timing: Timing
    reads: Reads = ()

    @property
    def num_seeds(self) -> int:
        return self.header.num_seeds

    @property
    def num_nodes(self) -> int:
        return self.header.num_nodes

    @property
    def num_edges(self) -> int:
        return self.header.num_edges

    def view(self, buffer: Any) -> MiniBatch:
        """Returns the mini-batch without a copy; its tensors keep ``buffer`` alive. QueueProtocolError: parts lie
        beyond its end."""
        try:
            return MiniBatch.of(self.header, buffer)
        except ValueError as error:  # torch looks at where the buffer ends
            raise QueueProtocolError(f"a mini-batch does not lie in its slot: {error}.") from error

    def made_elsewhere(self, rank: int) -> Payload:
        """Returns it as made by another rank than the one that trains on it."""
        return replace(self, timing=replace(self.timing, made_by=rank))

    def to_json(self) -> dict[str, Any]:
        """Returns the fields as JSON values. The schema is text, which a reader that knows it need not parse again."""
        header = self.header
        return {
            "schema": header.schema.text,
            "header": header.numbers(),
            "timing": astuple(self.timing),
            "reads": self.reads,
        }

    @classmethod
    def from_json(cls, message: Any, clock_s: float = 0.0) -> Payload:
        """Reads what :meth:`to_json` returned where the clock is ``clock_s`` behind this machine's. Raises
        QueueProtocolError: it is something else."""
        try:
            header = Header.of_numbers(Schema.of_text(message["schema"]), message["header"])
            payload = cls(header, Timing(*message["timing"]), tuple(starmap(TierReads, message["reads"])))
            payload._check()
            payload = payload if not clock_s else payload._later(clock_s)
        except (TypeError, KeyError, ValueError) as error:
            raise QueueProtocolError(
                f"a mini-batch's description is malformed: {error!r} in {message!r:.200}"
            ) from error
        return payload

    def _later(self, seconds: float) -> Payload:
        return replace(self, timing=replace(self.timing, began_s=self.timing.began_s + seconds))

    def _check(self) -> None:
        for read in self.reads:
            if type(read.tier) is not str or any(type(n) is not int or not 0 <= n < _MOST_READ for n in read[1:]):
                raise ValueError(f"{read!r:.100} is no count of reads")
        made_by, thread, *times = vars(self.timing).values()
        if type(made_by) is not int or type(thread) is not str:
            raise ValueError("its maker has no rank, or no name")
        for time_taken in times:
            if not isinstance(time_taken, int | float) or not math.isfinite(time_taken):
                raise ValueError(f"{time_taken!r} is no time")
