"""Peers meet: threads of this process play the ranks."""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from lightning_gnnload import MemoryFeatureStore
from lightning_gnnload.cache import peers as peers_module
from lightning_gnnload.cache.peers import Membership, PeerGroup
from lightning_gnnload.cache.shared import is_mapped_file, share_rows
from lightning_gnnload.errors import CacheShareError
from lightning_gnnload.host import sockets
from lightning_gnnload.host.heartbeat import HEARTBEAT
from lightning_gnnload.host.memfd import MemoryFile
from tests import guards
from tests.unit.cache.ranks import TIMEOUT_S, together


def meet(work: Callable[[PeerGroup], Any]) -> Callable[[Membership], Any]:
    def inside(membership: Membership) -> Any:
        with membership.connect() as peers:
            return work(peers)

    return inside


@pytest.mark.parametrize("count", [1, 2, 5])
def test_all_know_what_each_gave(count: int) -> None:
    ends = together(count, meet(lambda peers: [g.fields["i"] for g in peers.all_gather({"i": peers.membership.index})]))
    assert ends == [list(range(count))] * count


def test_numbers_are_published_and_no_descriptor_is_kept() -> None:
    before = guards.num_fds()
    values = np.arange(200_000)  # more than a message holds
    ends = together(3, meet(lambda peers: peers.broadcast(values if peers.membership.index == 0 else None).sum()))
    assert ends == [values.sum()] * 3
    assert guards.num_fds() == before


def test_those_who_differ_are_told_what_in() -> None:
    ends = together(3, meet(lambda peers: peers.agree({"width": 5 + (peers.membership.index == 2), "same": 1})))
    for end in ends:
        assert isinstance(end, CacheShareError)
        assert "width: 5 and 6" in str(end)
        assert "same:" not in str(end)


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_a_failure_of_one_ends_it_for_all_with_the_reason(failing: int) -> None:
    before = guards.num_fds()

    def work(peers: PeerGroup) -> None:
        peers.all_gather({})
        if peers.membership.index == failing:
            raise ValueError("disk on fire")
        peers.all_gather({})

    ends = together(3, meet(work))
    for index, end in enumerate(ends):
        assert isinstance(end, ValueError if index == failing else CacheShareError)
        assert "disk on fire" in str(end)
    assert guards.num_fds() == before


def test_one_that_is_killed_ends_it_for_all() -> None:
    def work(membership: Membership) -> None:
        with membership.connect() as peers:
            peers.all_gather({})
            if membership.index == 1:
                peers.channels.pop(0).close()  # what the system does for a killed process
                return
            peers.all_gather({})

    first, _, third = together(3, work)
    assert "sharer 1 of" in str(first)
    assert "is gone" in str(first)
    assert "is gone" in str(third)


def test_garbage_from_a_sharer_ends_it_for_all() -> None:
    def work(peers: PeerGroup) -> None:
        if peers.membership.index == 1:
            peers.channels[0]._socket.send(b'{"kind":"given","index":1,"fields":[]}')
        peers.all_gather({})

    for end in together(3, meet(work)):
        assert isinstance(end, CacheShareError)
        assert "malformed message" in str(end)


def test_one_that_does_not_come_is_named_in_time() -> None:
    def work(membership: Membership) -> None:
        if membership.index == 1:
            return
        with membership.connect() as peers:
            peers.all_gather({})

    began = time.monotonic()
    first, _, third = together(3, work, timeout_s=0.5)
    assert "sharer 1 of" in str(first)
    assert "sharer 1 of" in str(third)
    assert time.monotonic() - began < 5


def test_without_sharer_0_the_others_wait_no_longer_than_they_were_told() -> None:
    with pytest.raises(CacheShareError, match=r"sharer 0 of .* within 0.1 s"), Membership("x", 1, 2, 0.1).connect():
        pass


def test_sharers_are_named_by_their_ranks_where_these_are_known() -> None:
    membership = Membership("x", 1, 2, 0.1, key=uuid.uuid4().hex, ranks=(3, 5))
    with pytest.raises(CacheShareError, match=r"sharer 0 \(rank 3\) of 'x' did not come"), membership.connect():
        pass


def test_with_another_key_nobody_is_met() -> None:
    def wait() -> None:
        with pytest.raises(CacheShareError, match="sharer 1 of 'x' did not come"):
            Membership("x", 0, 2, 0.5, key=uuid.uuid4().hex).connect().__enter__()

    thread = threading.Thread(target=wait)
    thread.start()
    other = Membership("x", 1, 2, 0.3, key=uuid.uuid4().hex)
    with pytest.raises(CacheShareError, match="sharer 0 of 'x' did not come"), other.connect():
        pass
    thread.join()


def test_two_meetings_of_one_name_are_refused() -> None:
    name = uuid.uuid4().hex

    def wait() -> None:
        with pytest.raises(CacheShareError, match="did not come"), Membership(name, 0, 2, 1.0).connect():
            pass

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.2)
    with pytest.raises(CacheShareError, match="cannot listen"), Membership(name, 0, 2, 1.0).connect():
        pass
    thread.join()


@pytest.mark.parametrize(
    "garbage", [b"hello", b'{"kind":"join","index":7,"count":2}', b'{"kind":"given","index":1,"fields":{}}']
)
def test_strangers_are_turned_away(garbage: bytes) -> None:
    def work(membership: Membership) -> list[Any]:
        if membership.index == 1:
            time.sleep(0.2)
        with membership.connect() as peers:
            return [given.fields for given in peers.all_gather({"index": membership.index})]

    name, ends = uuid.uuid4().hex, []
    host = threading.Thread(target=lambda: ends.append(work(Membership(name, 0, 2, TIMEOUT_S))))
    host.start()
    address = sockets.address(PeerGroup(Membership(name, 0, 2))._socket_name)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stranger:
        while stranger.connect_ex(address):
            time.sleep(0.01)
        stranger.send(garbage)
        ends.append(work(Membership(name, 1, 2, TIMEOUT_S)))
    host.join()
    assert ends == [[{"index": 0}, {"index": 1}]] * 2


def test_an_index_beyond_the_count_is_refused() -> None:
    with pytest.raises(CacheShareError, match="sharer 2 of 2"):
        Membership("x", 2, 2)


def test_a_memory_file_is_its_makers_to_write_and_cannot_shrink() -> None:
    file = MemoryFile.create("test", 10_000)
    file.array[:] = 7
    other = MemoryFile.adopt(os.dup(file.fd), 10_000)
    assert other.array.tolist() == [7] * 10_000
    file.array[3] = 8
    assert other.array[3] == 8
    assert not other.array.flags.writeable
    with pytest.raises(CacheShareError):  # no descriptor of it can be mapped for writing any more
        MemoryFile.adopt(os.dup(file.fd), 10_000, open_to_all=True)
    with pytest.raises(PermissionError):
        os.ftruncate(file.fd, 5000)
    file.close()
    other.close()
    assert other.array[3] == 8


@pytest.mark.parametrize("sealed", [True, False])
def test_what_another_rank_shares_is_checked(sealed: bool) -> None:
    before = guards.num_fds()
    if sealed:
        fd = (file := MemoryFile.create("test", 10_000)).fd
        with pytest.raises(CacheShareError, match=r"10000 bytes.* 10001 sealed bytes"):
            MemoryFile.adopt(os.dup(fd), 10_001)
        file.close()
        del file  # Python's map has a descriptor of its own
    else:
        fd = os.memfd_create("gnnload-test")
        os.ftruncate(fd, 10_000)
        with pytest.raises(CacheShareError, match="seals"):
            MemoryFile.adopt(fd, 10_000)
    with pytest.raises(CacheShareError, match="no memory"):
        MemoryFile.adopt(-1, 10_000)  # what is given where nothing is
    read, write = os.pipe()
    os.close(write)
    with pytest.raises(CacheShareError, match="no memory"):
        MemoryFile.adopt(read, 10_000)
    assert guards.num_fds() == before


def test_more_memory_than_is_free_is_not_asked_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    # It could kill a rank for it. Ranks that find no room for a common copy of a table keep their own instead.
    monkeypatch.setattr("lightning_gnnload.host.memfd.free_bytes", lambda: 40 << 10)
    MemoryFile.create("test", 40 << 10).close()
    with pytest.raises(CacheShareError, match=r"0.5 MiB .*'rows', but the machine has 0.0 MiB of free memory"):
        share_alone(torch.zeros(1000, 128))


def share_alone(rows: torch.Tensor) -> MemoryFeatureStore:
    return share_rows(MemoryFeatureStore(rows), Membership(uuid.uuid4().hex, 0, 1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(1000, 3), (0, 3), (5, 0)])
def test_a_table_becomes_one_for_all(dtype: torch.dtype, shape: tuple[int, int]) -> None:
    rows = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    stores = together(3, lambda membership: share_rows(MemoryFeatureStore(rows.clone()), membership))
    for store in stores:
        assert torch.equal(store.rows, rows)
        assert store.dtype is dtype
        assert not rows.numel() or is_mapped_file(store.rows)
    before = guards.num_fds()
    again = together(3, lambda membership: share_rows(stores[membership.index], membership))
    assert [store.rows.data_ptr() for store in again] == [store.rows.data_ptr() for store in stores]
    assert guards.num_fds() == before


def test_a_mapped_file_stays_as_it_is(tmp_path) -> None:
    np.arange(12, dtype=np.float32).tofile(tmp_path / "x")
    store = MemoryFeatureStore(np.memmap(tmp_path / "x", np.float32, "r", shape=(4, 3)))
    assert together(2, lambda membership: share_rows(store, membership)) == [store, store]


def test_another_rows_table_is_refused_by_all() -> None:
    def work(membership: Membership) -> MemoryFeatureStore:
        rows = torch.zeros(40, 3)
        rows[17, 1] = membership.index == 1
        return share_rows(MemoryFeatureStore(rows), membership)

    for end in together(3, work):
        assert isinstance(end, CacheShareError)
        assert "row 17 of 40" in str(end)


# Peers that take long, or hang.


@pytest.fixture
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers_module, "_LOOK_S", 0.05)


@pytest.mark.usefixtures("_looks_often")
@pytest.mark.parametrize("slow", [0, 2])
def test_who_takes_long_but_gets_on_is_waited_for(slow: int) -> None:
    # Longer than anybody may be silent. Peer 1 hears of peer 2 through peer 0 alone, which waits itself.
    def work(peers: PeerGroup) -> list[int]:
        if peers.membership.index == slow:
            for _ in range(12):
                time.sleep(0.1)
                peers.say_busy()  # as its pulse has it do; here, all peers are one process
        return [each.fields["i"] for each in peers.all_gather({"i": peers.membership.index})]

    assert together(3, meet(work), silence_s=0.4) == [[0, 1, 2]] * 3


@pytest.mark.usefixtures("_looks_often")
@pytest.mark.parametrize("hanging", [0, 2])
def test_who_gets_nowhere_is_given_up_and_named(hanging: int) -> None:
    def work(peers: PeerGroup) -> None:
        if peers.membership.index == hanging:
            time.sleep(2)
        peers.all_gather({})

    ends = together(3, meet(work), silence_s=0.4)
    waiting = [str(end) for index, end in enumerate(ends) if index != hanging]
    assert all(f"sharer {hanging} of" in end and "got nowhere for 0.4 s" in end for end in waiting), ends


def test_pieces_of_work_are_told_to_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[int] = []
    monkeypatch.setattr(PeerGroup, "say_busy", lambda self, but=(): but or said.append(self.membership.index))

    def work(peers: PeerGroup) -> None:
        peers.agree({})
        if peers.membership.index == 1:
            HEARTBEAT.beat()
        peers.agree({})

    assert together(2, meet(work)) == [None, None]
    assert set(said) == {0, 1}  # whose process is one
    HEARTBEAT.beat()
    assert len(said) == 2


@pytest.mark.usefixtures("_looks_often")
def test_who_waits_says_so_meanwhile() -> None:
    waited: list[bool] = []

    def work(peers: PeerGroup) -> None:
        if peers.membership.index == 1:
            time.sleep(0.3)
            waited.append(HEARTBEAT.is_waiting)
        peers.agree({})

    together(2, meet(work))
    assert waited == [True]
    assert not HEARTBEAT.is_waiting
