"""The loaders that are compared with PyG's: the user's graph, and what a turn tells."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from lightning_gnnload import Synthetic
from tests.benchmarks import graphs
from tests.benchmarks.typed_graph import Market

if TYPE_CHECKING:
    from lightning_gnnload import pyg
    from tests.benchmarks import pyg_loaders
    from tests.benchmarks.pyg_data import PlainData, TypedData

    CLASSES = pyg.NeighborLoader, pyg.LinkNeighborLoader, pyg.GnnloadSampler


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> dict:
    dataset = Synthetic("chung-lu", 300, 3000, num_features=8, root=tmp_path_factory.mktemp("plain"))
    dataset.prepare()
    file = dataset.folder.with_name("by-source.npy")
    graphs._turn(dataset.load().graph, file, dataset.folder / "manifest.json")
    return {"folder": str(dataset.folder), "by_source": str(file)}


@pytest.fixture(scope="module")
def market(tmp_path_factory) -> dict:
    dataset = Market(scale=0.0005, root=tmp_path_factory.mktemp("market"))
    dataset.prepare()
    return {"folder": str(dataset.folder), "seed_type": dataset.seed_type, "link_type": dataset.link_type}


def test_edges_lie_as_coalesce_leaves_them(plain):
    data = PlainData(**plain).data(is_timed=False)
    assert torch.equal(data.edge_index, data.coalesce().edge_index)
    assert data.edge_index.dtype is torch.long
    found = Synthetic("chung-lu", 300, 3000, num_features=8, root=plain["folder"] + "/..").load().graph
    assert torch.equal(data.edge_index[1].bincount(minlength=300), torch.from_numpy(np.diff(found.indptr)))


def test_both_data_of_a_market_have_the_same_edges(market):
    graph = TypedData(**market)
    timed, untimed = graph.data(is_timed=True), graph.data(is_timed=False)
    for kind in untimed.edge_types:
        assert timed[kind].edge_index is untimed[kind].edge_index
        assert timed[kind].time.shape == untimed[kind].edge_index.shape[1:]
        assert "time" not in untimed[kind]


@pytest.mark.parametrize("work", [{}, {"pick": "last"}, {"num_negatives": 2}], ids=["nodes", "by time", "links"])
def test_turn_tells_times_sizes_and_memory(market, work, monkeypatch):
    monkeypatch.setattr(pyg_loaders, "BATCH_SIZE", 16)
    loaders = pyg_loaders.PyGLoaders(*CLASSES, typed=True, **market)
    reply = loaders.load(0, 8, [3, 2], num_workers=0, **work)
    assert reply.keys() == {"values", "processor ms", "nodes", "edges", "MiB"}
    assert reply["nodes"] > 16
    assert reply["MiB"] > 50
    assert loaders.load(0, 8, [3, 2], num_workers=0, **work)["edges"] != reply["edges"]  # another epoch


def test_an_interpreter_with_pyg_alone_serves_pygs_loaders():
    code = "import sys; sys.modules['lightning_gnnload.ops._kernels'] = None; import tests.benchmarks.pyg_loaders"
    subprocess.run([sys.executable, "-c", code], check=True)
