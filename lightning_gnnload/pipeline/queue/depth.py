"""QueueDepth: how many mini-batches a sampler may have made ahead, by how long the trainer waits for them."""

from __future__ import annotations

import math
from dataclasses import dataclass

LEAST = 2  # with one slot, sampling would not overlap training
MOST = 64
FIRST = 4  # hides a late mini-batch or two; each one takes memory
_WINDOW = 64  # steps in which slots have to be of no use before they are taken away
_MAX_WINDOW = 4096
_WORTH = 0.05  # of a step: shorter waits are no reason to take memory


@dataclass
class QueueDepth:
    """The depth of a trainer's queue to each sampler, which follows how long steps wait.

    Slots were too few if samplers have had none left since the last wait: the depth then doubles. If mini-batches lay
    ready at every step of a window and the last slots were never needed, it falls; each time that this proves wrong,
    the window doubles. Samplers that always have a slot and are still waited for are too slow, which no depth changes.
    Mini-batches do not depend on it.

    Source: TurboGNN, section III-C: sampling is slowed where its queue keeps growing. Here the queue's bound holds
    samplers back, so the bound follows the trainer's pace.

    Example:
        >>> queue = QueueDepth(depth=4)
        >>> queue.after_step(ready=4, is_full=True, asked_s=1.0, wait_s=0.0)
        4
        >>> queue.after_step(ready=0, is_full=False, asked_s=1.1, wait_s=0.02)
        8
    """

    depth: int = FIRST
    _has_been_full: bool = False
    _has_shrunk: bool = False
    _window: int = _WINDOW
    _num_steps: int = 0
    _fewest: float = math.inf
    _asked_s: float = -math.inf

    def begin(self) -> None:
        """Notes that a stream begins with an empty queue: its waits count only after it has been full once."""
        self._has_been_full = False

    def after_step(
        self,
        *,
        ready: int,
        is_full: bool,
        asked_s: float,
        wait_s: float,
        num_samplers: int = 1,
        least: int = LEAST,
        most: int = MOST,
    ) -> int:
        """Returns the depth from now on.

        ``ready`` mini-batches waited for the trainer when it asked for this step's, at ``asked_s``; it waited
        ``wait_s``. ``is_full``: samplers had no slot left then. The depth, of each of ``num_samplers``, stays within
        ``least`` and ``most``.
        """
        before, step_s, self._asked_s = self.depth, asked_s - self._asked_s, asked_s
        if self._has_been_full:
            self._adapt(ready, wait_s > _WORTH * step_s, num_samplers)
        self._has_been_full = self._has_been_full or is_full
        self.depth = max(min(self.depth, most), min(before, least))
        return self.depth

    def _adapt(self, ready: int, has_waited: bool, num_samplers: int) -> None:
        self._num_steps += 1
        self._fewest = min(self._fewest, ready)
        if has_waited:
            self.depth *= 2
            self._has_been_full = False
            if self._has_shrunk:
                self._window, self._has_shrunk = min(2 * self._window, _MAX_WINDOW), False
        elif self._num_steps >= self._window:
            # One is about to be taken; half of what is left over at a time, as the next steps may be later than these.
            spare = max(int(self._fewest) - 1, 0) // num_samplers
            self.depth -= math.ceil(spare / 2)
            self._has_shrunk = self._has_shrunk or spare > 0
        else:
            return
        self._num_steps, self._fewest = 0, math.inf


def depth_within(memory_bytes: int, slot_bytes: int, num_queues: int) -> int:
    """Returns the greatest depth with which the queues of a machine, one a trainer and sampler, fit in
    ``memory_bytes``; at least 2, so that sampling overlaps training.

    Source: DSP (PPoPP'23), section 5 (a bounded queue, by the memory that its batches take).
    """
    return min(max(memory_bytes // max(slot_bytes * num_queues, 1), LEAST), MOST)
