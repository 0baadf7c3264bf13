"""What was mapped from a file stays as it was, though others write to the file."""

import faulthandler
import gc
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch

from lightning_gnnload import Graph, NeighborSampler
from lightning_gnnload.host import leases
from lightning_gnnload.host.leases import protect_mapped
from lightning_gnnload.host.pages import mapped_bytes, mapped_file
from tests.threadless import refused

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="leases are Linux's")
NUM_NODES = 3000
OVERWRITE = "import sys; f = open(sys.argv[1], 'r+b'); f.write(bytes(int(sys.argv[2])))"
CUT_OFF = "import sys, os; os.truncate(sys.argv[1], 100)"


class Owner:
    """Anything that can be referred to weakly."""


def write(file, code=OVERWRITE):
    """Changes a file in another process, which must not wait for long."""
    subprocess.run([sys.executable, "-c", code, str(file), str(os.path.getsize(file))], check=True, timeout=20)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "indices.bin"
    path.write_bytes(np.random.default_rng(0).integers(1, 200, 3 << 20, np.uint8).tobytes())
    return path


def num_leases():
    return sum(each.has_lease for each in leases._keeper._leased)


@pytest.mark.parametrize("code", [OVERWRITE, CUT_OFF], ids=["overwritten", "cut off"])
def test_a_mapped_graph_is_sampled_as_it_was(tmp_path, code, caplog):
    # Zeros are ids, so that a graph that changes gives other mini-batches, and does not end the tests.
    rng = np.random.default_rng(0)
    given = Graph.from_coo(*rng.integers(0, NUM_NODES, (2, 200_000)), NUM_NODES)
    arrays = {}
    for name in ("indptr", "indices"):
        getattr(given, name).tofile(tmp_path / name)
        arrays[name] = mapped_bytes(tmp_path / name).view(getattr(given, name).dtype)
    graph = Graph(**arrays)
    sampler, seeds = NeighborSampler([5, 5]), np.arange(100)

    def sampled(graph):
        return [sampler.sample(graph, seeds, seed=1, epoch=0, step=step).nodes for step in range(5)]

    wanted = sampled(given)
    for name in arrays:
        write(tmp_path / name, code)
    assert all(map(torch.equal, sampled(graph), wanted))
    assert str(tmp_path / "indices") in caplog.text


def test_an_array_of_a_file_of_numpy_is_held_as_well(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(100_000))
    owner, array = Owner(), np.load(tmp_path / "a.npy", mmap_mode="r")[10:]
    protect_mapped(owner, [array])
    write(tmp_path / "a.npy")
    assert np.array_equal(array, np.arange(10, 100_000))


def test_a_file_that_is_open_for_writing_is_copied_at_once(file):
    owner, array, wanted = Owner(), mapped_bytes(file), file.read_bytes()
    with open(file, "r+b") as opened:
        protect_mapped(owner, [array])
        assert mapped_file(array.ctypes.data) is None
        opened.write(bytes(len(wanted)))
    assert array.tobytes() == wanted


def test_a_file_system_that_others_change_is_copied_at_once(file, monkeypatch):
    monkeypatch.setattr(leases, "_file_system", lambda device: "nfs4")
    owner, array, wanted = Owner(), mapped_bytes(file), file.read_bytes()
    protect_mapped(owner, [array])
    write(file)
    assert array.tobytes() == wanted


def fork(act, uid=None):
    """Starts a fork that ends with 0 where ``act`` returns true; at last after 20 seconds."""
    pid = os.fork()
    if pid == 0:
        try:
            signal.alarm(20)
            if uid is not None:
                os.setuid(uid)
            os._exit(0 if act() else 1)
        finally:
            os._exit(2)
    return pid


def exit_code(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_a_file_of_another_user_is_copied_at_once(file):
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        readable = shutil.copy(file, folder)

        def act():
            owner, array = Owner(), mapped_bytes(Path(readable))
            protect_mapped(owner, [array])
            return mapped_file(array.ctypes.data) is None

        assert exit_code(fork(act, uid=65534)) == 0


def test_a_fork_holds_what_its_parent_holds(file):
    owner, array, wanted = Owner(), mapped_bytes(file), file.read_bytes()
    protect_mapped(owner, [array])
    reader, writer = os.pipe()
    started_reader, started_writer = os.pipe()

    def act():
        os.write(started_writer, b".")
        os.read(reader, 1)  # until the file was written to
        return array.tobytes() == wanted and owner is not None

    pid = fork(act)
    # A change in the very moment of a fork is seen by the file's time alone, which ticks in milliseconds.
    os.read(started_reader, 1)
    write(file)
    os.write(writer, b".")
    assert exit_code(pid) == 0
    assert array.tobytes() == wanted
    os.close(started_reader)
    os.close(started_writer)
    os.close(reader)
    os.close(writer)


@pytest.mark.parametrize("moves", [Path.rename, lambda file, _: file.unlink()], ids=["renamed", "deleted"])
def test_a_fork_finds_a_file_that_has_another_name(file, caplog, moves):
    """As a folder's files, which are written and mapped aside: nobody writes to them, and nothing is copied."""
    owner, array = Owner(), mapped_bytes(file)
    protect_mapped(owner, [array])
    moves(file, file.with_name("moved.bin"))
    before = num_leases()
    pid = fork(lambda: num_leases() == before and not caplog.records and owner is not None)
    assert exit_code(pid) == 0


def test_a_fork_that_gets_no_thread_copies_what_its_parent_holds(file):
    owner, array = Owner(), mapped_bytes(file)
    protect_mapped(owner, [array])
    with refused():
        pid = fork(lambda: mapped_file(array.ctypes.data) is None and owner is not None)
    assert exit_code(pid) == 0
    assert mapped_file(array.ctypes.data) is not None


def test_a_process_without_room_for_a_copy_ends_before_the_file_changes(file, monkeypatch):
    monkeypatch.setattr(leases, "free_bytes", lambda: 1 << 20)
    reader, writer = os.pipe()

    def act():
        owner, array = Owner(), mapped_bytes(file)
        protect_mapped(owner, [array])
        faulthandler.disable()  # its traceback would go to the tests' own output
        os.write(writer, b".")
        while array.any():  # it sees no zero
            pass
        return owner is not None

    pid = fork(act)
    os.read(reader, 1)
    write(file)
    assert exit_code(pid) == -signal.SIGABRT
    os.close(reader)
    os.close(writer)


def test_a_lease_ends_with_its_owner(file):
    gc.collect()  # what other tests have left to it
    before, descriptors = num_leases(), len(os.listdir("/proc/self/fd"))
    owner, array = Owner(), mapped_bytes(file)
    protect_mapped(owner, [array, array[:5]])
    assert num_leases() == before + 2
    del owner
    gc.collect()
    assert num_leases() == before
    assert len(os.listdir("/proc/self/fd")) <= descriptors + 1  # the map's own
    write(file)
    assert not array.any()  # which shows that the map was one, and is held no more


def test_memory_is_let_be(file):
    before = num_leases()
    fd = os.memfd_create("gnnload-test")
    os.write(fd, bytes(5000))
    shared = torch.from_file(f"/proc/self/fd/{fd}", shared=True, size=5000, dtype=torch.uint8)
    os.close(fd)
    owner = Owner()
    protect_mapped(owner, [np.arange(5), np.arange(9).reshape(3, 3)[1:], shared.numpy(), np.empty(0), None])
    assert num_leases() == before
    assert mapped_file(shared.data_ptr()).path.startswith("/memfd:")


def test_what_this_process_maps_to_write_to_is_its_own(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros(5000, np.int64))
    owner, before = Owner(), num_leases()
    for mode in ("r+", "c"):
        array = np.load(tmp_path / "a.npy", mmap_mode=mode)
        protect_mapped(owner, [array])
        array[:] = 7
        array.flush()
    assert np.array_equal(np.load(tmp_path / "a.npy"), np.full(5000, 7))
    assert num_leases() == before


def test_without_a_lease_and_without_room_the_user_is_told(file, monkeypatch):
    monkeypatch.setattr(leases, "_file_system", lambda device: "nfs4")
    monkeypatch.setattr(leases, "free_bytes", lambda: 1 << 20)
    owner = Owner()
    with pytest.warns(UserWarning, match=r"indices\.bin is mapped, and nothing keeps others from changing it"):
        protect_mapped(owner, [mapped_bytes(file)])
