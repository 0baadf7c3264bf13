"""ResumePoint: the place in an epoch that a checkpoint keeps, and what the place depends on."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from lightning_gnnload.errors import CheckpointError


@dataclass(frozen=True)
class ResumePoint:
    """The position in an epoch that a checkpoint keeps: the first ``step`` global steps are done.

    Batches are pure functions, so two integers say where a run was. The others say which seeds that means: they must
    be alike in the run that goes on, while the numbers of trainers, samplers and threads need not. So it is the
    same in every rank, and Lightning may keep that of rank 0 alone.

    Args:
        epoch: of the run.
        step: global steps of it that are done.
        num_seeds: of the epoch.
        global_batch_size: seeds of a global step.
        seed: random seed of the data module.
        order: the SeedOrder's name.
    """

    epoch: int
    step: int
    num_seeds: int
    global_batch_size: int
    seed: int
    order: str

    def to_state(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_state(cls, state: Any) -> ResumePoint:
        """Raises CheckpointError: ``state`` is not what :meth:`to_state` gives."""
        types = {field.name: str if field.name == "order" else int for field in fields(cls)}
        # Exact types: True would pass for a step.
        if not isinstance(state, dict) or {name: type(value) for name, value in state.items()} != types:
            raise CheckpointError(
                f"the checkpoint's train loader left {state!r:.200}, where {', '.join(types)} are needed: it was not "
                f"a loader of GraphDataModule. Resume with the loader it was made with, or load the weights alone."
            )
        return cls(**state)

    def check(self, now: ResumePoint, num_ranks: int) -> None:
        """Whether the epoch can go on in a run whose own point is ``now``, with ``num_ranks`` trainers.

        Raises:
            CheckpointError: its steps have other seeds now.
        """
        differing = [
            f"{name}={getattr(self, name)!r} then and {getattr(now, name)!r} now"
            for name in ("num_seeds", "global_batch_size", "seed", "order")
            if getattr(self, name) != getattr(now, name)
        ]
        # Before the first step nothing of the epoch is done that other seeds would contradict.
        if self.step > 0 and differing:
            raise CheckpointError(
                f"the checkpoint was made after {self.step} steps of epoch {self.epoch}, whose steps have other seeds "
                f"now: {', '.join(differing)}. Some seeds of the epoch would be left out and others come twice. "
                f"{self._remedy(now, num_ranks)} A checkpoint of an epoch's end resumes with any settings."
            )

    def _remedy(self, now: ResumePoint, num_ranks: int) -> str:
        if self.global_batch_size == now.global_batch_size:
            return "Give the settings of then."
        batch_size, rest = divmod(self.global_batch_size, num_ranks)
        if rest:
            return f"The number of trainers, {num_ranks}, must divide the global batch size of then."
        return f"Give batch_size={batch_size}, for {num_ranks} x {batch_size} seeds a step."
