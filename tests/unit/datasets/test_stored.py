import errno
import json
import multiprocessing
import os
import signal
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.datasets import stored
from lightning_gnnload.datasets.stored import StoredDataset, scratch_array
from lightning_gnnload.errors import DatasetError
from tests.forked import in_child


@dataclass(frozen=True)
class Ring(StoredDataset):
    """A ring of nodes that notes each time it is built."""

    root: Path
    num_nodes: int = 5

    @property
    def folder(self) -> Path:
        return self.root / "ring"

    @property
    def settings(self):
        return {"num_nodes": self.num_nodes}

    def build(self, scratch: Path) -> GraphData:
        with open(self.root / "builds", "a") as notes:
            notes.write("built\n")
        x = scratch_array(scratch / "x", np.float32, (self.num_nodes, 2))
        x[:] = 1
        nodes = np.arange(self.num_nodes)
        return GraphData(Graph.from_coo(nodes, np.roll(nodes, 1)), x)

    @property
    def num_builds(self) -> int:
        return len((self.root / "builds").read_text().splitlines())


def test_prepares_once_and_leaves_no_scratch(tmp_path):
    ring = Ring(tmp_path)
    ring.prepare()
    ring.prepare()
    assert ring.num_builds == 1
    assert ring.load().x.rows.sum() == 10
    assert {path.name for path in tmp_path.iterdir()} == {"ring", "builds", ".ring.lock"}


def test_load_before_prepare_says_what_to_do(tmp_path):
    with pytest.raises(DatasetError, match=r"Ring.*is not ready.*prepare\(\)"):
        Ring(tmp_path).load()


def test_other_settings_in_the_same_folder_are_built_anew(tmp_path):
    Ring(tmp_path).prepare()
    other = Ring(tmp_path, num_nodes=7)
    with pytest.raises(DatasetError, match="other settings"):
        other.load()
    other.prepare()
    assert other.load().num_nodes == 7


@pytest.mark.parametrize("damage", ["cut", "gone", "manifest"])
def test_a_damaged_folder_is_repaired(tmp_path, damage):
    ring = Ring(tmp_path)
    ring.prepare()
    if damage == "cut":
        os.truncate(ring.folder / "x.bin", 8)
    elif damage == "gone":
        (ring.folder / "indices.bin").unlink()
    else:
        (ring.folder / "manifest.json").write_text("{")
    with pytest.raises(DatasetError, match=r"prepare\(\)"):
        ring.load()
    ring.prepare()
    assert ring.load().x.rows.sum() == 10


@pytest.mark.parametrize(
    "entry",
    [
        {"file": "x\0.bin"},  # no name of a file, which pathlib says by a ValueError
        {"file": "x" * 5000},
        {"file": "../builds"},
        {"shape": [10**20, "a"]},  # a product that no memory holds
        {"shape": [-5, -2]},
        {"dtype": "save"},  # torch has that name, too
        {"dtype": ["float32"]},
    ],
)
def test_a_manifest_that_says_nonsense_is_built_anew(tmp_path, entry):
    ring = Ring(tmp_path)
    ring.prepare()
    manifest = json.loads((ring.folder / "manifest.json").read_text())
    manifest["arrays"]["x"].update(entry)
    (ring.folder / "manifest.json").write_text(json.dumps(manifest))
    ring.prepare()
    assert ring.num_builds == 2
    assert ring.load().x.rows.sum() == 10


def test_processes_that_prepare_at_once_build_once(tmp_path):
    ring = Ring(tmp_path)
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=ring.prepare) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    assert ring.num_builds == 1


def test_a_root_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(DatasetError, match="cannot be written"):
        Ring(tmp_path / "file").prepare()


def test_a_disk_without_room_is_an_error_and_not_a_crash(tmp_path, monkeypatch):
    def refuse(descriptor: int, start: int, size_bytes: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    # Space must be reserved: writing to a mapped hole on a full disk kills the process.
    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(DatasetError, match=r"No space left.*with room"):
        Ring(tmp_path).prepare()


@pytest.mark.parametrize("where", ["build", "write_graph", "ready"])
def test_what_a_killed_process_left_is_removed(tmp_path, monkeypatch, where):
    """Killed in building, in writing, or after the folder was ready; the next prepare is one that has nothing to do."""
    ring = Ring(tmp_path)

    def killed(*arguments, **settings):
        (scratch,) = tmp_path.glob(".ring-*.partial/scratch")
        (scratch / "archive").write_text("50 GB")
        os.kill(os.getpid(), signal.SIGKILL)

    def work():
        if where == "build":
            monkeypatch.setattr(Ring, "build", killed)
        elif where == "write_graph":
            monkeypatch.setattr(stored, "write_graph", killed)
        else:
            write = stored.write_graph
            monkeypatch.setattr(stored, "write_graph", lambda *args, **how: (write(*args, **how), killed()))
        ring.prepare()

    assert in_child(work)[0] == -signal.SIGKILL
    assert list(tmp_path.glob(".ring-*.partial/scratch/archive"))
    ring.prepare()
    assert {path.name for path in tmp_path.iterdir()} == {"ring", "builds", ".ring.lock"}
    assert ring.load().x.rows.sum() == 10


def test_what_a_living_process_needs_stays(tmp_path):
    """A prepare that finds the folder ready removes nothing of one that builds another version."""
    Ring(tmp_path).prepare()
    with stored.staging_folder(tmp_path / "ring") as place:
        Ring(tmp_path).prepare()
        assert place.exists()


def test_a_folder_that_holds_something_else_is_not_built_over(tmp_path):
    """And that is said before the work: nothing is built."""
    (tmp_path / "ring").mkdir()
    (tmp_path / "ring" / "thesis.tex").touch()
    with pytest.raises(DatasetError, match=r"also holds thesis\.tex"):
        Ring(tmp_path).prepare()
    assert (tmp_path / "ring" / "thesis.tex").exists()
    assert not (tmp_path / "builds").exists()


def test_a_source_that_changes_while_it_is_read_is_read_again(tmp_path):
    """The folder keeps the settings of before: with those of after, it would pass for what it is not."""

    class Changing(Ring):
        def build(self, scratch):
            data = super().build(scratch)
            object.__setattr__(self, "num_nodes", self.num_nodes + 1)
            return data

    changing = Changing(tmp_path)
    changing.prepare()
    with pytest.raises(DatasetError, match="other settings"):
        changing.load()
