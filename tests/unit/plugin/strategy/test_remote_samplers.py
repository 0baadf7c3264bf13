"""How trainers find samplers of other machines, through a store that nobody need trust."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from torch.distributed import HashStore

from lightning_gnnload import CollectiveSampler, NeighborSampler, partition_graph
from lightning_gnnload.errors import QueueProtocolError, RoleConfigError, SecretError
from lightning_gnnload.owners.batches import OwnedBatches, OwnedSampler
from lightning_gnnload.pipeline.queue.remote import NO_REMOTE, RemoteListener
from lightning_gnnload.plugin.job import RolePlan
from lightning_gnnload.plugin.strategy import remote_samplers as module
from lightning_gnnload.plugin.strategy.rendezvous import address_towards
from lightning_gnnload.sample.base import Relayed
from tests.unit.owners.serving import graph_data, served

PLAN = RolePlan(2, 0, num_nodes=2, sampler_nodes=1)
SECRET = "a secret of thirty-two characters"


@pytest.fixture(autouse=True)
def store(monkeypatch: pytest.MonkeyPatch) -> HashStore:
    made = HashStore()
    monkeypatch.setattr(module, "launch_store", lambda *_: made)
    monkeypatch.setenv("GNNLOAD_SECRET", SECRET)
    monkeypatch.delenv("GNNLOAD_SECRET_FILE", raising=False)
    return made


def job(rank: int, plan: RolePlan = PLAN, address: str = "127.0.0.1", secret: str | None = None) -> Any:
    environment = SimpleNamespace(main_address=address, main_port=29_500)
    times = {"connect_timeout_s": 5.0, "setup_timeout_s": 5.0}
    return SimpleNamespace(roles=plan, environment=environment, global_rank=rank, queue_secret=secret, **times)


@pytest.fixture
def listener() -> Iterator[RemoteListener]:
    opened = module.listen_to_machines(job(2))
    yield opened
    opened.close()


def first_words(listener: RemoteListener, channel: Any) -> Any:
    """What comes at the trainer's end once the sampler's end says something."""
    accepted = listener.accept()
    with suppress(BrokenPipeError):  # it was cut off already
        accepted.send("opening")
    try:
        return channel.receive()[0]
    finally:
        channel.close()
        accepted.close()


def test_a_trainer_finds_a_sampler_once_it_listens(listener: RemoteListener) -> None:
    remote = module.remote_samplers(job(0), None)
    assert list(remote.ranks) == [2, 3]
    assert remote.connect(3) is None, "it does not listen yet"
    channel = remote.connect(2)
    assert first_words(listener, channel) == {"kind": "opening"}


def test_the_secret_is_not_in_the_store(listener: RemoteListener, store: HashStore) -> None:
    entry = store.get(module._entry(2)).decode()
    assert listener.address[0] == "127.0.0.1", "no other machine is in the job, and none gets there"
    assert SECRET not in entry
    for key in (module._key(job(2), json.loads(entry)["nonce"]), SECRET.encode()):
        assert key.hex() not in entry


def test_another_secret_or_an_address_of_another_run_does_not_connect(
    listener: RemoteListener, store: HashStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = json.loads(store.get(module._entry(2)))
    store.set(module._entry(2), json.dumps(entry | {"nonce": "0" * 32}))  # of a sampler that had the port before
    with pytest.raises(QueueProtocolError, match="secret"):
        first_words(listener, module.remote_samplers(job(0), None).connect(2))
    store.set(module._entry(2), json.dumps(entry))
    monkeypatch.setenv("GNNLOAD_SECRET", SECRET[::-1])
    with pytest.raises(QueueProtocolError, match="secret"):
        first_words(listener, module.remote_samplers(job(0), None).connect(2))


@pytest.mark.parametrize(
    "where", [b"", b"[]", b'{"address": ["h", 1]}', b'{"address": ["h", 0], "nonce": "", "layout": ""}']
)
def test_what_is_no_address_is_refused(store: HashStore, where: bytes) -> None:
    store.set(module._entry(2), where)
    with pytest.raises(QueueProtocolError, match="which is no address"):
        module.remote_samplers(job(0), None).connect(2)


def test_machines_with_other_settings_are_refused(listener: RemoteListener) -> None:
    other = module.remote_samplers(job(0, RolePlan(2, 1, num_nodes=2, sampler_nodes=1)), None)
    with pytest.raises(RoleConfigError, match=r"has 1 trainers and 1.*has '2 trainers and 0"):
        other.connect(2)


def test_without_a_secret_nobody_listens_or_waits(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.delenv("GNNLOAD_SECRET")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    began = time.monotonic()
    with pytest.raises(SecretError):
        module.listen_to_machines(job(2))
    with pytest.raises(SecretError):
        module.remote_samplers(job(0), None)
    assert time.monotonic() - began < 1
    assert module.remote_samplers(job(0, RolePlan(2, 1)), None) is NO_REMOTE, "one machine needs none"
    module.listen_to_machines(job(2, secret="whoever started the ranks made it")).close()


def test_a_sampler_listens_where_it_reaches_the_first_machine_from() -> None:
    assert address_towards("127.0.0.1", 1) == "127.0.0.1"
    assert address_towards("localhost", 1) in ("127.0.0.1", "::1")


class Elsewhere(Relayed):
    def draw(self, graph: Any, draw: Any, memory: Any) -> Any:
        raise NotImplementedError


def test_parts_of_a_graph_are_refused_unless_they_have_owners(tmp_path: Path) -> None:
    sampler = NeighborSampler([1])
    module.refuse_parts(sampler, PLAN)
    partition = partition_graph(graph_data(), tmp_path / "parts", 2, "random", hops=0, progress=False)
    with served(partition) as (owners, _):
        module.refuse_parts(CollectiveSampler(sampler, owners), PLAN)
        module.refuse_parts(OwnedSampler(sampler, OwnedBatches(lambda: owners, lambda: ())), PLAN)
    module.refuse_parts(Elsewhere(sampler), RolePlan(2, 1))
    with pytest.raises(RoleConfigError, match="with partition="):
        module.refuse_parts(Elsewhere(sampler), PLAN)
