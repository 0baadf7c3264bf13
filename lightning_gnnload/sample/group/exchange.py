"""Exchange: how ranks that sample together pass each other tasks and results, as threads or as processes."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import timedelta

import numpy as np
import torch
from torch import distributed

from lightning_gnnload.errors import ExchangeError, StrangerError
from lightning_gnnload.host.socket_owners import guarded_group

DEFAULT_TIMEOUT_S = 300.0
"""Seconds that a round waits for a rank: its thread comes once it has served, whatever else its process does."""


class Exchange(ABC):
    """The all-to-all communication among ranks that hold one part each; one thread a rank calls it, so all ranks call
    in one order (DSP, PPoPP'23, section 5, by construction). ``global_ranks`` has the ranks' names for messages."""

    rank: int
    num_ranks: int
    global_ranks: Sequence[int] = ()

    def global_rank(self, rank: int) -> int:
        """Returns what messages call the rank that holds part ``rank``."""
        return self.global_ranks[rank] if self.global_ranks else rank

    @abstractmethod
    def all_to_all(self, outgoing: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Sends ``outgoing[r]`` (uint8) to rank ``r``, and returns what each rank sent here, once every rank has called
        it. What a rank sends to itself is not copied. ExchangeError: a rank is gone or late."""

    @abstractmethod
    def close(self) -> None:
        """Gives back what it took. Safe to call twice."""


class ThreadExchange(Exchange):
    """Connects ranks that are threads of one process; :meth:`connect` makes the exchanges of all.

    Example:
        >>> left, right = ThreadExchange.connect(2)
        >>> left.rank, right.rank, left.num_ranks
        (0, 1, 2)
    """

    def __init__(self, rounds: _Rounds, rank: int) -> None:
        self.rank = rank
        self.num_ranks = len(rounds.brought)
        self._rounds = rounds

    @classmethod
    def connect(cls, num_ranks: int, timeout_s: float = 60.0) -> list[ThreadExchange]:
        """Makes the exchanges of all ranks. A rank that keeps the others waiting for ``timeout_s`` is an error."""
        rounds = _Rounds(num_ranks, timeout_s)
        return [cls(rounds, rank) for rank in range(num_ranks)]

    def all_to_all(self, outgoing: Sequence[np.ndarray]) -> list[np.ndarray]:
        return self._rounds.meet(self.rank, outgoing)

    def close(self) -> None:
        self._rounds.leave(self.rank)


class _Rounds:
    """Where ranks leave what they bring to a round, and take what is theirs once all have come.

    It keeps two rounds' messages at most: a rank that has come to round t + 1 has taken all of round t, and none comes
    to round t + 2 before that.
    """

    def __init__(self, num_ranks: int, timeout_s: float) -> None:
        self.brought: list[dict[int, Sequence[np.ndarray]]] = [{} for _ in range(num_ranks)]
        self._timeout_s = timeout_s
        self._num_rounds = [0] * num_ranks
        self._gone: set[int] = set()
        self._changed = threading.Condition()

    def meet(self, rank: int, outgoing: Sequence[np.ndarray]) -> list[np.ndarray]:
        with self._changed:
            at = self._num_rounds[rank]
            self._num_rounds[rank] += 1
            self.brought[rank].pop(at - 2, None)
            self.brought[rank][at] = outgoing
            self._changed.notify_all()
            all_came = self._changed.wait_for(lambda: self._have_come(at) or self._lost(at), self._timeout_s)
            if lost := self._lost(at):
                raise ExchangeError(f"rank {rank} lost {_ranks(lost)}, which closed while others still sampled.")
            if not all_came:
                late = [other_rank for other_rank, rounds in enumerate(self._num_rounds) if rounds <= at]
                raise ExchangeError(
                    f"rank {rank} waited {self._timeout_s:g} s for {_ranks(late)}. All ranks open and close the "
                    "exchange alike; if one only takes long, give a larger timeout_s."
                )
            return [brought[at][rank] for brought in self.brought]

    def leave(self, rank: int) -> None:
        with self._changed:
            self._gone.add(rank)
            self._changed.notify_all()

    def _have_come(self, at: int) -> bool:
        return min(self._num_rounds) > at

    def _lost(self, at: int) -> list[int]:
        # A rank that laid its things down before it left is no loss to this round.
        return [rank for rank in sorted(self._gone) if self._num_rounds[rank] <= at]


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


class DistributedExchange(Exchange):
    """Connects ranks over a torch process group, on which no other collective may run.

    The group's own timeout bounds waiting; where a rank is killed, gloo reports at once. ``device`` is the CPU with
    gloo, or a GPU with NCCL (untested), through which all bytes then go. ``destroy`` gives the group back on
    :meth:`close`; ``ranks`` are their global ranks, for messages.
    """

    def __init__(
        self,
        group: distributed.ProcessGroup,
        device: torch.device | str = "cpu",
        destroy: Callable[[distributed.ProcessGroup], None] | None = None,
        ranks: Sequence[int] = (),
    ) -> None:
        self.global_ranks = ranks
        self.rank = group.rank()
        self.num_ranks = group.size()
        self._group: distributed.ProcessGroup | None = group
        self._device = torch.device(device)
        self._destroy = destroy

    @classmethod
    def connect(
        cls,
        store: distributed.Store,
        rank: int,
        num_ranks: int,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        interface: str | None = None,
        ranks: Sequence[int] = (),
    ) -> DistributedExchange:
        """Connects the ranks over gloo, in processes that need no default group.

        ``store`` serves this exchange alone; ``interface`` is ``"lo"`` for ranks of one machine, None leaves it to
        gloo. Raises ExchangeError where a rank is late, StrangerError where a process of another user came in a rank's
        place.
        """
        # The class itself, as distributed.new_group wants a default group, which sampling processes may not have.
        gloo = distributed.ProcessGroupGloo
        options = gloo._Options()  # type: ignore[attr-defined]
        options._timeout = timedelta(seconds=timeout_s)
        try:
            with guarded_group(num_ranks):
                device = gloo.create_device(interface=interface) if interface else gloo.create_default_device()
                options._devices = [device]
                group = gloo(store, rank, num_ranks, options)
        except StrangerError:
            raise
        except RuntimeError as error:
            raise ExchangeError(
                f"rank {ranks[rank] if ranks else rank} did not meet all {num_ranks - 1} others in {timeout_s:g} s "
                f"({str(error).strip()}). All ranks that sample together open their exchange; their own logs say why "
                "one has not."
            ) from error
        return cls(group, ranks=ranks)  # type: ignore[arg-type]

    def all_to_all(self, outgoing: Sequence[np.ndarray]) -> list[np.ndarray]:
        to_itself = outgoing[self.rank]
        sent = [data if rank != self.rank else data[:0] for rank, data in enumerate(outgoing)]
        try:
            # Everyone tells everyone the largest of its messages: so all know alike whether there is anything.
            largest = max(map(len, sent))
            heads = np.array([[len(data), largest] for data in sent], np.int64)
            counts = self._move(heads.view(np.uint8).reshape(-1), [16] * self.num_ranks, [16] * self.num_ranks)
            sizes, largest_of = counts.view(np.int64).reshape(-1, 2).T.tolist()
            # An idle round then costs one small all-to-all instead of two.
            if not any(largest_of):
                received = [to_itself[:0]] * self.num_ranks
            else:
                moved = self._move(np.concatenate(sent), list(map(len, sent)), sizes)
                received = np.split(moved, np.cumsum(sizes)[:-1])
        except RuntimeError as error:
            peers = [str(self.global_rank(rank)) for rank in range(self.num_ranks) if rank != self.rank]
            whom = f"rank {peers[0]}" if len(peers) == 1 else f"one of the ranks {', '.join(peers)}"
            reason = str(error).strip().split(". ")[0]
            raise ExchangeError(
                f"rank {self.global_rank(self.rank)} lost {whom}, with which it samples: it ended, or kept the others "
                f"waiting for too long. Its own log says more; the network says: {reason}."
            ) from error
        received[self.rank] = to_itself
        return received

    def close(self) -> None:
        group, self._group = self._group, None
        if group is not None and self._destroy is not None:
            self._destroy(group)

    def _move(self, data: np.ndarray, sent_bytes: list[int], received_bytes: list[int]) -> np.ndarray:
        if self._group is None:
            raise ExchangeError(f"rank {self.global_rank(self.rank)} has closed its exchange.")
        outgoing = torch.from_numpy(data).to(self._device)
        incoming = torch.empty(sum(received_bytes), dtype=torch.uint8, device=self._device)
        self._group.alltoall_base(incoming, outgoing, received_bytes, sent_bytes).wait()
        return incoming.cpu().numpy()
