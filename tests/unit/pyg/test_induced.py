"""``subgraph_type="induced"``: the nodes that were drawn, and all of the graph's edges between them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.runif import RunIf

pytestmark = RunIf(extras=("pyg",))


def random_ends(num_src: int, num_dst: int, count: int, seed: int) -> torch.Tensor:
    draws = torch.Generator().manual_seed(seed)
    ends = [torch.randint(bound, (count,), generator=draws) for bound in (num_src, num_dst)]
    return torch.stack(ends)


def homogeneous() -> Any:
    from torch_geometric.data import Data

    edge_index = random_ends(40, 40, 300, seed=1)  # with loops and repeated edges
    return Data(
        x=torch.arange(40.0)[:, None],
        edge_index=edge_index,
        edge_attr=torch.arange(300.0)[:, None],
        num_nodes=40,
    )


def typed() -> Any:
    from torch_geometric.data import HeteroData

    data = HeteroData()
    data["a"].x, data["b"].x = torch.arange(20.0)[:, None], torch.arange(30.0)[:, None]
    for number, (src, dst) in enumerate([("a", "b"), ("b", "a"), ("b", "b")]):
        sizes = {"a": 20, "b": 30}
        data[src, f"to{number}", dst].edge_index = random_ends(sizes[src], sizes[dst], 120, seed=number)
        data[src, f"to{number}", dst].edge_attr = torch.arange(120.0)[:, None]
    return data


def assert_holds_all_edges(store: Any, of: Any, src: Any, dst: Any) -> None:
    """``src`` and ``dst`` are (n_id, batch) of a mini-batch's ends; ``of`` has the graph's edges."""
    rows, (row, col) = [], store.edge_index
    for n_id, batch in (src, dst):
        rows.append([(0 if batch is None else int(batch[i]), int(node)) for i, node in enumerate(n_id)])
    assert len({*rows[0]}) == len(rows[0])
    wanted = sorted(
        (rows[1].index((of_row, int(v))), e, rows[0].index((of_row, int(u))))
        for e, (u, v) in enumerate(of.edge_index.T)
        for of_row in {named[0] for named in rows[0] + rows[1]}
        if (of_row, int(u)) in rows[0] and (of_row, int(v)) in rows[1]
    )
    # torch-sparse's order: by target, and of one target as they were given.
    assert [*zip(col.tolist(), store.e_id.tolist(), row.tolist(), strict=True)] == wanted
    assert store.edge_attr.view(-1).tolist() == store.e_id.tolist()


@pytest.mark.parametrize("disjoint", [False, True])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_without_types(disjoint: bool, num_workers: int) -> None:
    from lightning_gnnload.pyg import NeighborLoader

    data = homogeneous()
    settings = {"batch_size": 7, "disjoint": disjoint, "num_workers": num_workers, "seed": 3}
    loader = NeighborLoader(data, [3, 2], subgraph_type="induced", **settings)
    drawn = NeighborLoader(data, [3, 2], **settings)
    for batch, directional in zip(loader, drawn, strict=True):
        assert batch.n_id.tolist() == directional.n_id.tolist()
        assert batch.x.view(-1).tolist() == batch.n_id.tolist()
        assert not {"num_sampled_nodes", "num_sampled_edges"} & {*batch.keys()}
        ends = batch.n_id, batch.batch if disjoint else None
        assert_holds_all_edges(batch, data, ends, ends)
        assert {*directional.e_id.tolist()} <= {*batch.e_id.tolist()}


@pytest.mark.parametrize("disjoint", [False, True])
def test_types(disjoint: bool) -> None:
    from lightning_gnnload.pyg import NeighborLoader

    data = typed()
    loader = NeighborLoader(
        data, [3, 2], input_nodes="b", subgraph_type="induced", batch_size=4, disjoint=disjoint, seed=1
    )
    for batch in loader:
        assert "num_sampled_nodes" not in batch["a"]
        for kind in data.edge_types:
            ends = [(batch[end].n_id, batch[end].batch if disjoint else None) for end in kind[::2]]
            assert_holds_all_edges(batch[kind], data[kind], *ends)


def test_links() -> None:
    from lightning_gnnload.pyg import LinkNeighborLoader

    data = homogeneous()
    for batch in LinkNeighborLoader(data, [2], neg_sampling="binary", subgraph_type="induced", batch_size=50, seed=1):
        assert_holds_all_edges(batch, data, (batch.n_id, None), (batch.n_id, None))


@pytest.mark.parametrize("time_attr", ["node_time", "edge_time"])
def test_no_edge_is_later_than_its_seed(time_attr: str) -> None:
    from lightning_gnnload.pyg import NeighborLoader

    data, draws = homogeneous(), torch.Generator().manual_seed(2)
    data.node_time = torch.randint(10, (40,), generator=draws)
    data.edge_time = torch.randint(10, (300,), generator=draws)
    # An edge is there since its source is, or by its own time.
    since = data.node_time[data.edge_index[0]] if time_attr == "node_time" else data.edge_time
    asked = torch.arange(40) % 10
    loader = NeighborLoader(
        data, [-1, -1], input_time=asked, subgraph_type="induced", batch_size=9, time_attr=time_attr, seed=1
    )
    num_left_out = 0
    for batch in loader:
        row, col = batch.edge_index
        assert (batch.batch[row] == batch.batch[col]).all()
        for place, seed in enumerate(batch.input_id):
            within = torch.isin(data.edge_index, batch.n_id[batch.batch == place]).all(0)
            wanted = (within & (since <= asked[seed])).nonzero().view(-1)
            assert sorted(batch.e_id[batch.batch[col] == place].tolist()) == wanted.tolist()
            num_left_out += int(within.sum()) - len(wanted)
    assert num_left_out > 0


def test_a_sampler_by_itself_gives_no_counts() -> None:
    from torch_geometric.sampler import NodeSamplerInput

    from lightning_gnnload.pyg import GnnloadSampler

    data = homogeneous()
    sampler = GnnloadSampler(data, [2, 2], subgraph_type="induced")
    output = sampler.sample_from_nodes(NodeSamplerInput(None, torch.tensor([5, 1])))
    assert output.num_sampled_nodes is output.num_sampled_edges is None
    assert (data.edge_index[0, output.edge] == output.node[output.row]).all()
    assert (data.edge_index[1, output.edge] == output.node[output.col]).all()
    within = torch.isin(data.edge_index, output.node).all(0)
    assert sorted(output.edge.tolist()) == within.nonzero().view(-1).tolist()


def test_without_edges() -> None:
    from torch_geometric.data import Data

    from lightning_gnnload.pyg import NeighborLoader

    data = Data(edge_index=torch.empty((2, 0), dtype=torch.long), num_nodes=3)
    [batch] = NeighborLoader(data, [2], subgraph_type="induced", batch_size=3, seed=0)
    assert batch.edge_index.tolist() == [[], []]
    assert batch.n_id.tolist() == [0, 1, 2]
