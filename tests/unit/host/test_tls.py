"""One connection by TLS serves a thread that sends and one that receives, and none in the clear."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from lightning_gnnload.host.tls import TlsSocket
from tests.cluster.certificates import can_make, make_certificate

pytestmark = [
    pytest.mark.timeout(60),
    pytest.mark.skipif(not can_make(), reason="no openssl makes certificates here"),
]
NUM_BYTES = 16 << 20  # more than the network holds


@pytest.fixture
def ends(tmp_path: Path) -> Iterator[tuple[TlsSocket, TlsSocket]]:
    certificate = make_certificate(tmp_path)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(*certificate)
    trusting = ssl.create_default_context(cafile=str(certificate.certificate))
    ours, theirs = socket.socketpair()
    accepted: list[ssl.SSLSocket] = []
    thread = threading.Thread(target=lambda: accepted.append(serving.wrap_socket(theirs, server_side=True)))
    thread.start()
    connected = trusting.wrap_socket(ours, server_hostname="localhost")
    thread.join()
    opened = TlsSocket(connected), TlsSocket(accepted[0])
    yield opened
    for end in opened:
        end.close()


def received(end: TlsSocket, num_bytes: int) -> bytes:
    memory = bytearray(num_bytes)
    view = memoryview(memory)
    while len(view) and (count := end.recv_into(view)):
        view = view[count:]
    return bytes(memory)


def test_both_ends_send_and_receive_at_once(ends: tuple[TlsSocket, TlsSocket]) -> None:
    contents = [np.random.default_rng(seed).bytes(NUM_BYTES) for seed in range(2)]
    threads = [threading.Thread(target=end.sendall, args=(sent,)) for end, sent in zip(ends, contents, strict=True)]
    got: dict[int, bytes] = {}
    for index, end in enumerate(ends):
        threads.append(
            threading.Thread(target=lambda end=end, index=index: got.update({index: received(end, NUM_BYTES)}))
        )
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert got == {0: contents[1], 1: contents[0]}


def test_time_limits_are_each_threads_own(ends: tuple[TlsSocket, TlsSocket]) -> None:
    end, peer = ends
    waiting = threading.Thread(target=received, args=(end, 1))  # without a limit
    waiting.start()
    end.settimeout(0.2)
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        end.sendall(bytes(NUM_BYTES))  # nobody reads
    assert 0.2 <= time.monotonic() - began < 5
    assert waiting.is_alive()
    peer.sendall(b"x")
    waiting.join(10)
    assert not waiting.is_alive()


def test_who_waits_hears_of_the_end_and_sends_nothing_in_the_clear(ends: tuple[TlsSocket, TlsSocket]) -> None:
    end, _ = ends
    got: list[int] = []
    waiting = threading.Thread(target=lambda: got.append(end.recv_into(bytearray(1))))
    waiting.start()
    end.shutdown(socket.SHUT_RDWR)
    waiting.join(10)
    assert got == [0]
    assert end._socket._sslobj is not None, "without it, Python's class would send what it is given as it is"
    with pytest.raises((BrokenPipeError, ssl.SSLError)):
        end.sendall(b"a secret")
