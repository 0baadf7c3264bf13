"""DistributedExchange: ranks that are processes, over a process group of torch.distributed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

import numpy as np
import torch
from torch import distributed

from lightning_gnnload.errors import ExchangeError
from lightning_gnnload.sample.exchange import Exchange

DEFAULT_TIMEOUT_S = 300.0
"""A rank's thread of turns comes to every turn, whatever the others of its process do."""


class DistributedExchange(Exchange):
    """Connects the ranks of a process group. The group is for this alone: no other collective may come between.

    The group's own timeout says how long a rank waits for the others; where one is killed, gloo tells at once.

    Args:
        group: of the ranks that hold one part each, rank ``p`` part ``p``.
        device: where the group communicates: the CPU with gloo; a GPU with NCCL, by way of which all bytes go then.
            NCCL has not been run yet.
        destroy: gives the group back; called by :meth:`close`.
    """

    def __init__(
        self,
        group: distributed.ProcessGroup,
        device: torch.device | str = "cpu",
        destroy: Callable[[distributed.ProcessGroup], None] | None = None,
    ) -> None:
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
    ) -> DistributedExchange:
        """Over gloo, in processes that need have no default group.

        Args:
            store: where the ranks find each other; for this exchange alone.
            rank: this one, of ``num_ranks``.
            num_ranks: how many.
            timeout_s: how long to wait for the others, when they meet and in each turn.
            interface: of the network, ``"lo"`` for ranks of one machine; None leaves it to gloo.

        Raises:
            ExchangeError: a rank has not come in time.
        """
        gloo = distributed.ProcessGroupGloo
        options = gloo._Options()  # type: ignore[attr-defined]
        options._timeout = timedelta(seconds=timeout_s)
        try:
            options._devices = [gloo.create_device(interface=interface) if interface else gloo.create_default_device()]
            group = gloo(store, rank, num_ranks, options)
        except RuntimeError as error:
            raise ExchangeError(
                f"rank {rank} of {num_ranks} did not meet all others in {timeout_s:g} s ({str(error).strip()}). All "
                "ranks that sample together open their exchange; their own logs say why one has not."
            ) from error
        return cls(group)  # type: ignore[arg-type]

    def all_to_all(self, outgoing: Sequence[np.ndarray]) -> list[np.ndarray]:
        own = outgoing[self.rank]
        sent = [data if rank != self.rank else data[:0] for rank, data in enumerate(outgoing)]
        try:
            # Everyone tells everyone the largest of its messages: so all know alike whether there is anything.
            largest = max(map(len, sent))
            heads = np.array([[len(data), largest] for data in sent], np.int64)
            told = self._move(heads.view(np.uint8).reshape(-1), [16] * self.num_ranks, [16] * self.num_ranks)
            sizes, largest_of = told.view(np.int64).reshape(-1, 2).T.tolist()
            if not any(largest_of):
                received = [own[:0]] * self.num_ranks
            else:
                moved = self._move(np.concatenate(sent), list(map(len, sent)), sizes)
                received = np.split(moved, np.cumsum(sizes)[:-1])
        except RuntimeError as error:
            others = [str(rank) for rank in range(self.num_ranks) if rank != self.rank]
            whom = f"rank {others[0]}" if len(others) == 1 else f"one of the ranks {', '.join(others)}"
            reason = str(error).strip().split(". ")[0]
            raise ExchangeError(
                f"rank {self.rank} lost {whom}, with which it samples: it ended, or kept the others waiting for too "
                f"long. Its own log says more; the network says: {reason}."
            ) from error
        received[self.rank] = own
        return received

    def close(self) -> None:
        group, self._group = self._group, None
        if group is not None and self._destroy is not None:
            self._destroy(group)

    def _move(self, data: np.ndarray, sent_bytes: list[int], received_bytes: list[int]) -> np.ndarray:
        if self._group is None:
            raise ExchangeError(f"rank {self.rank} has closed its exchange.")
        outgoing = torch.from_numpy(data).to(self._device)
        incoming = torch.empty(sum(received_bytes), dtype=torch.uint8, device=self._device)
        self._group.alltoall_base(incoming, outgoing, received_bytes, sent_bytes).wait()
        return incoming.cpu().numpy()
