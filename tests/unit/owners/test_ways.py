"""By whatever way owners are reached, batches and rows are those of the whole graph."""

from __future__ import annotations

import socket
import ssl
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from lightning_gnnload import CollectiveSampler, NeighborSampler, load_partition, partition_graph
from lightning_gnnload.data.partition import Partition
from lightning_gnnload.errors import AddressError, GnnLoadError, MissingExtraError
from lightning_gnnload.owners import ways
from lightning_gnnload.owners.address import SCHEMES, TCP, Address
from lightning_gnnload.owners.client import Owners
from lightning_gnnload.owners.owner import Owner
from lightning_gnnload.owners.tcp import TcpConnection
from lightning_gnnload.owners.ways import AUTHORITY_FILE, Certificate, open_front
from tests.cluster.certificates import can_make, make_certificate
from tests.runif import RunIf
from tests.unit.owners.serving import SECRET, graph_data

pytestmark = [RunIf(extras="flight"), pytest.mark.timeout(60)]


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    partition_graph(graph_data(), tmp_path / "parts", 2, "random", hops=0, progress=False)
    return load_partition(tmp_path / "parts")


@pytest.mark.skipif(not can_make(), reason="needs openssl")
@pytest.mark.parametrize("scheme", SCHEMES)
def test_batches_and_rows_are_those_of_the_whole_graph(
    partition: Partition, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    certificate = Certificate(*make_certificate(tmp_path)) if scheme.endswith("tls") else None
    if certificate is not None:
        monkeypatch.setenv(AUTHORITY_FILE, str(certificate.file))
    data = graph_data()
    sampler, seeds = NeighborSampler([3, 2]), np.array([5, 0, 41])
    with open_front(Owner(partition), Address(scheme, "127.0.0.1", 0), SECRET.encode(), certificate) as front:
        owners = Owners.connect(partition, [str(front.address)], secret=SECRET)
        try:
            batch = CollectiveSampler(sampler, owners).sample(None, seeds, seed=3)
            whole = sampler.sample(data.graph, seeds, seed=3)
            assert batch.nodes.tolist() == whole.nodes.tolist()
            for ours, theirs in zip(batch.blocks, whole.blocks, strict=True):
                assert ours.indices.tolist() == theirs.indices.tolist()
            rows = np.zeros((len(whole.nodes), 20), np.uint8)
            owners.gather("x", whole.nodes.numpy(), rows)
            assert (rows.view(np.float32) == whole.nodes.unsqueeze(1).numpy() + np.arange(5) / 8).all()
        finally:
            owners.close()


@pytest.mark.skipif(not can_make(), reason="needs openssl")
@pytest.mark.parametrize("scheme", ["tls", "grpc+tls"])
def test_nobody_is_believed_without_who_vouches_for_him(
    partition: Partition, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    certificate = Certificate(*make_certificate(tmp_path))
    other = make_certificate(tmp_path, "other")
    with open_front(Owner(partition), Address(scheme, "127.0.0.1", 0), SECRET.encode(), certificate) as front:
        for authority in (str(other.certificate), ""):
            monkeypatch.setenv(AUTHORITY_FILE, authority)
            with pytest.raises(OSError):  # noqa: PT011  ssl's of TCP, ours of Flight
                ways.open_connection(front.address, SECRET.encode(), 3.0, 3.0)
        monkeypatch.setenv(AUTHORITY_FILE, str(tmp_path / "none"))
        with pytest.raises(AddressError, match="none cannot be read"):
            ways.open_connection(front.address, SECRET.encode(), 3.0, 3.0)


def test_a_certificate_that_is_missing_or_broken_is_told(partition: Partition, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_text("no certificate")
    for scheme, certificate, words in (
        ("tls", None, "needs a certificate .* --certificate FILE --key FILE"),
        ("grpc+tls", None, "needs a certificate .* --certificate FILE --key FILE"),
        ("tcp", Certificate(broken, broken), "is served without TLS, but a certificate is named"),
        ("grpc", Certificate(broken, broken), "is served without TLS, but a certificate is named"),
        ("tls", Certificate(broken, broken), "broken and the key .*broken cannot be used"),
        ("grpc+tls", Certificate(tmp_path / "none", broken), "none and the key .*broken cannot be used"),
        ("grpc+tls", Certificate(broken, broken), "cannot be used"),
    ):
        with pytest.raises(AddressError, match=words):
            open_front(Owner(partition), Address(scheme, "127.0.0.1", 0), SECRET.encode(), certificate)


def test_flight_needs_its_extra(partition: Partition, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightning_gnnload.owners.flight.front", None)
    with pytest.raises(MissingExtraError, match=r"lightning-gnnload\[flight\]") as error:
        open_front(Owner(partition), Address("grpc", "127.0.0.1", 0), SECRET.encode())
    assert isinstance(error.value, GnnLoadError)
    open_front(Owner(partition), Address(TCP, "127.0.0.1", 0), SECRET.encode()).close()


@pytest.mark.skipif(not can_make(), reason="needs openssl")
@pytest.mark.parametrize("scheme", ["tcp", "tls"])
def test_strangers_who_say_little_hold_nothing(partition: Partition, tmp_path: Path, scheme: str) -> None:
    """A byte now and then from two hundred of them: the oldest go, and who knows the secret comes in."""
    certificate = Certificate(*make_certificate(tmp_path)) if scheme == "tls" else None
    with (
        open_front(Owner(partition), Address(scheme, "127.0.0.1", 0), SECRET.encode(), certificate) as front,
        ExitStack() as strangers,
    ):
        for _ in range(200):
            connection = socket.create_connection((front.address.host, front.address.port))
            strangers.callback(connection.close)
            connection.sendall(b"\x16")  # a greeting of TLS begins so, and none of ours
        began = time.monotonic()
        while (num := len([t for t in threading.enumerate() if t.name.startswith("gnnload-owner-")])) > 64:
            assert time.monotonic() - began < 3, f"{num} threads wait for strangers"
            time.sleep(0.02)
        context = None
        if certificate is not None:
            context = ssl.create_default_context(cafile=str(certificate.file))
        TcpConnection(front.address, SECRET.encode(), 5.0, 5.0, context).close()
