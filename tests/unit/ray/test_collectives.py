"""Samplers call what trainers call, where Ray waits for all workers."""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import ExitStack
from typing import Any

import pytest

pytest.importorskip("ray")

from lightning_gnnload.ray import collectives, compat
from tests.unit.pipeline.job import job

pytestmark = pytest.mark.timeout(60)
TRAINER = "MainThread"


class Workers:
    """Ray Train's functions for workers that are threads: each call waits for all of them."""

    def __init__(self, num_workers: int, refused: str = "") -> None:
        self.barriers = {name: threading.Barrier(num_workers, timeout=10) for name in ("report", "barrier")}
        self.calls: list[tuple[str, str]] = []
        self.refused = refused

    def _call(self, name: str) -> None:
        who = threading.current_thread().name
        if name == self.refused and who != TRAINER:
            raise OSError("no room for a report")
        self.barriers[name].wait() if not self.refused else None
        self.calls.append((who, name))

    def report(self, metrics: dict[str, Any], **_: Any) -> None:
        self._call("report")

    def barrier(self) -> None:
        self._call("barrier")

    def get_context(self) -> str:
        return "the context"


@pytest.fixture
def _workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compat.train_fn_utils, "_train_fn_utils", None)


def run(workers: Workers, num_samplers: int, calls: tuple[str, ...], num_told: int | None = None) -> None:
    with job(num_samplers=num_samplers) as running, ExitStack() as stack:
        compat.train_fn_utils.set_train_fn_utils(workers)
        for service in running.services:
            stack.enter_context(collectives.answered_beside(service))
        trainer = collectives._AnnouncedFunctions(
            running.queue(), num_samplers if num_told is None else num_told, workers
        )
        assert trainer.get_context() == "the context"
        for name in calls:
            getattr(trainer, name)(*([{"loss": 1.0}] if name == "report" else []))
        running.part()
        running.join()


@pytest.mark.usefixtures("_workers")
@pytest.mark.parametrize("num_samplers", [1, 2])
def test_each_sampler_calls_as_often_as_trainers_do_and_in_their_order(num_samplers: int) -> None:
    workers = Workers(1 + num_samplers)
    calls = ("report", "report", "barrier", "report")
    run(workers, num_samplers, calls)  # a call too few waits ten seconds, and fails
    by_thread = [[name for who, name in workers.calls if who == TRAINER], list(calls)]
    assert by_thread[0] == by_thread[1]
    assert Counter(name for _, name in workers.calls) == {"report": 3 * (1 + num_samplers), "barrier": 1 + num_samplers}
    assert not [thread for thread in threading.enumerate() if thread.name == "gnnload-ray"]


@pytest.mark.usefixtures("_workers")
def test_samplers_of_other_machines_are_told_by_one_trainer_alone() -> None:
    workers = Workers(2)
    run(workers, 2, ("report",), num_told=1)  # the second sampler would wait for more workers than there are
    assert [name for _, name in workers.calls] == ["report", "report"]


@pytest.mark.usefixtures("_workers")
def test_what_a_call_raises_in_a_sampler_ends_that_sampler() -> None:
    with pytest.raises(OSError, match="no room for a report"):
        run(Workers(2, refused="report"), 1, ("report",))


@pytest.mark.usefixtures("_workers")
def test_a_sampler_that_fails_does_not_wait_for_trainers_that_never_call() -> None:
    workers, began = Workers(2), time.monotonic()
    with job() as running:
        compat.train_fn_utils.set_train_fn_utils(workers)
        queue, beside = running.queue(), collectives.answered_beside(running.services[0])
        beside.__enter__()
        queue.send(0, "collective", name="report")  # the trainer ends before it calls
        time.sleep(0.2)
        error = ArithmeticError("no luck")
        assert not beside.__exit__(ArithmeticError, error, None)  # the error goes on, as it came
        assert time.monotonic() - began < 5
        workers.barriers["report"].abort()  # here Ray would end the process


@pytest.mark.usefixtures("_workers")
def test_outside_of_ray_train_there_is_no_context() -> None:
    from lightning_gnnload.errors import LaunchError

    with pytest.raises(
        LaunchError, match=r"RayFactoredStrategy is made in the function that Ray Train runs(.|\n)*use F"
    ):
        compat.train_context()
