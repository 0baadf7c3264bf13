"""What a rank hears that waits for rank 0 to decide."""

from __future__ import annotations

import json
import threading
import time
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import torch.distributed

from lightning_gnnload.errors import TrainerDiedError, TrainerFailedError
from lightning_gnnload.host.heartbeat import Patience
from lightning_gnnload.pipeline.forecast.stages import StageTimes
from lightning_gnnload.pipeline.queue.failure import Failure
from lightning_gnnload.plugin import handover
from lightning_gnnload.plugin.job import RoleDecision
from lightning_gnnload.plugin.strategy import agreement
from lightning_gnnload.plugin.strategy.rendezvous import LOOPBACK, _listen, meet

DECISION = RoleDecision(4, 2, StageTimes(30.0, 0.0, 30.0, 0.0, 0.0, 40.0, 10.0), measured_on={"machine": "this"})


def test_the_decision_arrives_however_late() -> None:
    store = torch.distributed.HashStore()
    said = json.dumps({"decision": DECISION.to_json()})
    late = threading.Timer(0.3, lambda: store.set(agreement._KEY, said))
    late.start()
    assert agreement._hear(store) == DECISION
    late.join()


def test_a_failure_arrives_as_the_error_of_the_rank_that_failed() -> None:
    store = torch.distributed.HashStore()
    failure = Failure.of(ValueError("too wide"), role="trainer", rank=0, stage="deciding roles")
    store.set(agreement._KEY, json.dumps({"failure": failure.to_json()}))
    with pytest.raises(TrainerFailedError, match=r"(?s)trainer rank 0.*'deciding roles'.*ValueError: too wide"):
        agreement._hear(store)


def test_a_rank_0_that_vanishes_is_noticed() -> None:
    port = _free_port()
    limit = timedelta(seconds=10)
    listener = {"master_listen_fd": _listen(LOOPBACK, port, True)}
    server = torch.distributed.TCPStore(LOOPBACK, port, None, True, limit, wait_for_workers=False, **listener)
    client = torch.distributed.TCPStore(LOOPBACK, port, None, False, limit, wait_for_workers=False)
    heard: list[BaseException] = []

    def hear() -> None:
        try:
            agreement._hear(client)
        except BaseException as error:
            heard.append(error)

    waiting = threading.Thread(target=hear)
    waiting.start()
    time.sleep(0.2)
    del server
    waiting.join(10)
    assert [type(error) for error in heard] == [TrainerDiedError]


def test_a_process_that_started_this_one_and_is_gone_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its store lies in memory, which ranks can read on: they would wait there for ever."""
    with handover.for_spawned() as handed:
        monkeypatch.setattr(handover, "_current", handed)
    with pytest.raises(TrainerDiedError, match="rank 0 ended while it decided"):
        agreement._hear(torch.distributed.HashStore())


def test_a_rank_0_that_is_slow_to_open_the_store_is_waited_for_while_it_gets_on() -> None:
    port = _free_port()
    patience = Patience(0.3, 60.0, is_busy=lambda: True)
    held: list[object] = []
    late = threading.Timer(1.0, lambda: held.append(_meet(port, is_host=True)))
    late.start()
    client = _meet(port, is_host=False, patience=patience)
    client.set("here", "1")
    late.join()
    with pytest.raises(TrainerDiedError, match=r"rank 0 did not open the job's store at .* it did nothing for 0.3 s"):
        _meet(_free_port(), is_host=False, patience=Patience(0.3, 60.0, is_busy=lambda: False))


def test_what_a_rank_of_another_machine_does_cannot_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreement.Siblings, "is_busy", lambda self, local_rank: True)
    job = SimpleNamespace(node_rank=1, connect_timeout_s=0.0, setup_timeout_s=60.0)
    waits = [agreement._patience(job, node_rank, 0)._is_busy() for node_rank in (0, 1)]
    assert waits == [False, True]


def _meet(port: int, **options: Any) -> torch.distributed.Store:
    return meet("localhost", port, is_local=True, timeout=timedelta(seconds=0.3), **options)


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
