"""Peers: found, or missing with a reason; and the files that those in another Python read."""

from __future__ import annotations

import subprocess
import sys

import numpy as np

from lightning_gnnload import Synthetic, ops
from tests.benchmarks import peers, probe
from tests.benchmarks.memory import held_bytes
from tests.benchmarks.peers import environments
from tests.benchmarks.peers.__main__ import Way, table, ways
from tests.benchmarks.peers.abilities import ABILITIES, LIBRARIES
from tests.benchmarks.stored_arrays import stored_arrays


def test_build_names_version_and_wheel():
    found = probe.main("numpy", ["numpy"])
    assert f"numpy {np.__version__} (cp" in found["build"]


def test_peer_that_is_not_there_says_why():
    peer = peers.Peer("Nobody", "peer_nobody", "no_such_module", ("no-such-package",))
    found = peers.find_peer(peer, sys.executable)
    assert found.build is None
    assert "No module named 'no_such_module'" in str(found)
    assert "gave no answer" in str(peers.find_peer(peer, "/no/such/python"))


def test_stored_arrays_are_those_of_the_data_set(tmp_path):
    dataset = Synthetic("chung-lu", 300, 3000, num_features=8, root=tmp_path)
    dataset.prepare()
    data, arrays = dataset.load(), stored_arrays(str(dataset.folder))
    assert np.array_equal(arrays["indptr"], data.graph.indptr)
    assert np.array_equal(arrays["indices"], data.graph.indices)
    assert np.array_equal(arrays["x"], data.x.rows)
    assert np.array_equal(arrays["train"], data.train)


def test_table_shows_the_best_way_of_each_library():
    def measured(library: str, *times_ms: float) -> Way:
        settings = {"instruction_set": "avx2"} if library == ours else {}
        return Way(library, "", "", {}, {}, settings, list(times_ms), [2.0], [1.0], [3.0])

    ours, pyg, graphbolt, _ = LIBRARIES
    measurements = [measured(ours, 9, 7), measured(pyg, 70)]
    rows = table(measurements, {graphbolt: "no wheel"}, {ours: 800.0}).splitlines()
    assert rows[2] == "| time a mini-batch, ms | 7.00 | 70.0 | not measured | not measured |"
    assert rows[6] == "| times ours by avx2 | 1.0 | 10.0 |  |  |"
    assert rows[7] == "| an epoch of GraphSAGE on Debian, ms | 800 | not measured | not measured | not measured |"
    assert rows[-1] == "- GraphBolt was not measured here: no wheel"
    assert {way.library for way in ways()} == set(LIBRARIES)
    # A reader without AVX-512 finds figures of their own machine's instructions.
    assert {way.settings["instruction_set"] for way in ways() if way.settings} == {*ops.instruction_sets()[1:]}


def test_an_environment_that_pip_cannot_make_says_which_package_and_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    nobody = environments.Environment("GraphBolt", (("no-such-package==1",),), "take another")
    monkeypatch.setattr(environments, "ENVIRONMENTS", (nobody,))
    outcome = environments.made(tmp_path, {peer.family: peer for peer in peers.PEERS}, lambda line: None)
    told = str(outcome["GraphBolt"])
    assert told.startswith("GraphBolt: not here (pip could not install no-such-package==1: ERROR: ")
    assert told.endswith(". take another)")
    assert not (tmp_path / "graphbolt" / "complete").exists()  # the next run tries again


def test_every_library_has_an_answer_of_its_own():
    assert all(len(answers) == len(LIBRARIES) for answers in ABILITIES.values())


def test_memory_counts_the_processes_that_a_process_started():
    hold = "import subprocess, sys; x = b'1' * (64 << 20); subprocess.run([sys.executable, '-c', sys.argv[1]])"
    inner = "x = b'1' * (64 << 20); print('ready', flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", hold, inner], stdin=-1, stdout=-1, text=True) as outer:
        assert outer.stdout.readline() == "ready\n"
        assert 128 << 20 < held_bytes(outer.pid) < 256 << 20
        outer.communicate("done")
