"""Ranks that are threads, and some that are slow."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lightning_gnnload import Graph
from lightning_gnnload.data.partition import Partition
from lightning_gnnload.sample.group.exchange import Exchange, ThreadExchange
from lightning_gnnload.sample.group.group import SamplingGroup
from lightning_gnnload.sample.parts.collective import open_colleagues
from tests.unit.parts import partition_of


def disjoint(graph: Graph, part_of: np.ndarray, num_parts: int) -> Partition:
    """Each list with its owner; parts may be empty."""
    return partition_of(graph, part_of, {}, hops=0, num_parts=num_parts)


class Slow(Exchange):
    """An exchange whose rank comes late to some rounds, and leaves some late."""

    def __init__(self, inner: Exchange) -> None:
        self.inner, self.rank, self.num_ranks = inner, inner.rank, inner.num_ranks
        self._random = random.Random(inner.rank)

    def all_to_all(self, outgoing: Sequence[np.ndarray]) -> list[np.ndarray]:
        self.dawdle()
        received = self.inner.all_to_all(outgoing)
        self.dawdle()
        return received

    def dawdle(self) -> None:
        time.sleep(self._random.choice([0, 0, 0, 0.003]))

    def close(self) -> None:
        self.inner.close()


def on_ranks(work: Callable[[Any], Any], ranks: Sequence[Any], timeout_s: float = 60) -> list[Any]:
    """What each rank's work comes to, all at once in threads; an error where it raises one."""
    results: list[Any] = [None] * len(ranks)

    def run(rank: int) -> None:
        try:
            results[rank] = work(ranks[rank])
        except BaseException as error:
            results[rank] = error

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(len(ranks))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout_s)
    assert not any(thread.is_alive() for thread in threads), "a rank hangs"
    return results


def over_parts(
    partition: Partition, work: Callable[[SamplingGroup], Any], exchanges: Sequence[Exchange] | None = None
) -> list[Any]:
    """What each rank does with its colleagues, who part when all are done; raises what any of them raised."""

    def meet(exchange: Exchange) -> Any:
        with open_colleagues(partition, exchange) as colleagues:
            return work(colleagues)

    results = on_ranks(meet, exchanges or ThreadExchange.connect(partition.num_parts, timeout_s=20))
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results
