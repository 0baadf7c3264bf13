"""Lags: by how many updates the parameters were late at each step, recorded so that a run can be repeated.

Which averages have come when a step begins depends on time alone. That number, for each step and trainer, is all that a
run with bounded staleness has beyond its settings: a run that waits for the same numbers repeats it bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from lightning_gnnload.errors import RoleConfigError, StalenessError

CHECKPOINT_KEY = "gnnload_lags"
"""A checkpoint's entry with the lags, uint8 ``[trainers, global steps]``."""
RECORD = "record"
_UNKNOWN = 255  # a step of a run that was not recording


def check_lags(lags: object, staleness: object, *, switching: bool) -> None:
    """Checks the setting. Raises RoleConfigError: nothing to record, or nothing to read it from."""
    if lags is None:
        return
    if not isinstance(lags, str) or not lags:
        raise RoleConfigError(f"lags={lags!r}: {RECORD!r}, or the path of a checkpoint with recorded lags, is needed.")
    if not isinstance(staleness, int) or not 0 < staleness < _UNKNOWN:
        raise RoleConfigError(
            f"lags={lags!r} with staleness={staleness}: a staleness of 1 to {_UNKNOWN - 1} is needed. "
            f"At 0 no gradient is late, and every run repeats by itself."
        )
    if switching:
        raise RoleConfigError(
            f"lags={lags!r} with switching=True: which mini-batch joins which step depends on time, too, and is not "
            f"recorded. Use switching=False, or leave lags out."
        )


class Lags:
    """Records one trainer's lags by global step, and knows those to repeat, uint8 ``[steps]`` each: ``past`` was
    recorded before the run was resumed; ``repeated`` is of the run to repeat, beyond whose end this one goes on by
    itself.

    Example:
        >>> lags = Lags(repeated=torch.tensor([0, 1, 1], dtype=torch.uint8))
        >>> [lags.target(step) for step in (0, 1, 3)]
        [0, 1, None]
        >>> lags.record(0, 0)
        >>> lags.record(1, 1)
        >>> lags.upto(2)
        tensor([0, 1], dtype=torch.uint8)
    """

    def __init__(self, past: Tensor | None = None, repeated: Tensor | None = None) -> None:
        self._repeated = [] if repeated is None else repeated.tolist()
        self._recorded: dict[int, int] = {} if past is None else dict(enumerate(past.tolist()))

    @classmethod
    def of(
        cls,
        setting: str | None,
        *,
        trainer: int,
        num_trainers: int,
        staleness: int,
        past: Tensor | None,
        load: Callable[[str], Mapping[str, Any]],
    ) -> Lags | None:
        """Opens what the setting says, for one trainer; None where nothing is recorded. ``past`` are all trainers' lags
        in the checkpoint that the run is resumed from. Raises RoleConfigError: the checkpoint to repeat has no lags, or
        other ones."""
        if setting is None:
            return None
        # Another number of trainers made other slices: its lags are of no use, and count as unknown.
        past_here = past[trainer] if past is not None and len(past) == num_trainers else None
        if setting == RECORD:
            return cls(past_here)
        lags = load(setting).get(CHECKPOINT_KEY)
        if lags is None:
            raise RoleConfigError(
                f"lags={setting!r}: this checkpoint has no lags. Run FactoredStrategy(staleness=..., lags={RECORD!r}), "
                f"and give the last checkpoint of that run."
            )
        most = max(lags[lags != _UNKNOWN].tolist(), default=0)
        if len(lags) != num_trainers or most > staleness:
            raise RoleConfigError(
                f"lags={setting!r}: recorded by {len(lags)} trainers with lags of up to {most}, but this run has "
                f"{num_trainers} trainers and staleness={staleness}. Use the settings of the run that recorded them."
            )
        return cls(past_here, lags[trainer])

    def target(self, step: int) -> int | None:
        """Returns the lag to wait for, None for any. Raises StalenessError: it was not recorded."""
        lag = self._repeated[step] if step < len(self._repeated) else None
        if lag == _UNKNOWN:
            raise StalenessError(
                f"step {step} cannot be repeated: its lags were not recorded, as the recording run was resumed later "
                f"from a checkpoint without lags. Resume from that checkpoint here, too."
            )
        return lag

    def record(self, step: int, lag: int) -> None:
        """Records a step's lag. Raises StalenessError: it is less than the one to repeat."""
        target = self.target(step)
        if target is not None and lag < target:
            raise StalenessError(
                f"step {step} cannot be repeated: its gradient was computed {target} updates behind, but all but {lag} "
                f"are applied, as this run has validated or saved a checkpoint where the recorded one had not."
            )
        self._recorded[step] = lag

    def upto(self, stop: int) -> Tensor:
        """Returns the lags of steps 0 to ``stop - 1``, uint8 ``[stop]``."""
        return torch.tensor([self._recorded.get(step, _UNKNOWN) for step in range(stop)], dtype=torch.uint8)
