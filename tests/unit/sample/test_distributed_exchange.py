"""DistributedExchange: ranks that are processes sample together over gloo, and learn of each other's end."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from torch import distributed

from lightning_gnnload import NeighborSampler, WeightedNeighborSampler
from lightning_gnnload.errors import ExchangeError
from lightning_gnnload.sample.group.exchange import DistributedExchange
from lightning_gnnload.sample.parts.collective import CollectiveSampler, open_colleagues
from tests.unit.sample.parts.test_collective import random_graph, sample_all
from tests.unit.sample.ranks import disjoint

TIMEOUT_S = 30.0


def in_processes(work: Callable[[DistributedExchange], None], num_ranks: int, folder: Path) -> list[tuple[int, str]]:
    """Of each rank: the status, minus the signal that ended it, and what it wrote to its log."""
    pids = []
    for rank in range(num_ranks):
        pid = os.fork()  # a new interpreter takes seconds to import torch
        if pid == 0:
            status = 1
            try:
                log = os.open(folder / f"log{rank}", os.O_CREAT | os.O_WRONLY)
                os.dup2(log, 1)
                os.dup2(log, 2)
                signal.alarm(60)
                os.environ["GLOO_SOCKET_IFNAME"] = "lo"
                store = distributed.FileStore(str(folder / "store"), num_ranks)
                work(DistributedExchange.connect(store, rank, num_ranks, TIMEOUT_S))
                status = 0
            except BaseException as error:
                os.write(2, repr(error).encode())
            finally:
                os._exit(status)
        pids.append(pid)
    statuses = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    return [(status, (folder / f"log{rank}").read_text()) for rank, status in enumerate(statuses)]


def test_all_to_all(tmp_path: Path) -> None:
    """Uneven sizes, nothing at all, and what a rank sends to itself."""

    def work(exchange: DistributedExchange) -> None:
        for sizes in ([[0, 3, 7], [2, 0, 0], [100_000, 1, 5]], [[0] * 3] * 3, [[4, 0, 0]] + [[0] * 3] * 2):
            sent = [np.full(size, 10 * exchange.rank + to, np.uint8) for to, size in enumerate(sizes[exchange.rank])]
            received = exchange.all_to_all(sent)
            for sender, data in enumerate(received):
                assert data.tolist() == [10 * sender + exchange.rank] * sizes[sender][exchange.rank]
            assert np.shares_memory(received[exchange.rank], sent[exchange.rank]) or not len(sent[exchange.rank])
        exchange.close()

    assert in_processes(work, 3, tmp_path) == [(0, "")] * 3


def test_samples_as_one_rank_does(tmp_path: Path) -> None:
    graph = random_graph(3, num_nodes=400, num_edges=6000)
    partition = disjoint(graph, np.arange(400) % 2, 2)

    def work(exchange: DistributedExchange) -> None:
        with open_colleagues(partition, exchange) as colleagues:
            for sampler in (NeighborSampler([5, -1], edge_ids=True), WeightedNeighborSampler([4, 4, 4])):
                for paradigm in ("push", "pull"):
                    found = sample_all(CollectiveSampler(sampler, colleagues, paradigm), graph, exchange.rank)
                    assert found == sample_all(sampler, graph, exchange.rank)

    assert in_processes(work, 2, tmp_path) == [(0, "")] * 2


def test_a_killed_rank_is_an_error_in_all_others(tmp_path: Path) -> None:
    """Of those that sample, and of those that wait to be closed; long before the time limit."""
    graph = random_graph(0)
    partition = disjoint(graph, np.arange(60) % 3, 3)

    def work(exchange: DistributedExchange) -> None:
        colleagues = open_colleagues(partition, exchange)
        sampler, began = CollectiveSampler(NeighborSampler([3, 3]), colleagues), time.monotonic()
        try:
            for step in range(10**6):
                if step == 20 and exchange.rank == 1:
                    os.kill(os.getpid(), signal.SIGKILL)
                if exchange.rank == 2:
                    colleagues.close()
                sampler.sample(None, [step % 60], step=step)
        except ExchangeError as error:
            os.write(1, str(error).encode())
            assert time.monotonic() - began < TIMEOUT_S / 2

    (first, text), (killed, _), (last, other) = in_processes(work, 3, tmp_path)
    assert (first, killed, last) == (0, -signal.SIGKILL, 0)
    assert "rank 0 lost one of the ranks 1, 2" in text
    assert "rank 2 lost one of the ranks 0, 1" in other


def test_a_process_that_ends_without_closing_tells_the_others(tmp_path: Path) -> None:
    graph = random_graph(0)
    partition = disjoint(graph, np.arange(60) % 2, 2)

    def work(exchange: DistributedExchange) -> None:
        colleagues = open_colleagues(partition, exchange)
        if exchange.rank == 1:
            colleagues._all_to_all._exit()  # as the interpreter does, which a fork of a test does not come to
            return
        sampler = CollectiveSampler(NeighborSampler([3, 3]), colleagues)
        try:
            for step in range(10**6):
                sampler.sample(None, [step % 60], step=step)
        except ExchangeError as error:
            os.write(1, str(error).encode())

    (first, text), (second, _) = in_processes(work, 2, tmp_path)
    assert (first, second) == (0, 0)
    assert text == "rank 1: its process ended without closing its exchange."


def test_messages_name_ranks_as_the_job_does(tmp_path: Path) -> None:
    """Samplers' ranks come after the trainers' of all machines."""

    def work(exchange: DistributedExchange) -> None:
        exchange.global_ranks = (4, 7)
        message = [np.zeros(1, np.uint8)] * 2
        exchange.all_to_all(message)  # a rank that ends before the other has looked at it is taken for a stranger
        if exchange.rank == 0:
            with pytest.raises(ExchangeError, match="rank 4 lost rank 7"):
                exchange.all_to_all(message)

    assert in_processes(work, 2, tmp_path) == [(0, "")] * 2
