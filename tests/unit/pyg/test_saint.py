"""GraphSAINT's loaders: PyG's fields, norms by the law of inclusion, and mini-batches that depend on nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DistributedSampler

from lightning_gnnload.errors import (
    GraphDataError,
    LoaderConfigError,
    SamplerConfigError,
    StoreFormatError,
    UnknownSettingError,
)
from lightning_gnnload.ops import DrawKey
from tests.oracle import saint
from tests.runif import RunIf

pytestmark = RunIf(extras="pyg")
NAMES = ("GraphSAINTNodeSampler", "GraphSAINTEdgeSampler", "GraphSAINTRandomWalkSampler")
N, E = 40, 260


def random_data() -> Any:
    """With loops, repeated edges, and attributes of all kinds."""
    from torch_geometric.data import Data

    draws = torch.Generator().manual_seed(1)
    return Data(
        x=torch.arange(N * 2.0).view(-1, 2),
        edge_index=torch.randint(N, (2, E), generator=draws),
        n_id=torch.arange(N),
        number=torch.arange(E),  # of edges, though its name does not say so
        train_mask=torch.arange(N) % 3 == 0,
        whole="a graph",
    )


def loader_of(name: str, data: Any, batch_size: int = 6, **settings: Any) -> Any:
    import lightning_gnnload.pyg

    walk = {"walk_length": 2} if "Walk" in name else {}
    return getattr(lightning_gnnload.pyg, name)(data, batch_size, **{"log": False, "seed": 5, **walk, **settings})


def contents(batch: Any) -> dict[str, Any]:
    return {name: value.tolist() if isinstance(value, torch.Tensor) else value for name, value in batch}


@pytest.mark.parametrize("name", NAMES)
def test_a_mini_batch_is_the_subgraph_of_its_nodes(name: str) -> None:
    from torch_geometric.utils import sort_edge_index

    data = random_data()
    loader = loader_of(name, data, num_steps=3, sample_coverage=2)
    assert len(loader) == 3
    for batch in loader:
        assert batch.n_id.tolist() == sorted(set(batch.n_id.tolist()))
        whole = data.subgraph(batch.n_id)
        edge_index, number = sort_edge_index(whole.edge_index, whole.number)
        assert torch.equal(batch.edge_index, edge_index)
        assert sorted(batch.number.tolist()) == sorted(number.tolist())
        assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.number])
        assert torch.equal(batch.x, data.x[batch.n_id])
        assert torch.equal(batch.train_mask, data.train_mask[batch.n_id])
        assert torch.equal(batch.node_norm, loader.node_norm[batch.n_id])
        assert torch.equal(batch.edge_norm, loader.edge_norm[batch.number])
        assert (batch.whole, batch.num_nodes) == ("a graph", len(batch.n_id))


@pytest.mark.parametrize("name", NAMES)
def test_batches_are_a_function_of_seed_epoch_and_step(name: str, tmp_path: Path) -> None:
    def made(**settings: Any) -> Any:
        return loader_of(name, random_data(), num_steps=4, sample_coverage=1, **settings)

    loader = made()
    epochs = [[*map(contents, loader)] for _ in range(2)]
    threaded = made(num_workers=2, save_dir=str(tmp_path))
    assert [[*map(contents, threaded)] for _ in range(2)] == epochs
    assert epochs[0] != epochs[1]
    assert len({str(batch["n_id"]) for epoch in epochs for batch in epoch}) == 8
    assert [*map(contents, made(seed=6))] != epochs[0]

    again, read = made(save_dir=str(tmp_path)), iter(threaded)
    next(read)
    again.load_state_dict(threaded.state_dict())
    assert [*map(contents, again)] == [*map(contents, read)]


def test_norms_do_not_depend_on_the_seed() -> None:
    """A loader without a seed that resumes goes on by another loader's."""
    one, other = (loader_of(NAMES[0], random_data(), sample_coverage=2, seed=seed) for seed in (1, 2))
    assert torch.equal(one.node_norm, other.node_norm)
    assert torch.equal(one.edge_norm, other.edge_norm)


EDGES = [(0, 1), (0, 2), (0, 3), (1, 0), (2, 0), (2, 4), (3, 2)]
_WEIGHTS = [1 / (3, 1, 2, 1)[src] + 1 / (2, 1, 2, 1, 1)[dst] for src, dst in EDGES]


@pytest.mark.parametrize(
    ("name", "law"),
    [
        (NAMES[0], saint.by_degree(EDGES, 3)),
        (NAMES[1], saint.of_edges(EDGES, _WEIGHTS, 2)),
        (NAMES[2], saint.of_walks(EDGES, 5, 2, 2)),
    ],
)
def test_norms_are_those_of_the_law_of_inclusion(name: str, law: saint.Law) -> None:
    """What is summed at a node is right on average over the mini-batches that the node is in, only by such norms."""
    from torch_geometric.data import Data

    data = Data(edge_index=torch.tensor(EDGES).T, num_nodes=5)
    batch_size = {NAMES[0]: 3, NAMES[1]: 2, NAMES[2]: 2}[name]
    loader = loader_of(name, data, batch_size, sample_coverage=800)
    num_samples = 800 * 5 / sum(chance * len(nodes) for nodes, chance in law.items())

    # By five sigma of a share's estimate, 36 of them in all: a false alarm has the chance 2e-5.
    for node in range(5):
        if not (chance := saint.chance_of(law, node)):
            continue  # no edge leaves it
        error = 5 * np.sqrt((1 - chance) / chance / num_samples)
        assert float(loader.node_norm[node]) == pytest.approx(1 / (5 * chance), rel=error), node
    for number, (src, dst) in enumerate(EDGES):
        if not (both := saint.chance_of(law, src, dst)):
            continue
        share = both / saint.chance_of(law, dst)  # of the mini-batches that have the target
        error = 5 * np.sqrt((1 - share) / both / num_samples) + 1e-6
        assert float(loader.edge_norm[number]) == pytest.approx(1 / share, rel=error), number


def test_what_no_subgraph_had_gets_pygs_norms() -> None:
    from lightning_gnnload.pyg.saint import norms_of

    norms = norms_of(np.array([4, 0]), np.array([2, 0, 0]), np.array([0, 0, 1]), 8)
    assert norms["node_norm"].tolist() == pytest.approx([1.0, 40.0])
    assert norms["edge_norm"].tolist() == pytest.approx([2.0, 1e4, 0.1])


def test_norms_are_kept_and_checked(tmp_path: Path) -> None:
    def made(**settings: Any) -> Any:
        return loader_of(NAMES[2], random_data(), sample_coverage=1, save_dir=str(tmp_path), **settings)

    first = made()
    [file] = tmp_path.iterdir()
    before = file.stat().st_mtime_ns
    assert torch.equal(made().edge_norm, first.edge_norm)
    assert file.stat().st_mtime_ns == before
    made(walk_length=3)
    made(batch_size=7)
    assert len([*tmp_path.iterdir()]) == 3  # of other settings, other norms
    norm = first.node_norm.numpy()
    whole = file.read_bytes()
    file.write_bytes(whole.replace(norm.tobytes(), np.full_like(norm, np.nan).tobytes()))
    with pytest.raises(StoreFormatError):
        made()


def test_lightning_makes_it_anew_for_ranks_with_the_same_settings() -> None:
    from pytorch_lightning.utilities.data import _update_dataloader

    loader = loader_of(NAMES[2], random_data(), num_steps=4, sample_coverage=1)
    steps = [*map(contents, loader)]
    for rank in range(2):
        shared = _update_dataloader(loader, DistributedSampler(range(4), 2, rank, shuffle=False))
        assert (shared.batch_size, shared.walk_length, len(shared)) == (6, 2, 2)
        assert [*map(contents, shared)] == steps[rank::2]


def test_a_sampler_of_ones_own() -> None:
    from lightning_gnnload.pyg import GraphSAINTSampler

    class Evens(GraphSAINTSampler):
        def sample_nodes(self, key: DrawKey) -> Any:
            return np.array([4, 2, 4 + 2 * key.step])

    assert [batch.n_id.tolist() for batch in Evens(random_data(), 3, num_steps=2)] == [[2, 4], [2, 4, 6]]
    assert Evens(random_data(), 3, num_steps=2)[1].n_id.tolist() == [2, 4, 6]

    class PyGs(GraphSAINTSampler):
        def _sample_nodes(self, batch_size: int) -> Any:
            return torch.arange(batch_size)

    with pytest.raises(LoaderConfigError, match="PyGs does not say which nodes it draws: define sample_nodes"):
        PyGs(random_data(), 3)


def test_nodes_that_are_never_drawn_are_told_of() -> None:
    from torch_geometric.data import Data

    star = Data(edge_index=torch.tensor([[0, 0, 0], [1, 2, 3]]), num_nodes=4)
    with pytest.warns(UserWarning, match="no edge leaves 3 of 4 nodes, which are never drawn"):
        loader_of(NAMES[0], star)


def without_edges() -> Any:
    data = random_data()
    data.edge_index = data.edge_index[:, :0]
    del data.number
    return data


def with_norms() -> Any:
    data = random_data()
    data.node_norm = torch.ones(N)
    return data


def with_strange_edges() -> Any:
    data = random_data()
    data.edge_index[1, 3] = N
    return data


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"data": "shop"}, GraphDataError, "takes a Data, not a str"),
        ({"data": without_edges}, SamplerConfigError, "no edges to draw from"),
        ({"data": with_norms}, GraphDataError, "node_norm is there already"),
        ({"data": with_strange_edges}, GraphDataError, rf"edge_index spans \[0, {N}\], but there are {N} nodes"),
        ({"batch_size": 0}, SamplerConfigError, "batch_size is 0"),
        ({"num_steps": 0}, SamplerConfigError, "num_steps is 0"),
        ({"sample_coverage": -1}, SamplerConfigError, "sample_coverage is -1"),
        ({"walk_length": -1}, SamplerConfigError, "walk_length is -1"),
        ({"walks": 2}, UnknownSettingError, "has no walks="),
        ({"timeout": 3}, LoaderConfigError, "does not support timeout=3"),
    ],
)
def test_what_it_refuses(settings: dict[str, Any], error: type[Exception], message: str) -> None:
    data = settings.pop("data", random_data)
    with pytest.raises(error, match=message):
        loader_of(NAMES[2], data() if callable(data) else data, **settings)
