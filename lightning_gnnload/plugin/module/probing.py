"""Probing: a fit's first steps run without a cache on the devices, and show how much room there is for one.

Rows are the same with the cache or without: when it opens changes nothing but speed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import nullcontext

from lightning_gnnload.cache.device.budget import Allowance, DeviceMemory, MemoryUse, allowance
from lightning_gnnload.cache.opening import say
from lightning_gnnload.cache.sharers import Meeting, Sharers
from lightning_gnnload.errors import CacheShareError, DeviceMemoryError

WARM_UP_STEPS = 4
"""The first makes the optimizer's state; sizes of mini-batches, and so fragments, differ from one to the next."""
_log = logging.getLogger(__name__)

OpenCache = Callable[[Allowance, Meeting | None], None]
"""Opens the cache in so much of each device; the ranks that share it do so at once, and raise alike."""


class Probing:
    """Opens a cache on the devices once the fit's first steps have peaked. For the thread that trains.

    All ranks that share the cache call :meth:`begin_step` before each step, and meet in the same one: there is no step
    under way on any device meanwhile.

    Args:
        memory: of this rank's device.
        open_cache: opens it. Raises DeviceMemoryError or CacheShareError.
        sharers: who this rank shares it with; None for a rank alone.
        num_steps: optimizer steps to wait for.
        required: what cannot be opened is an error; else a warning, and training goes on without.
        progress: say how much it gets; for one rank of a machine.
    """

    def __init__(
        self,
        memory: DeviceMemory,
        open_cache: OpenCache,
        *,
        sharers: Sharers | None = None,
        num_steps: int = WARM_UP_STEPS,
        required: bool = False,
        progress: bool = True,
    ) -> None:
        self._memory, self._open_cache, self._sharers = memory, open_cache, sharers
        self._num_steps, self._required, self._progress = num_steps, required, progress
        self._first: int | None = None
        self.is_over = False

    def begin_step(self, num_updates: int) -> None:
        """Opens the cache where the warm-up is over.

        Args:
            num_updates: optimizer steps so far, of this fit and those that it resumes; alike in all ranks.

        Raises:
            DeviceMemoryError, CacheShareError: it is required, and cannot be opened.
        """
        if self._first is None:
            self._first = num_updates
        if self.is_over or num_updates - self._first < self._num_steps:
            return
        self.is_over = True
        try:
            with nullcontext() if self._sharers is None else self._sharers.meet() as meeting:
                self._open(meeting)
        except (DeviceMemoryError, CacheShareError) as error:
            if self._required:
                raise
            _log.warning("There is no cache of features on the devices: %s", error)

    def _open(self, meeting: Meeting | None) -> None:
        use = self._memory.use()
        # Who has come to the exchange has peaked, and holds still until all have told.
        uses = [use] if meeting is None else [MemoryUse.of(each.fields) for each in meeting.exchange(use.fields())]
        allowed = allowance(uses)
        if self._progress:
            say(f"Feature cache on the devices: {allowed}")
        if not allowed.num_bytes:
            raise DeviceMemoryError(
                f"training leaves no room ({allowed.reason}). Lower batch_size, or give FeatureCache(device='cpu')."
            )
        self._open_cache(allowed, meeting)
