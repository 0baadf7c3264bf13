"""Who is at the other end of a connection within this machine."""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from torch.distributed import FileStore

from lightning_gnnload.errors import StrangerError
from lightning_gnnload.host.socket_owners import guarded_group
from lightning_gnnload.sample.group.exchange import DistributedExchange
from tests.forked import in_child
from tests.runif import RunIf
from tests.strangers import beside_stranger

AT = "127.0.0.1"


@contextmanager
def listener() -> Iterator[socket.socket]:
    with socket.create_server((AT, 0)) as made:
        yield made


def as_pair(connection: socket.socket) -> None:
    """Sets what gloo sets on the connections of pairs: a time limit, at the system's level."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 20, 0))


def accept_pair(listening: socket.socket) -> socket.socket:
    pair, _ = listening.accept()
    as_pair(pair)
    return pair


def form_pair(listening: socket.socket, end: Callable[[], None] = lambda: None) -> socket.socket:
    with guarded_group(2):
        pair = accept_pair(listening)
        end()
    return pair


def connect(port: int) -> None:
    """Connects as a stranger, and stays until it is killed."""
    with socket.create_connection((AT, port)) as connection:
        connection.recv(1)


def test_what_leads_to_this_user_passes() -> None:
    with guarded_group(2), listener() as listening:
        mine = socket.create_connection(listening.getsockname())
        theirs, _ = listening.accept()
        as_pair(mine)
    for each in (mine, theirs):
        each.close()


@RunIf(root=True)
def test_a_pair_with_a_stranger_is_refused() -> None:
    with listener() as listening, beside_stranger(lambda: connect(listening.getsockname()[1])):
        wanted = f"process of user 65534, and must lead to a process of user {os.getuid()}"
        with pytest.raises(StrangerError, match=wanted):
            form_pair(listening)


def test_a_pair_with_nobody_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has sent something and is gone can be anybody."""
    monkeypatch.setattr("lightning_gnnload.host.socket_owners._PATIENCE_S", 0.1)
    with listener() as listening:
        gone = socket.create_connection(listening.getsockname())
        with pytest.raises(StrangerError, match="leads to nobody"):
            form_pair(listening, gone.close)


@RunIf(root=True)
def test_a_stranger_that_has_merely_connected_does_no_harm_and_no_other_comes_after() -> None:
    with guarded_group(2):
        made = socket.create_server((AT, 0))
        port = made.getsockname()[1]
        with beside_stranger(lambda: connect(port)):
            sitting, _ = made.accept()
            mine = socket.create_connection((AT, port))
            pair, _ = made.accept()
            as_pair(pair)
    with socket.socket() as late:
        late.settimeout(0.3)
        with pytest.raises(TimeoutError):  # not even refused
            late.connect((AT, port))
    mine.send(b"x")
    assert pair.recv(1) == b"x"  # what was connected stays so
    for each in (made, sitting, mine, pair):
        each.close()


def test_a_server_of_another_thread_is_left_alone() -> None:
    made: list[socket.socket] = []

    def serve() -> None:
        made.append(socket.create_server((AT, 0)))

    with guarded_group(2):
        thread = threading.Thread(target=serve)
        thread.start()
        thread.join()
        gloos = socket.create_server((AT, 0))
        mine = socket.create_connection(gloos.getsockname())
        pair = accept_pair(gloos)
    socket.create_connection(made[0].getsockname(), timeout=2).close()
    for each in (*made, gloos, mine, pair):
        each.close()


def test_a_gloo_group_is_told_from_what_is_connected_beside_it(tmp_path: Path) -> None:
    """The marks of gloo's own sockets, in the torch that is installed: pairs are found, and no more is heard."""
    before = _listening()

    def sample(rank: int) -> None:
        exchange = DistributedExchange.connect(FileStore(str(tmp_path / "store"), -1), rank, 2, 20.0, "lo")
        received = exchange.all_to_all([np.full(3, rank, np.uint8)] * 2)
        assert [data.tolist() for data in received] == [[0] * 3, [1] * 3]
        (tmp_path / f"formed-{rank}").touch()
        while not (tmp_path / "over").exists():
            time.sleep(0.01)

    ends: list[tuple[int, str]] = []
    threads = [
        threading.Thread(target=lambda rank=rank: ends.append(in_child(lambda: sample(rank)))) for rank in (0, 1)
    ]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 20
    while not all((tmp_path / f"formed-{rank}").exists() for rank in (0, 1)) and time.monotonic() < deadline:
        time.sleep(0.01)
    deaf = 0
    for port in _listening() - before:
        with socket.socket() as stranger:
            stranger.settimeout(0.3)
            try:
                stranger.connect((AT, port))
            except TimeoutError:
                deaf += 1
    (tmp_path / "over").touch()
    for thread in threads:
        thread.join()
    assert ends == [(0, "")] * 2
    assert deaf == 2  # others of this machine may listen, too


def _listening() -> set[int]:
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {int(row[1].split(":")[1], 16) for row in rows if row[3] == "0A" and row[1].startswith("0100007F")}
