"""Dealer: deals the steps of one stream to samplers by demand, each to the one that will have made it in time."""

from __future__ import annotations

import bisect
import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np

from lightning_gnnload.pipeline.streams import StreamSpec

_NEWS = 0.25  # what the last mini-batch counts for in a pace
_HURRY_S = 0.01  # what must be won for a step to be made twice; less may be the system's doing
Who = TypeVar("Who", bound=Hashable)


class Pace:
    """How long a thread of a sampler takes for a mini-batch of one loader; 0 until one has come."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds

    def add(self, seconds: float) -> None:
        self.seconds += (seconds - self.seconds) * (_NEWS if self.seconds else 1)


@dataclass(eq=False)
class Hand:
    """What a sampler holds of a stream, the steps that it was asked for and that have not come; and how fast it is.

    Attributes:
        pace: of its mini-batches of this kind.
        num_threads: threads that it samples with, as it says when it has opened.
        owed: when it was asked for each of these steps, monotonic seconds.
        made_s: when its last mini-batch was made.
        has_opened: it has found the mini-batches of the stream; until then it may be filling a cache.
        home: names the steps that are drawn from the part of the graph that it holds.
    """

    pace: Pace
    num_threads: int = 1
    owed: dict[int, float] = field(default_factory=dict)
    made_s: float = -math.inf
    has_opened: bool = False
    home: int = -1


class Dealer(Generic[Who]):
    """Deals the steps of a stream to samplers: knows who was asked for which, and which are nobody's.

    A sampler is asked for as much as keeps it busy until the trainer looks again, and for more when that has come. As
    the trainer takes steps in order, a slow sampler is given one that is needed when it will be done, and leaves those
    before it to samplers that will have made them by then. How long mini-batches took tells which these are. Where that
    proves wrong, time is lost but no step: the awaited one is made by a sampler that has nothing else to do, too, and
    what comes second is dropped.

    Steps that have a home are made there, each sampler's in their order, while their sampler lives and is in time.

    Args:
        spec: of the stream.
        num_trainers: trainers that the samplers serve in turn.
        homes: of each step of the epoch, integers; None where all samplers make it alike.

    Attributes:
        hands: what each sampler holds.
        next_step: the steps before it are taken, or passed over.

    Example:
        >>> dealer = Dealer(StreamSpec("train", loader=0, reload=0, epoch=0, start=0, stop=100))
        >>> dealer.hands = {"fast": Hand(Pace(0.02)), "slow": Hand(Pace(0.1))}
        >>> dealer.deal({"fast": 4, "slow": 4}, now=0.0, deaf_s=0.01)
        [('fast', 0), ('fast', 1), ('slow', 4), ('slow', 10)]

    Source: GNNLab (EuroSys'22), section 5.2: mini-batches are assigned dynamically, to balance samplers; BGL (NSDI'23),
        section 3.1: samplers beside their parts.
    """

    def __init__(self, spec: StreamSpec, num_trainers: int = 1, homes: np.ndarray | None = None) -> None:
        self.spec = spec
        self.num_trainers = num_trainers
        self._homes = np.empty(0, np.int64) if homes is None else homes
        self._of_home = {home: np.flatnonzero(homes == home) for home in np.unique(self._homes).tolist()}
        self.hands: dict[Who, Hand] = {}
        self.next_step = spec.start
        self._begin = spec.start  # nobody was ever asked for the steps from here on
        self._left: list[int] = []  # steps before that which are nobody's, in order

    def came(self, who: Who, step: int, *, began_s: float, made_s: float) -> None:
        """Notes that a sampler has made a step, from when to when."""
        hand = self.hands.get(who)
        if hand is not None and hand.owed.pop(step, None) is not None:
            hand.pace.add(made_s - began_s)
            hand.made_s = max(hand.made_s, made_s)

    def give_back(self, step: int) -> None:
        """Notes that a step that was asked for will not come, or is lost."""
        if not any(step in hand.owed for hand in self.hands.values()):
            bisect.insort(self._left, step)

    def deal(
        self, room: Mapping[Who, int], *, now: float, deaf_s: float = 0.0, is_awaited: bool = False
    ) -> list[tuple[Who, int]]:
        """Deals out the steps that there is room for, and the next step in any case where the trainer waits for it.

        Args:
            room: slots that each sampler may still be asked to fill.
            now: monotonic seconds.
            deaf_s: how long the trainer may go without looking.
            is_awaited: the trainer waits for the next step.

        Returns:
            Who is to make which step.
        """
        dealt = []
        if is_awaited and (who := self._helper(room, now)) is not None:
            dealt.append((who, self.next_step))
            self._ask(who, self.next_step, now)
        left = {who: room[who] - sum(who == other for other, _ in dealt) for who in self._able()}
        while able := [who for who, slots in left.items() if slots > 0 and self._wants_more(who, deaf_s)]:
            who = min(able, key=lambda who: self._done_s(who, now))
            if not len(self._homes):
                step = self._nobodys(self._num_made_before(who, now))
            else:
                step = self._nobodys_at(self.hands[who].home)
            if step is None:
                del left[who]  # others will have made all that is left before it has made one
                continue
            self._ask(who, step, now)
            left[who] -= 1
            dealt.append((who, step))
        return dealt

    @property
    def patience_s(self) -> float:
        """How long to wait before looking again whether someone idle can help: as long as it takes for a batch."""
        return min((self._latency_s(who) for who in self._idle()), default=math.inf) + _HURRY_S

    def _helper(self, room: Mapping[Who, int], now: float) -> Who | None:
        """Finds who is to make the next step, if it is nobody's, or if someone who is idle will have made it first.

        Slots do not count: all may hold later steps, of a sampler that inherits this one, say.
        """
        if self._nobodys(0) == self.next_step:
            home = self._homes[self.next_step] if len(self._homes) else None
            rank = {who: (home not in (None, self.hands[who].home), room[who] <= 0) for who in self._able()}
            return min(rank, key=lambda who: (*rank[who], self._done_s(who, now)), default=None)
        due_s = [self._rest_s(who, now) for who, hand in self.hands.items() if self.next_step in hand.owed]
        who = min(self._idle(), key=self._latency_s, default=None)
        return None if who is None or self._latency_s(who) + _HURRY_S >= min(due_s, default=0) else who

    # Who may make what.

    def _able(self) -> list[Who]:
        """Returns who can make mini-batches at once, or all where nobody can yet."""
        return [who for who, hand in self.hands.items() if hand.has_opened] or list(self.hands)

    def _idle(self) -> list[Who]:
        return [who for who, hand in self.hands.items() if hand.has_opened and not hand.owed]

    def _wants_more(self, who: Who, deaf_s: float) -> bool:
        """Whether a sampler may run out of steps before the trainer looks again; alone, it takes none from others."""
        hand = self.hands[who]
        spare = deaf_s / self._interval_s(who) if hand.pace.seconds else 0
        return len(self.hands) == 1 or len(hand.owed) < hand.num_threads + spare

    def _ask(self, who: Who, step: int, now: float) -> None:
        self.hands[who].owed[step] = now
        if step >= self._begin:
            self._left += range(max(self._begin, self.next_step), step)
            self._begin = step + 1
        else:
            self._left = [other for other in self._left if self.next_step <= other != step]

    def _nobodys(self, index: int) -> int | None:
        """Returns the step that is nobody's with so many before it, if there is one."""
        left = [step for step in self._left if step >= self.next_step]
        step = left[index] if index < len(left) else max(self._begin, self.next_step) + index - len(left)
        return step if step < self.spec.stop else None

    def _nobodys_at(self, home: int) -> int | None:
        """Returns the first step that is nobody's, of a home or of one whose sampler is gone, if there is one."""
        homes = {home, *(self._of_home.keys() - {hand.home for hand in self.hands.values()})}
        # Those left are few: a slower sampler's steps, as far as the slots of a faster one reach.
        found = [step for step in self._left if step >= self.next_step and self._homes[step] in homes][:1]
        begin = max(self._begin, self.next_step)
        for steps in [self._of_home[each] for each in homes & self._of_home.keys()]:
            found += steps[np.searchsorted(steps, begin) :][:1].tolist()
        return min((step for step in found if step < self.spec.stop), default=None)

    # What is known ahead. Seconds from now, for a trainer that gets its part of each sampler.

    def _latency_s(self, who: Who) -> float:
        """How long a sampler takes for a mini-batch; one that is not known, as long as the slowest that is."""
        paces = [hand.pace.seconds for hand in self.hands.values()]
        return (self.hands[who].pace.seconds or max(paces) or 1.0) * self.num_trainers

    def _interval_s(self, who: Who) -> float:
        """The time between two mini-batches of a busy sampler."""
        return self._latency_s(who) / self.hands[who].num_threads

    def _rest_s(self, who: Who, now: float) -> float:
        """When the first of the steps that a sampler owes will come: the longer it is late, the later."""
        hand = self.hands[who]
        due_s = self._interval_s(who) if len(hand.owed) >= hand.num_threads else self._latency_s(who)
        return abs(due_s - (now - max(hand.made_s, next(iter(hand.owed.values())))))

    def _free_s(self, who: Who, now: float) -> float:
        """When a sampler will have made what it owes."""
        owed = self.hands[who].owed
        return self._rest_s(who, now) + (len(owed) - 1) * self._interval_s(who) if owed else 0.0

    def _done_s(self, who: Who, now: float) -> float:
        """When a sampler would have made one step more."""
        return max(self._free_s(who, now) + self._interval_s(who), self._latency_s(who))

    def _num_made_before(self, who: Who, now: float) -> int:
        """How many steps more others would make before a sampler had made one."""
        done_s = self._done_s(who, now)
        return sum(
            max(math.ceil((done_s - self._free_s(other, now)) / self._interval_s(other) - 1e-6) - 1, 0)
            for other in self._able()
            if other != who and self._latency_s(other) < done_s
        )
