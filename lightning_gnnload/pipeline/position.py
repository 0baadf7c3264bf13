"""Position: the epoch that a loader is in, and how many of its mini-batches are done."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from lightning_gnnload.pipeline.resume import ResumePoint

_GOLDEN = 0x9E3779B9  # 2^32 over the golden ratio: its multiples keep as far from each other as they can
_31_BITS = 0x7FFFFFFF


class NextEpoch:
    """The number of the next epoch of loops by hand over any of the loaders that share this object."""

    def __init__(self) -> None:
        self.number = 0


class Position:
    """Knows which epoch an iteration over a loader is, and at which of its steps it begins.

    - In a loop by hand, an iteration is the epoch after the last one's, unless :meth:`set_epoch` has chosen another.
      One that was broken off counts.
    - A Trainer announces each epoch (:meth:`announce`). Where it reads a loader again before it announces another one,
      as a CombinedLoader does with its shorter loaders, mini-batches are those of no other epoch.
    - After :meth:`load`, the next iteration goes on in the epoch of the state, unless another one was chosen, or a
      Trainer has come to a later one. Where nothing is left of that epoch, a loop by hand is the next one.

    Attributes:
        epoch: the one that was begun last, or is to begin.
        step: its mini-batches that are done.
        loaded: the state that the next iteration goes on from.
    """

    def __init__(self) -> None:
        self._following = NextEpoch()
        self.epoch = self.step = 0
        self.loaded: ResumePoint | None = None
        self._is_chosen = False  # and not begun yet
        self._is_announced = False
        self._num_announced = 0
        self._is_unread = self._is_iterated = False  # since a state was loaded
        self._again = 0
        # A Trainer's numbers may not be those of epochs: with max_steps, it counts one twice that it resumes from the
        # end of; and Fabric's begin at 0 in each process.
        self._ahead = 0
        self._reading = object()

    @property
    def drawn_epoch(self) -> int:
        """The epoch by which mini-batches are drawn and ordered."""
        return self.epoch if not self._again else (self.epoch + self._again * _GOLDEN) & _31_BITS

    def follow(self, following: NextEpoch) -> None:
        """Shares the number of loops by hand with other loaders of the same mini-batches."""
        self._following, self.epoch = following, following.number

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration that of ``epoch``; what was loaded of this one is kept."""
        self._is_announced = self._is_unread = False
        self._ahead = 0
        if self.loaded is None or self.loaded.epoch != epoch:
            self._move_to(epoch)

    def announce(self, number: int) -> None:
        """Hears from a Trainer that the epoch begins, or goes on, that it calls ``number``."""
        last = self.epoch + self._ahead
        self._is_announced = True
        self._num_announced += 1
        is_another_fit = number < last and self._is_iterated  # Fabric's announcement comes before iter()
        if self._is_unread and not is_another_fit:
            # Lightning restores states only of epochs that it was in. Of those that it then announces without reading
            # them, the one was at its end, and the other it counts twice.
            if number > last and self.loaded is not None:
                self._move_to(self.epoch + 1)
            self._ahead = number - self.epoch
            return
        if number < last:
            self._ahead = 0
        self._is_unread = False
        self._move_to(number - self._ahead)

    def load(self, point: ResumePoint) -> None:
        """Makes the next iteration go on there."""
        self._move_to(point.epoch)
        self.loaded, self._ahead, self._again = point, point.ahead, point.again
        self._is_unread, self._is_iterated = True, False
        self._is_announced = bool(point.ahead or point.again)

    def place(self) -> dict[str, Any]:
        """Returns the fields of a :class:`.ResumePoint` that say where the loader is."""
        return {"epoch": self.epoch, "step": self.step, "ahead": self._ahead, "again": self._again}

    def read(self, batches: Callable[[int, int], Iterable[Any]], check: Callable[[ResumePoint], None]) -> Iterator[Any]:
        """Yields an epoch's mini-batches and counts them; begins at the first one asked for. ``batches`` makes those of
        an epoch from a step on; ``check`` raises where a state cannot be resumed."""
        self._is_iterated = True
        return self._read(batches, check, self._num_announced)

    def _read(
        self, batches: Callable[[int, int], Iterable[Any]], check: Callable[[ResumePoint], None], num_announced: int
    ) -> Iterator[Any]:
        start, point = 0, self.loaded
        if point is not None:
            check(point)
            start = point.step
        elif not self._is_chosen and self._is_announced and self._ahead >= 0:
            self._again += 1
        elif not self._is_chosen:
            self._go_on()
        reading = self.begin(start)
        yield from self.counted(batches(self.drawn_epoch, start), reading)
        was_over = start and self._reading is reading and self.step == start
        # Lightning, which calls iter() and then announces an epoch, wants no more of one that is over. In a loop by
        # hand, and in Fabric's, where iter() comes last, an empty epoch would be one that nobody asked for.
        if was_over and self._num_announced == num_announced:
            self._go_on()
            yield from self._read(batches, check, num_announced)

    def begin(self, step: int) -> object:
        """Begins an iteration at a step of the epoch. Returns what it is known by."""
        self.step, self.loaded, self._is_chosen, self._is_unread = step, None, False, False
        self._following.number = self.epoch + 1
        self._reading = object()
        return self._reading

    def counted(self, batches: Iterable[Any], reading: object) -> Iterator[Any]:
        """Counts mini-batches as they are read. Of several iterators, the last one sets the loader's position."""

        def count(batch: Any) -> Any:
            self.step += self._reading is reading
            return batch

        # A reference kept here would keep the last batch's slot while the next one is waited for.
        return map(count, batches)

    def _go_on(self) -> None:
        self._ahead -= self._is_announced
        self._move_to(self._following.number)

    def _move_to(self, epoch: int) -> None:
        self.epoch, self.step, self._again, self.loaded, self._is_chosen = epoch, 0, 0, None, True
