"""ClusterData and ClusterLoader: PyG's clusters and mini-batches, by our partitioners, and kept without pickles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DistributedSampler

from lightning_gnnload.errors import (
    GraphDataError,
    LoaderConfigError,
    MissingExtraError,
    PartitionError,
    SeedError,
    StoreFormatError,
)
from tests.runif import RunIf

pytestmark = RunIf(extras="pyg")
N, E, PARTS = 60, 500, 7


def random_data(**attributes: Any) -> Any:
    from torch_geometric.data import Data

    draws = torch.Generator().manual_seed(1)
    return Data(
        x=torch.arange(N * 2.0).view(-1, 2),
        edge_index=torch.randint(N, (2, E), generator=draws),
        n_id=torch.arange(N),
        number=torch.arange(E),  # of edges, though its name does not say so
        names=[f"node {node}" for node in range(N)],
        whole="a graph",
        **attributes,
    )


def clusters_of(data: Any = None, num_parts: int = PARTS, **settings: Any) -> Any:
    from lightning_gnnload.pyg import ClusterData

    data = random_data() if data is None else data
    return ClusterData(data, num_parts, **{"log": False, "method": "ldg", **settings})


def loader_of(clusters: Any, **settings: Any) -> Any:
    from lightning_gnnload.pyg import ClusterLoader

    return ClusterLoader(clusters, **{"seed": 5, **settings})


def contents(batch: Any) -> dict[str, Any]:
    return {name: value.tolist() if isinstance(value, torch.Tensor) else value for name, value in batch}


@pytest.mark.parametrize("sparse_format", ["csr", "csc"])
def test_a_mini_batch_has_all_edges_among_its_clusters(sparse_format: str) -> None:
    from torch_geometric.utils import sort_edge_index

    data, clusters = random_data(), clusters_of(sparse_format=sparse_format)
    seen = []
    for batch in loader_of(clusters, batch_size=3, shuffle=True):
        whole = data.subgraph(batch.n_id)
        assert torch.equal(sort_edge_index(batch.edge_index), sort_edge_index(whole.edge_index))
        assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.number])
        assert batch.edge_index[int(sparse_format == "csc")].diff().min() >= 0
        assert torch.equal(batch.x, data.x[batch.n_id])
        assert batch.names == [f"node {node}" for node in batch.n_id.tolist()]
        assert (batch.whole, batch.num_nodes) == ("a graph", len(batch.n_id))
        seen += batch.n_id.tolist()
    assert sorted(seen) == [*range(N)]


@pytest.mark.parametrize("keeps", [False, True])
def test_clusters_are_as_pygs_own_class_has_them(keeps: bool) -> None:
    import torch_geometric.loader as pyg

    data = random_data()
    del data.names, data.number  # which PyG loses: it asks a graph without edges what is of an edge
    data.edge_attr = torch.arange(E)
    clusters = clusters_of(data, keep_inter_cluster_edges=keeps)
    for number in range(PARTS):
        assert contents(clusters[number]) == contents(pyg.ClusterData.__getitem__(clusters, number))
    assert contents(clusters[-1]) == contents(clusters[PARTS - 1])
    with pytest.raises(IndexError, match=f"no cluster {PARTS}: they are numbered from 0 to {PARTS - 1}"):
        clusters[PARTS]


def test_batches_are_a_function_of_seed_and_epoch() -> None:
    clusters = clusters_of()
    settings = {"batch_size": 2, "shuffle": True}
    loader, threaded = loader_of(clusters, **settings), loader_of(clusters, num_workers=2, **settings)
    epochs = [[*map(contents, loader)] for _ in range(2)]
    assert epochs == [[*map(contents, threaded)] for _ in range(2)]
    assert epochs[0] != epochs[1]

    again, read = loader_of(clusters, **settings), iter(threaded)
    next(read)
    again.load_state_dict(threaded.state_dict())
    assert [*map(contents, again)] == [*map(contents, read)]


def test_lightning_makes_it_anew_for_ranks() -> None:
    from pytorch_lightning.utilities.data import _update_dataloader

    loader = loader_of(clusters_of(), batch_size=1, shuffle=True)
    shared = [_update_dataloader(loader, DistributedSampler(range(PARTS), 2, rank, seed=1)) for rank in range(2)]
    seen = [node for part in shared for batch in part for node in batch.n_id.tolist()]
    assert set(seen) == {*range(N)}


@RunIf(extras="partition")
def test_metis_cuts_few_edges() -> None:
    from torch_geometric.data import Data

    # Two rings of 30 nodes, joined by one edge.
    ring = torch.arange(30)
    edges = torch.stack([ring, (ring + 1) % 30])
    both = torch.cat([edges, edges + 30, torch.tensor([[0], [30]])], dim=1)
    order = torch.randperm(60, generator=torch.Generator().manual_seed(0))
    clusters = clusters_of(Data(edge_index=order[both], num_nodes=60), 2, method="metis")
    assert [clusters[number].num_edges for number in range(2)] == [30, 30]
    assert len(clusters_of(method="metis", recursive=True)) == PARTS


def test_without_pymetis_it_says_what_needs_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pymetis", None)
    with pytest.raises(MissingExtraError, match=r"method='ldg' needs no package"):
        clusters_of(method="metis")
    assert len(clusters_of(num_parts=1, method="metis")) == 1


def test_clusters_are_kept_and_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lightning_gnnload.pyg import ClusterData

    first = clusters_of(save_dir=str(tmp_path))
    [file] = (tmp_path / f"part_{PARTS}").iterdir()
    with monkeypatch.context() as patch:
        patch.setattr(ClusterData, "_metis", lambda *_: pytest.fail("clusters are made anew"))
        assert torch.equal(clusters_of(save_dir=str(tmp_path)).partition.node_perm, first.partition.node_perm)
        csc = clusters_of(save_dir=str(tmp_path), sparse_format="csc")  # which edges go by, not nodes
        assert torch.equal(csc.partition.node_perm, first.partition.node_perm)
    clusters_of(save_dir=str(tmp_path), method="random")
    assert len([*file.parent.iterdir()]) == 2

    torch.save(first.partition, tmp_path / f"part_{PARTS}" / "metis.pt")
    with pytest.raises(StoreFormatError, match="such as PyG's own, are not read"):
        clusters_of(save_dir=str(tmp_path), filename="metis.pt")
    clusters_of(save_dir=str(tmp_path), filename="mine")
    other = random_data()
    other.edge_index = other.edge_index.flip(0)
    with pytest.raises(StoreFormatError, match="made of another graph"):
        clusters_of(other, save_dir=str(tmp_path), filename="mine")


def test_a_file_of_strange_clusters_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lightning_gnnload.pyg import ClusterData

    with monkeypatch.context() as patch:
        patch.setattr(ClusterData, "_metis", lambda *_: torch.full((N,), PARTS))
        with pytest.raises(StoreFormatError, match=f"clusters from {PARTS} to {PARTS}"):
            clusters_of(save_dir=str(tmp_path))
    with pytest.raises(StoreFormatError, match="it is damaged"):
        clusters_of(save_dir=str(tmp_path))


def test_attributes_that_number_nodes_are_left_out() -> None:
    with pytest.warns(UserWarning, match="ClusterData: mini-batches leave out 'pair_index'"):
        clusters = clusters_of(random_data(pair_index=torch.tensor([[0], [59]])))
    assert "pair_index" not in clusters[0]


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"num_parts": N + 1}, PartitionError, rf"num_parts is {N + 1}; it must lie in \[1, {N}\]"),
        ({"num_parts": 0}, PartitionError, "num_parts is 0"),
        ({"method": "louvain"}, PartitionError, "method='louvain' is not known"),
        ({"recursive": True}, PartitionError, "recursive=True is of METIS"),
        ({"sparse_format": "coo"}, PartitionError, "sparse_format='coo' is not known"),
        ({"data": "shop"}, GraphDataError, "ClusterData takes a Data, not a str"),
    ],
)
def test_what_clusters_refuse(settings: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        clusters_of(**settings)


def test_what_the_loader_refuses() -> None:
    clusters = clusters_of()
    with pytest.raises(GraphDataError, match=r"takes a ClusterData of lightning_gnnload\.pyg, not a Data"):
        loader_of(random_data())
    with pytest.raises(LoaderConfigError, match="does not support timeout=3"):
        loader_of(clusters, timeout=3)
    with pytest.raises(SeedError, match=r"cluster . is in a mini-batch twice"):
        [*loader_of(clusters, batch_size=3, sampler=[3, 1, 3])]
