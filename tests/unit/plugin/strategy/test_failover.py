"""A sampler that serves in a child process first, and in its own after that one is killed."""

import gc
import logging
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from lightning_gnnload.errors import SamplerFailedError, TrainerFailedError
from lightning_gnnload.host.memfd import MemoryFile
from lightning_gnnload.pipeline.queue.failure import Failure
from lightning_gnnload.pipeline.queue.sealed import seal, unseal
from lightning_gnnload.plugin.strategy import failover


class Service:
    """Serves as it is told to; in a second life it serves well."""

    rank = 3
    has_all_trainers = True

    def __init__(self, first_life) -> None:
        self.first_life = first_life
        self.rank_pid = os.getpid()
        self.is_closed = False

    def serve(self, *, is_successor: bool = False) -> MemoryFile | None:
        if os.getpid() != self.rank_pid:
            return seal({"epoch": 1, "made": self.first_life()})
        return seal({"epoch": 2, "is_successor": is_successor})

    def close(self) -> None:
        self.is_closed = True


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def raising() -> None:
    raise ArithmeticError("no luck")


def ending_with_a_trainer() -> None:
    raise Failure("trainer", 1, False, "training", "ValueError: a bad batch").error()


def test_the_childs_outcome_is_the_ranks() -> None:
    service = Service(lambda: "much")
    before = set(os.listdir("/proc/self/fd"))
    outcome = failover.serve(service, with_failover=True)
    assert unseal(outcome) == {"epoch": 1, "made": "much"}
    outcome.close()
    del outcome
    gc.collect()
    assert set(os.listdir("/proc/self/fd")) <= before  # what other tests have left may go at any moment
    assert service.is_closed  # else trainers of the next launch would find the socket of this one


def test_a_killed_child_is_followed_by_the_rank_itself() -> None:
    assert unseal(failover.serve(Service(killed), with_failover=True)) == {"epoch": 2, "is_successor": True}


def test_a_child_that_heard_no_outcome_has_none_for_its_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Service, "serve", lambda *_, **__: None)
    assert failover.serve(Service(killed), with_failover=True) is None


def test_one_life_is_led_in_the_rank() -> None:
    assert unseal(failover.serve(Service(killed), with_failover=False)) == {"epoch": 2, "is_successor": False}


def test_what_ends_the_child_ends_the_rank() -> None:
    with pytest.raises(SamplerFailedError, match=r"sampler rank 3 failed(.|\n)*ArithmeticError: no luck"):
        failover.serve(Service(raising), with_failover=True)
    with pytest.raises(TrainerFailedError, match=r"trainer rank 1 failed(.|\n)*a bad batch"):
        failover.serve(Service(ending_with_a_trainer), with_failover=True)


def test_signals_go_to_the_child_and_handlers_come_back() -> None:
    def wait_for_signal() -> str:
        heard: list[int] = []
        signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))
        os.kill(os.getppid(), signal.SIGTERM)  # a launcher knows the rank's process only
        while not heard:
            time.sleep(0.01)
        return "heard"

    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)]
    outcome = unseal(failover.serve(Service(wait_for_signal), with_failover=True, ignore=[signal.SIGUSR1]))
    assert outcome["made"] == "heard"
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)] == before


def test_a_signal_amid_the_fork_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes to the rank before the child can hear of it."""
    fork = os.fork

    def fork_and_hear() -> int:
        if pid := fork():
            os.kill(os.getpid(), signal.SIGTERM)
        return pid

    def wait() -> None:
        for _ in range(2000):  # in pieces: Python hears of a signal that comes just before a sleep only after it
            time.sleep(0.01)

    monkeypatch.setattr(os, "fork", fork_and_hear)
    service = Service(wait)
    service.has_all_trainers = False
    with pytest.raises(SamplerFailedError, match="was interrupted"):
        failover.serve(service, with_failover=True)


def test_before_trainers_come_a_signal_ends_it() -> None:
    def interrupted() -> None:
        os.kill(os.getpid(), signal.SIGINT)

    service = Service(interrupted)
    service.has_all_trainers = False
    with pytest.raises(SamplerFailedError, match="was interrupted") as caught:
        failover.serve(service, with_failover=True)
    assert caught.value.failure.interrupted


def test_a_process_that_uses_cuda_is_not_forked(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    assert unseal(failover.serve(Service(killed), with_failover=True)) == {"epoch": 2, "is_successor": False}
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_signals_stay_with_whoever_started_a_process_that_samples_in_another_thread() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with ThreadPoolExecutor(1) as thread:  # as Ray Train runs functions; there, Python sets no handlers
        outcome = thread.submit(failover.serve, Service(killed), with_failover=False, ignore=[signal.SIGUSR1]).result()
    assert unseal(outcome) == {"epoch": 2, "is_successor": False}
    assert signal.getsignal(signal.SIGTERM) is before
