"""ResumePoint: the place in an epoch that a checkpoint keeps, and what the place depends on."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from lightning_gnnload.errors import CheckpointError, warn

OnResumeChange = Literal["error", "warn"]
"""What becomes of an epoch whose mini-batches are others than those that the checkpoint was made amid."""

_OPTIONAL: dict[str, Any] = {"ahead": 0, "again": 0, "settings": "{}"}
"""Fields that a state has only where they have another value."""


@dataclass(frozen=True)
class ResumePoint:
    """The position in an epoch that a checkpoint keeps: the first ``step`` global steps are done.

    Batches are pure functions, so two integers say where a run was. The other fields say what the functions depend on:
    they must be the same in the run that resumes, while the numbers of trainers, samplers and threads need not. So the
    point is the same in every rank, and Lightning may keep rank 0's alone.

    ``order`` is the SeedOrder's name, ``seeds`` a checksum of the seeds with times and targets, ``graph`` the graph's
    fingerprint, ``sampler`` its settings, those of links, and how rows are rounded. ``settings`` are what else
    mini-batches depend on by name, such as a checksum of the rows' columns, as JSON; of those that a checkpoint of an
    older release lacks, nothing is known. ``ahead``: by how much a Trainer's number of the epoch is larger (see
    :class:`.Position`); ``again``: how often the epoch was read to its end before.
    """

    epoch: int
    step: int
    num_seeds: int
    global_batch_size: int
    seed: int
    order: str
    seeds: str
    graph: str
    sampler: str
    ahead: int = 0
    again: int = 0
    settings: str = "{}"

    def to_state(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value != _OPTIONAL.get(name)}

    @classmethod
    def from_state(cls, state: Any) -> ResumePoint:
        """Raises CheckpointError: ``state`` is not what :meth:`to_state` gives."""
        types = {field.name: {"int": int, "str": str}[str(field.type)] for field in fields(cls)}
        whole: dict[str, Any] = {**_OPTIONAL, **state} if isinstance(state, dict) else {}
        # Exact types: True would pass for a step.
        sound = {name: type(value) for name, value in whole.items()} == types
        if not sound or min(whole["epoch"], whole["step"], whole["again"]) < 0 or not _is_json_dict(whole["settings"]):
            raise CheckpointError(
                f"the checkpoint's train loader left {state!r:.200}, where {', '.join(types)} are needed: it was not "
                f"a loader of GraphDataModule. Resume with the loader it was made with, or load the weights alone."
            )
        return cls(**whole)

    def check(self, now: ResumePoint, num_ranks: int, num_steps: int | None, on_change: OnResumeChange) -> None:
        """Raises CheckpointError unless the epoch can go on in a run at the point ``now``, with ``num_ranks`` trainers
        and ``num_steps`` steps (None: unknown). With ``on_change="warn"``, other mini-batches are only warned about."""
        # Before the first step nothing of the epoch is done that others would contradict.
        if self.step == 0:
            return
        if num_steps is not None and self.step > num_steps:
            raise CheckpointError(
                f"the checkpoint was made after {self.step} steps of epoch {self.epoch}, but an epoch has {num_steps} "
                f"now. Give the data and settings that it was made with, or load the weights alone."
            )
        here = now._compared()
        differing = [
            f"{name}={then!r} then and {here.get(name)!r} now"
            for name, then in self._compared().items()
            if then != here.get(name)
        ]
        if not differing:
            return
        current = (
            f"the checkpoint was made after {self.step} steps of epoch {self.epoch}, whose steps have other "
            f"mini-batches now: {', '.join(differing)}. Some seeds of the epoch may be left out and others come twice."
        )
        if on_change == "warn":
            warn(f"{current} The run goes on all the same, as on_resume_change says.")
            return
        raise CheckpointError(
            f"{current} {self._remedy(now, num_ranks)} A checkpoint of an epoch's end resumes with any settings, and "
            f'this one does with on_resume_change="warn".'
        )

    def _compared(self) -> dict[str, Any]:
        """Returns what the epoch's mini-batches depend on, by name."""
        compared = {name: value for name, value in asdict(self).items() if name not in ("epoch", "step", *_OPTIONAL)}
        return compared | json.loads(self.settings)

    def _remedy(self, now: ResumePoint, num_ranks: int) -> str:
        if self.global_batch_size == now.global_batch_size:
            return "Give the data and settings of then."
        batch_size, rest = divmod(self.global_batch_size, num_ranks)
        if rest:
            return f"The number of trainers, {num_ranks}, must divide the global batch size of then."
        return f"Give batch_size={batch_size}, for {num_ranks} x {batch_size} seeds a step."


def _is_json_dict(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False
