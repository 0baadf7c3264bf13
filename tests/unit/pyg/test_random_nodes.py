"""RandomNodeLoader and ZipLoader: PyG's mini-batches, as a function of rows, seed and epoch."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from lightning_gnnload.errors import GraphDataError, LoaderConfigError
from tests.runif import RunIf

pytestmark = RunIf(extras="pyg")
N, E = 50, 300


def random_data() -> Any:
    from torch_geometric.data import Data

    draws = torch.Generator().manual_seed(1)
    edge_index = torch.randint(N, (2, E), generator=draws)
    return Data(x=torch.arange(N * 2.0).view(-1, 2), edge_index=edge_index, edge_attr=torch.arange(E), name="a graph")


def typed_data() -> Any:
    from torch_geometric.data import HeteroData

    draws = torch.Generator().manual_seed(1)
    data = HeteroData()
    data["user"].x, data["item"].x = torch.arange(30.0), torch.arange(20.0)
    ends = [torch.randint(count, (200,), generator=draws) for count in (30, 20)]
    data["user", "buys", "item"].edge_index = torch.stack(ends)
    data["user", "buys", "item"].number = torch.arange(200)
    return data


def contents(batch: Any) -> Any:
    if isinstance(batch, tuple):
        return [*map(contents, batch)]
    return {
        f"{store._key} {name}": value.tolist() if isinstance(value, torch.Tensor) else value
        for store in batch.stores
        for name, value in store.items()
    }


@pytest.mark.parametrize("make", [random_data, typed_data])
def test_batches_are_pygs(make: Any) -> None:
    import torch_geometric.loader as pyg

    from lightning_gnnload.pyg import RandomNodeLoader

    ours = [*map(contents, RandomNodeLoader(make(), 4))]
    assert ours == [*map(contents, pyg.RandomNodeLoader(make(), 4))]


def zipped(**settings: Any) -> Any:
    from lightning_gnnload.pyg import NeighborLoader, ZipLoader

    data = random_data()
    near, far = NeighborLoader(data, [2], seed=1), NeighborLoader(data, [2, 2], torch.arange(40), seed=2)
    return ZipLoader([near, far], batch_size=12, **settings)


def random_nodes(**settings: Any) -> Any:
    from lightning_gnnload.pyg import RandomNodeLoader

    return RandomNodeLoader(random_data(), 4, **settings)


@pytest.mark.parametrize("make", [random_nodes, zipped])
def test_batches_are_a_function_of_seed_and_epoch(make: Any) -> None:
    settings = {"shuffle": True, "seed": 5}
    loader, threaded = make(**settings), make(**settings, num_workers=2)
    epochs = [[*map(contents, loader)] for _ in range(2)]
    assert epochs == [[*map(contents, threaded)] for _ in range(2)]
    assert epochs[0] != epochs[1]

    again, read = make(**settings), iter(threaded)
    next(read)
    again.load_state_dict(threaded.state_dict())
    assert [*map(contents, again)] == [*map(contents, read)]


def test_loaders_of_a_zip_get_the_same_rows_and_draw_by_their_own_seeds() -> None:
    batches = [*zipped()]
    assert [len(one.input_id) for one, _ in batches] == [12, 12, 12, 4]  # of 40 rows, the fewest
    for one, two in batches:
        assert torch.equal(one.input_id, two.input_id)
    [alone] = {id(loader): loader for loader in zipped().loaders[:1]}.values()
    assert contents(batches[0][0]) == contents(next(iter_of(alone)))


def iter_of(loader: Any) -> Any:
    from lightning_gnnload.pyg import NeighborLoader

    return iter(NeighborLoader(loader.data, [2], batch_size=12, seed=1))


def test_what_they_refuse() -> None:
    import torch_geometric.loader as pyg

    from lightning_gnnload.pyg import RandomNodeLoader, ZipLoader

    with pytest.raises(LoaderConfigError, match="no batch_size=: num_parts=4 cuts 50 nodes into mini-batches of 13"):
        RandomNodeLoader(random_data(), 4, batch_size=7)
    with pytest.raises(LoaderConfigError, match="num_parts is 0"):
        RandomNodeLoader(random_data(), 0)
    with pytest.raises(GraphDataError, match="takes a Data, not a list"):
        RandomNodeLoader([], 3)
    with pytest.raises(LoaderConfigError, match="was given no loaders"):
        ZipLoader([])
    with pytest.raises(LoaderConfigError, match="a RandomNodeLoader of others"):
        ZipLoader([pyg.RandomNodeLoader(random_data(), 4)])
