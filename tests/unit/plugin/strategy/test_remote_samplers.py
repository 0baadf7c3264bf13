"""How trainers find samplers of other machines, through a store that nobody need trust."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from torch.distributed import HashStore

from lightning_gnnload.errors import AddressError, QueueProtocolError, RoleConfigError, SecretError
from lightning_gnnload.host.tls import TlsSocket
from lightning_gnnload.pipeline.queue import remote
from lightning_gnnload.pipeline.queue.remote import NO_REMOTE, RemoteListener
from lightning_gnnload.plugin.job import RolePlan
from lightning_gnnload.plugin.strategy import remote_samplers as module
from lightning_gnnload.plugin.strategy.certificates import CERTIFICATE_FILE, KEY_FILE, load_certificate
from lightning_gnnload.plugin.strategy.rendezvous import address_towards
from tests.cluster.certificates import Certificate, can_make, make_certificate

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
    for key in (module._key(job(2), json.loads(entry)["nonce"], ""), SECRET.encode()):
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
    "where",
    [b"", b"[]", b'{"address": ["h", 1]}', b'{"address": ["h", 0], "nonce": "", "layout": "", "certificate": ""}'],
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


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> list[Certificate]:
    if not can_make():
        pytest.skip("no openssl makes certificates here")
    folder = tmp_path_factory.mktemp("certificates")
    return [make_certificate(folder, name, "DNS:anything") for name in ("a", "b")]


def name_certificate(monkeypatch: pytest.MonkeyPatch, file: object, key: object) -> None:
    monkeypatch.setenv(CERTIFICATE_FILE, str(file))
    monkeypatch.setenv(KEY_FILE, str(key))


@pytest.fixture
def tls_listener(certificates: list[Certificate], monkeypatch: pytest.MonkeyPatch) -> Iterator[RemoteListener]:
    """A sampler's with a certificate, of which its trainers' environment knows nothing."""
    with monkeypatch.context() as environment:
        name_certificate(environment, *certificates[0])
        opened = module.listen_to_machines(job(2))
    yield opened
    opened.close()


def test_a_trainer_connects_by_the_certificate_that_the_sampler_tells(tls_listener: RemoteListener) -> None:
    channel = module.remote_samplers(job(0), None).connect(2)
    with closing(tls_listener.accept()) as accepted, closing(channel):
        accepted.send("opening")
        assert channel.receive()[0] == {"kind": "opening"}
        assert isinstance(channel._stream._socket, TlsSocket)
        assert channel._stream._socket._socket.version() == "TLSv1.3"  # known as long as it is open


def test_who_changes_what_the_store_says_of_it_connects_nobody(
    tls_listener: RemoteListener, store: HashStore, certificates: list[Certificate], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As who stands between would: it has TLS left out, or names a certificate of its own."""
    monkeypatch.setattr(remote, "_HELLO_S", 0.5)
    entry = json.loads(store.get(module._entry(2)))
    for certificate in ("", certificates[1].certificate.read_text()):
        store.set(module._entry(2), json.dumps(entry | {"certificate": certificate}))
        with pytest.raises((QueueProtocolError, EOFError)):
            first_words(tls_listener, module.remote_samplers(job(0), None).connect(2))


def test_who_relays_by_a_certificate_of_its_own_has_another_key(
    store: HashStore, certificates: list[Certificate], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends TLS with the trainer, and begins another with the sampler: the proofs that it passes on serve nobody."""
    keys = [
        module._key(job(2), "nonce", text) for text in ("", *(each.certificate.read_text() for each in certificates))
    ]
    assert len(set(keys)) == 3
    assert module._key(job(2), "a/b", "c") != module._key(job(2), "a", "b/c")


def test_a_machine_that_would_send_in_the_clear_is_refused(
    listener: RemoteListener, certificates: list[Certificate], monkeypatch: pytest.MonkeyPatch
) -> None:
    name_certificate(monkeypatch, *certificates[0])
    with pytest.raises(RoleConfigError, match="sampler rank 2, which would send in the clear"):
        module.remote_samplers(job(0), None).connect(2)


def test_a_certificate_that_is_missing_or_broken_is_told(
    certificates: list[Certificate], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    good, other = certificates
    name_certificate(monkeypatch, good.certificate, "")
    with pytest.raises(AddressError, match="go together"):
        load_certificate()
    for file, key in ((tmp_path / "none", good.key), (good.certificate, other.key), (good.key, good.key)):
        name_certificate(monkeypatch, file, key)
        with pytest.raises(AddressError, match="cannot be used"):
            load_certificate()


@pytest.mark.parametrize("text", ["no certificate", "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----"])
def test_what_is_no_certificate_is_refused(listener: RemoteListener, store: HashStore, text: str) -> None:
    entry = json.loads(store.get(module._entry(2)))
    store.set(module._entry(2), json.dumps(entry | {"certificate": text}))
    with pytest.raises(QueueProtocolError, match="which is no certificate"):
        module.remote_samplers(job(0), None).connect(2)
