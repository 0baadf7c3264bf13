"""ShaDowKHopSampler: a subgraph of its own for each root, with PyG's fields and in torch-sparse's order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from lightning_gnnload.errors import CheckpointError, GraphDataError, LoaderConfigError, SamplerConfigError, SeedError
from tests.runif import RunIf

pytestmark = RunIf(extras="pyg")


def graph_by_hand() -> Any:
    """That of PyG's own test of this class."""
    from torch_geometric.data import Data

    row = [0, 0, 0, 1, 1, 2, 2, 2, 2, 3, 4, 4, 5, 5]
    col = [1, 2, 3, 0, 2, 0, 1, 4, 5, 0, 2, 5, 2, 4]
    x = torch.randn(6, 16, generator=torch.Generator().manual_seed(0))
    return Data(edge_index=torch.tensor([row, col]), edge_weight=torch.arange(14), x=x, y=torch.arange(6) % 3)


def random_data(num_nodes: int = 60, num_edges: int = 400) -> Any:
    """With loops, repeated edges and attributes of all kinds."""
    from torch_geometric.data import Data

    draws = torch.Generator().manual_seed(4)
    return Data(
        x=torch.arange(num_nodes * 2.0).view(-1, 2),
        y=torch.arange(num_nodes) * 10,
        edge_index=torch.randint(num_nodes, (2, num_edges), generator=draws),
        edge_attr=torch.arange(num_edges * 3.0).view(-1, 3),
        edge_number=torch.arange(num_edges),
        number=torch.arange(num_nodes, dtype=torch.int16),
        sparse=torch.arange(num_nodes * 4.0).view(4, -1).t(),  # no table: it is not contiguous
        whole=torch.tensor([1.0, 2.0]),
        scalar=torch.tensor(3),
        name="a graph",
        train_mask=torch.arange(num_nodes) % 3 == 0,
    )


def loader_of(data: Any, *args: Any, **kwargs: Any) -> Any:
    from lightning_gnnload.pyg import ShaDowKHopSampler

    return ShaDowKHopSampler(data, *args, **({"seed": 5} | kwargs))


def same(one: Any, other: Any) -> bool:
    return one.keys() == other.keys() and all(
        torch.equal(one[key], other[key]) if isinstance(one[key], torch.Tensor) else one[key] == other[key]
        for key in one.keys()  # noqa: SIM118
    )


def test_pygs_own_test() -> None:
    import torch_geometric.loader as pyg

    data = graph_by_hand()
    mask = torch.tensor([1, 1, 0, 0, 0, 0], dtype=torch.bool)
    loader = loader_of(data, depth=1, num_neighbors=3, node_idx=mask, batch_size=2)
    assert isinstance(loader, pyg.ShaDowKHopSampler)
    assert len(loader) == 1
    batch = next(iter(loader))
    assert batch.num_graphs == len(batch) == 2
    assert batch.batch.tolist() == [0, 0, 0, 0, 1, 1, 1]
    assert batch.ptr.tolist() == [0, 4, 7]
    assert batch.root_n_id.tolist() == [0, 5]
    assert batch.x.tolist() == data.x[torch.tensor([0, 1, 2, 3, 0, 1, 2])].tolist()
    assert batch.y.tolist() == data.y[mask].tolist()
    assert batch.edge_index[0].tolist() == [0, 0, 0, 1, 1, 2, 2, 3, 4, 4, 5, 5, 6, 6]
    assert batch.edge_index[1].tolist() == [1, 2, 3, 0, 2, 0, 1, 0, 5, 6, 4, 6, 4, 5]
    e_id = torch.tensor([0, 1, 2, 3, 4, 5, 6, 9, 0, 1, 3, 4, 5, 6])
    assert batch.edge_weight.tolist() == data.edge_weight[e_id].tolist()


def ego(data: Any, root: int, depth: int) -> list[int]:
    """All nodes within ``depth`` hops against the edges, ascending."""
    found = {root}
    for _ in range(depth):
        found |= {int(u) for u, v in data.edge_index.T if int(v) in found}
    return sorted(found)


@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_every_field(depth: int, num_workers: int) -> None:
    data = random_data()
    roots = torch.tensor([7, 3, 59, 0, 12, 7])  # one twice: in a mini-batch, it has two subgraphs
    loader = loader_of(data, depth, -1, node_idx=roots, batch_size=4, num_workers=num_workers)
    batches = list(loader)
    assert [batch.num_graphs for batch in batches] == [4, 2]
    for batch, own in zip(batches, roots.split(4), strict=True):
        nodes = [ego(data, int(root), depth) for root in own]
        n_id = torch.tensor([node for each in nodes for node in each])
        assert batch.ptr.tolist() == np.cumsum([0, *map(len, nodes)]).tolist()
        assert batch.batch.tolist() == np.repeat(np.arange(len(nodes)), [*map(len, nodes)]).tolist()
        assert n_id[batch.root_n_id].tolist() == own.tolist()
        assert batch.batch[batch.root_n_id].tolist() == list(range(len(own)))
        wanted = sorted(
            (first + each.index(int(u)), first + each.index(int(v)), e)
            for first, each in zip(batch.ptr.tolist(), nodes, strict=False)
            for e, (u, v) in enumerate(data.edge_index.T)
            if int(u) in each and int(v) in each
        )
        e_id = torch.tensor([edge for *_, edge in wanted], dtype=torch.long)
        assert batch.edge_index.T.tolist() == [[row, col] for row, col, _ in wanted]
        assert batch.y.tolist() == data.y[own].tolist()
        for name in ("x", "number", "sparse", "train_mask"):
            assert torch.equal(batch[name], data[name][n_id]), name
        for name in ("edge_attr", "edge_number"):
            assert torch.equal(batch[name], data[name][e_id]), name
        for name in ("whole", "scalar"):
            assert torch.equal(batch[name], data[name])
        assert batch.name == "a graph"
        fields = {"batch", "ptr", "root_n_id", "edge_index", *data.keys()}
        assert {*batch.keys()} == fields


@pytest.mark.parametrize("replace", [False, True])
def test_scopes_are_drawn(replace: bool) -> None:
    data = random_data()
    batches = list(loader_of(data, 2, 2, replace=replace, batch_size=10))
    sizes = torch.cat([batch.ptr.diff() for batch in batches])
    assert int(sizes.max()) <= 1 + 2 + 4
    assert int(sizes.min()) < 7  # a draw with replacement, a leaf or a node met twice
    whole = [len(ego(data, root, 2)) for root in range(60)]
    assert (sizes <= torch.tensor(whole)).all()
    for batch in batches:  # each within its root's two hops
        for place, root in enumerate(batch.y.tolist()):
            assert {*batch.number[batch.batch == place].tolist()} <= {*ego(data, root // 10, 2)}


def test_a_root_depends_on_no_other() -> None:
    data = random_data()

    def by_root(**settings: Any) -> dict[int, tuple[list[int], list[int]]]:
        found = {}
        for batch in loader_of(data, 2, 2, **settings):
            for place, root in enumerate(batch.y.tolist()):
                own = batch.batch == place
                edges = batch.edge_number[own[batch.edge_index[0]]]
                found[root] = batch.number[own].tolist(), edges.tolist()
        return found

    alone = by_root(batch_size=1)
    assert by_root(batch_size=60, num_workers=3) == alone
    assert by_root(batch_size=7, shuffle=True) == alone
    assert by_root(batch_size=7, node_idx=torch.arange(59, 29, -1)).items() <= alone.items()
    assert by_root(batch_size=1, seed=6) != alone


@pytest.mark.parametrize("shuffle", [False, True])
def test_any_number_of_workers_and_every_epoch(shuffle: bool) -> None:
    data = random_data()
    loaders = [loader_of(data, 2, 3, batch_size=8, shuffle=shuffle, num_workers=number) for number in (0, 1, 3)]
    epochs = [[list(loader) for loader in loaders] for _ in range(2)]
    for of_loaders in epochs:
        for others in of_loaders[1:]:
            assert all(map(same, of_loaders[0], others))
    assert not all(map(same, epochs[0][0], epochs[1][0]))
    loaders[0].set_epoch(0)
    assert all(map(same, loaders[0], epochs[0][0]))


def test_resuming_in_mid_epoch() -> None:
    data = random_data()
    whole = list(loader_of(data, 1, 2, batch_size=8, shuffle=True))
    first = loader_of(data, 1, 2, batch_size=8, shuffle=True)
    batches = iter(first)
    for _ in range(3):
        next(batches)
    again = loader_of(data, 1, 2, batch_size=8, shuffle=True)
    again.load_state_dict(first.state_dict())
    rest = list(again)
    assert len(rest) == len(whole) - 3
    assert all(map(same, rest, whole[3:]))
    other = loader_of(data, 1, 2, batch_size=9, shuffle=True)
    other.load_state_dict(first.state_dict())
    with pytest.raises(CheckpointError):
        next(iter(other))


def test_as_many_nodes_as_edges() -> None:
    # PyG takes edge_attr for rows of nodes here.
    data = random_data(num_nodes=20, num_edges=20)
    for batch in loader_of(data, 1, -1, batch_size=5):
        assert torch.equal(batch.edge_attr, data.edge_attr[batch.edge_number])
        ends = data.edge_index[:, batch.edge_number]
        assert torch.equal(batch.number.long()[batch.edge_index], ends)


def test_the_collate_function_gives_what_iterating_does() -> None:
    data = random_data()
    loader = loader_of(data, 2, 2, batch_size=6)
    assert same(loader.collate_fn(list(range(6))), next(iter(loader)))


def test_labels_that_are_of_no_node_and_no_batch_size() -> None:
    data = random_data()
    data.y = torch.tensor([[1.0, 2.0]])
    for place, batch in enumerate(loader_of(data, 1, 2, batch_size=None, node_idx=[4, 8])):
        assert batch.y.tolist() == [[1.0, 2.0]]
        assert batch.number[batch.root_n_id].tolist() == [[4, 8][place]]


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"node_idx": torch.tensor([0.5])}, SeedError, "node_idx is torch.float32"),
        ({"node_idx": torch.ones(5, dtype=torch.bool)}, SeedError, r"or a mask \[60\]"),
        ({"node_idx": torch.tensor([3, 60])}, SeedError, "seed 1 is 60"),
        ({"timeout": 3}, LoaderConfigError, "timeout"),
        ({"num_neighbors": -2}, SamplerConfigError, "-2"),
        ({"num_neighbors": 2.5}, SamplerConfigError, r"num_neighbors is 2\.5"),
        ({"depth": -1}, SamplerConfigError, "depth is -1"),
        ({"depth": "two"}, SamplerConfigError, "depth is 'two'"),
        ({"seed": -1}, LoaderConfigError, "seed=-1"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        loader_of(random_data(), **({"depth": 1, "num_neighbors": 2} | settings))


def test_other_graphs_are_refused() -> None:
    from torch_geometric.data import Data, HeteroData

    with pytest.raises(GraphDataError, match="not a HeteroData"):
        loader_of(HeteroData(), 1, 2)
    with pytest.raises(LoaderConfigError, match=r"data.adj_t is a Tensor.*edge_index"):
        loader_of(Data(adj_t=torch.eye(3).to_sparse_csr(), num_nodes=3), 1, 2)


class StandIn:
    """The little of a SparseTensor that is used, as torch-sparse has no wheels."""

    def __init__(self, rowptr: Any, col: Any, value: Any, sparse_sizes: Any, **checked: bool) -> None:
        self.rowptr, self.col, self.value, self.sizes, self.checked = rowptr, col, value, sparse_sizes, checked
        self.storage = SimpleNamespace(value=lambda: value)

    def coo(self) -> tuple[Any, Any, Any]:
        row = torch.repeat_interleave(torch.arange(len(self.rowptr) - 1), self.rowptr.diff())
        return row, self.col, self.value

    def cpu(self) -> StandIn:
        return self

    def size(self, dim: int) -> int:
        return int(self.sizes[dim])

    sparse_size = size


@pytest.mark.parametrize("with_value", [False, True])
def test_a_sparse_tensor(monkeypatch: pytest.MonkeyPatch, with_value: bool) -> None:
    import torch_geometric.typing
    from torch_geometric.data import Data

    from lightning_gnnload import Graph

    by_edges = graph_by_hand()
    graph = Graph.from_coo(*by_edges.edge_index, num_nodes=6, keep_order=True)
    value = by_edges.edge_weight[graph.edge_order] if with_value else None
    indptr, indices = torch.from_numpy(graph.indptr), torch.from_numpy(graph.indices).long()
    monkeypatch.setattr(torch_geometric.typing, "SparseTensor", StandIn)
    monkeypatch.setattr("torch_geometric.utils.sparse.SparseTensor", StandIn)
    data = Data(adj_t=StandIn(indptr, indices, value, (6, 6)), x=by_edges.x, y=by_edges.y, num_nodes=6)
    settings = {"depth": 1, "num_neighbors": 3, "node_idx": torch.tensor([0, 1]), "batch_size": 2}
    [batch], [wanted] = loader_of(data, **settings), loader_of(by_edges, **settings)
    assert torch.equal(batch.x, wanted.x)
    assert batch.adj_t.sizes == (7, 7)
    assert batch.adj_t.checked == {"is_sorted": True, "trust_data": True}
    row, col, values = batch.adj_t.coo()  # targets above sources, by target
    order = (row + 7 * col).argsort()
    assert torch.equal(torch.stack([col, row])[:, order], wanted.edge_index)
    if with_value:
        assert torch.equal(values[order], wanted.edge_weight)
    else:
        assert values is None
