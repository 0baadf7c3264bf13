"""Peers: found, or missing with a reason; and the files that those in another Python read."""

from __future__ import annotations

import sys

import numpy as np

from lightning_gnnload import Synthetic
from tests.benchmarks import peers, probe
from tests.benchmarks.stored_arrays import stored_arrays


def test_build_names_version_and_wheel():
    found = probe.main("numpy", ["numpy"])
    assert f"numpy {np.__version__} (cp" in found["build"]


def test_peer_that_is_not_there_says_why():
    peer = peers.Peer("Nobody", "peer_nobody", "no_such_module", ("no-such-package",))
    found = peers._find(peer, sys.executable)
    assert found.build is None
    assert "No module named 'no_such_module'" in str(found)
    assert "gave no answer" in str(peers._find(peer, "/no/such/python"))


def test_stored_arrays_are_those_of_the_data_set(tmp_path):
    dataset = Synthetic("chung-lu", 300, 3000, num_features=8, root=tmp_path)
    dataset.prepare()
    data, arrays = dataset.load(), stored_arrays(str(dataset.folder))
    assert np.array_equal(arrays["indptr"], data.graph.indptr)
    assert np.array_equal(arrays["indices"], data.graph.indices)
    assert np.array_equal(arrays["x"], data.x.rows)
    assert np.array_equal(arrays["train"], data.train)
