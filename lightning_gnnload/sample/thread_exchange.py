"""ThreadExchange: ranks that are threads of one process."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np

from lightning_gnnload.errors import ExchangeError
from lightning_gnnload.sample.exchange import Exchange


class ThreadExchange(Exchange):
    """Connects ranks of one process; made together by :meth:`connect`.

    Example:
        >>> left, right = ThreadExchange.connect(2)
        >>> left.rank, right.rank, left.num_ranks
        (0, 1, 2)
    """

    def __init__(self, table: _Table, rank: int) -> None:
        self.rank = rank
        self.num_ranks = len(table.brought)
        self._table = table

    @classmethod
    def connect(cls, num_ranks: int, timeout_s: float = 60.0) -> list[ThreadExchange]:
        """The exchanges of all ranks.

        Args:
            num_ranks: how many.
            timeout_s: a rank that keeps the others waiting for longer is an error.
        """
        table = _Table(num_ranks, timeout_s)
        return [cls(table, rank) for rank in range(num_ranks)]

    def all_to_all(self, outgoing: Sequence[np.ndarray]) -> list[np.ndarray]:
        return self._table.meet(self.rank, outgoing)

    def close(self) -> None:
        self._table.leave(self.rank)


class _Table:
    """What all ranks see. Each lays down what it brings to a turn, and takes what is its own when all have come.

    Two turns' things lie here at most: a rank that has come to turn t + 1 has taken all of turn t, and nobody comes to
    turn t + 2 before it has.
    """

    def __init__(self, num_ranks: int, timeout_s: float) -> None:
        self.brought: list[dict[int, Sequence[np.ndarray]]] = [{} for _ in range(num_ranks)]
        self._timeout_s = timeout_s
        self._num_turns = [0] * num_ranks
        self._gone: set[int] = set()
        self._changed = threading.Condition()

    def meet(self, rank: int, outgoing: Sequence[np.ndarray]) -> list[np.ndarray]:
        with self._changed:
            turn = self._num_turns[rank]
            self._num_turns[rank] += 1
            self.brought[rank].pop(turn - 2, None)
            self.brought[rank][turn] = outgoing
            self._changed.notify_all()
            all_came = self._changed.wait_for(lambda: self._have_come(turn) or self._lost(turn), self._timeout_s)
            if lost := self._lost(turn):
                raise ExchangeError(f"rank {rank} lost {_ranks(lost)}, which closed while others still sampled.")
            if not all_came:
                late = [each for each, turns in enumerate(self._num_turns) if turns <= turn]
                raise ExchangeError(
                    f"rank {rank} waited {self._timeout_s:g} s for {_ranks(late)}. All ranks open and close the "
                    "exchange alike; if one only takes long, give a larger timeout_s."
                )
            return [brought[turn][rank] for brought in self.brought]

    def leave(self, rank: int) -> None:
        with self._changed:
            self._gone.add(rank)
            self._changed.notify_all()

    def _have_come(self, turn: int) -> bool:
        return min(self._num_turns) > turn

    def _lost(self, turn: int) -> list[int]:
        return [rank for rank in sorted(self._gone) if self._num_turns[rank] <= turn]


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
