"""RoleDecision: how many ranks sample, the figures that say why, and the file that remembers them."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from lightning_gnnload.plugin.compat import pl

FILE_NAME = "gnnload_roles.json"
FORMAT = 1
"""Of the file; one of another format is foreign."""


@dataclass(frozen=True)
class RoleDecision:
    """What the ranks of a job agreed on at its start, alike in all of them.

    Attributes:
        num_ranks: of each machine.
        num_samplers: of these.
        sample_ms: what one sampler takes for a mini-batch, at its throughput (T_s); None where nothing was measured.
        train_ms: what one trainer takes for a step, its mini-batch being ready (T_t); likewise.
        sample_cores: cores that ``sample_ms`` was measured on; and
        train_cores: cores that ``train_ms`` was.
        batch_bytes: of the largest mini-batch seen.
        reason: why so many sample, where it is not for the figures.
        measured_on: what the figures hold for; see :func:`~lightning_gnnload.plugin.strategy.profile.describe`.
        reused: the figures come from an earlier run.

    Source: GNNLab (EuroSys'22), section 5.2.
    """

    num_ranks: int
    num_samplers: int
    sample_ms: float | None = None
    train_ms: float | None = None
    sample_cores: int = 1
    train_cores: int = 1
    batch_bytes: int = 0
    reason: str = ""
    measured_on: dict[str, Any] = field(default_factory=dict)
    reused: bool = False

    @property
    def trainers_fed(self) -> float | None:
        """By one sampler (K); None where nothing was measured."""
        if self.sample_ms is None or self.train_ms is None:
            return None
        return self.train_ms / max(self.sample_ms, 1e-6)

    def __str__(self) -> str:
        """One line for people."""
        verb = "samples" if self.num_samplers == 1 else "sample"
        line = f"{self.num_samplers} of {self.num_ranks} ranks {verb}: "
        if self.trainers_fed is None:
            return line + self.reason
        line += (
            f"a batch takes {self.sample_ms:.1f} ms to make and {self.train_ms:.1f} ms to train on, "
            f"so one sampler feeds {self.trainers_fed:.1f} trainers"
        )
        line += f"; {self.reason}" if self.reason else ""
        return line + (f" (measured in an earlier run; delete {FILE_NAME} to measure again)" if self.reused else "")

    def to_json(self) -> str:
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> RoleDecision:
        """Raises ValueError: ``text`` is not what :meth:`to_json` gives."""
        told = json.loads(text)
        if not isinstance(told, dict) or told.pop("format", None) != FORMAT:
            raise ValueError(f"it is not of format {FORMAT}")
        if told.keys() != {each.name for each in fields(cls)}:
            raise ValueError("its fields are others")
        decision = cls(**told)
        decision._check()
        return decision

    def _check(self) -> None:
        counts = (self.num_ranks, self.num_samplers, self.sample_cores, self.train_cores, self.batch_bytes)
        times = [time for time in (self.sample_ms, self.train_ms) if time is not None]
        sound = all(type(count) is int and count >= 0 for count in counts)
        sound = sound and all(type(time) in (int, float) and 0 <= time < float("inf") for time in times)
        sound = sound and isinstance(self.measured_on, dict) and isinstance(self.reason, str)
        if not sound or not 1 <= self.num_samplers <= max(self.num_ranks - 1, 1):
            raise ValueError("its figures are impossible")


def save(decision: RoleDecision, folder: str) -> None:
    """Writes the figures to ``folder``, where a later run finds them. A folder that cannot be written is no harm."""
    if "://" in folder:
        return
    path = Path(folder) / FILE_NAME
    temporary = path.with_suffix(f".{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(decision.to_json())
        temporary.replace(path)  # at once: another job may read it
    except OSError as error:
        pl.utilities.rank_zero.rank_zero_warn(f"the measured times are not kept for the next run: {error}")


def load(folder: str) -> RoleDecision | None:
    """What an earlier run wrote to ``folder``; None, with a warning, when the file is broken or not ours."""
    path = Path(folder) / FILE_NAME
    if "://" in folder or not path.is_file():
        return None
    try:
        return replace(RoleDecision.from_json(path.read_text()), reused=True)
    except (OSError, ValueError, TypeError, RecursionError) as error:
        pl.utilities.rank_zero.rank_zero_warn(f"{path} is ignored, and will be written anew: {error}")
        return None
