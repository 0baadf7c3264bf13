"""``subgraph_type="bidirectional"``: what was drawn, and the ways back, each by its own number or by none."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
import torch

from lightning_gnnload.errors import GraphDataError

if TYPE_CHECKING:
    from torch_frame import TensorFrame, stype
    from torch_geometric.data import Data, HeteroData
    from torch_geometric.loader import NodeLoader

    from lightning_gnnload.pyg import GnnloadSampler, LinkNeighborLoader, NeighborLoader
    from lightning_gnnload.pyg.bidirectional import NO_EDGE, reverse_types

pytestmark = [
    pytest.mark.filterwarnings("ignore:subgraph_type='bidirectional' has added"),
    pytest.mark.filterwarnings("ignore:.*without in-neighbours"),
]
N, E = 24, 130
Edge = tuple[int, int, int]
TO, BACK, KNOWS = ("a", "to", "b"), ("b", "rev_to", "a"), ("a", "knows", "a")
WAYS_BACK = {TO: BACK, BACK: TO, KNOWS: KNOWS}


def random_ends(num_src: int, num_dst: int, count: int, seed: int) -> torch.Tensor:
    draws = torch.Generator().manual_seed(seed)
    return torch.stack([torch.randint(bound, (count,), generator=draws) for bound in (num_src, num_dst)])


def columns(count: int, seed: int) -> dict[str, torch.Tensor]:
    """Attributes of edges, of several types, each with its edge's number."""
    number, draws = torch.arange(count), torch.Generator().manual_seed(seed)
    time, weight = torch.randint(10, (count,), generator=draws), torch.rand(count, generator=draws)
    return {"kind": number, "edge_attr": number.double()[:, None] + 0.5, "edge_time": time, "edge_weight": weight}


def multigraph(seed: int) -> Data:
    """A directed graph with loops, parallel edges, and ways back for some of them."""
    draws = torch.Generator().manual_seed(seed)
    edge_index = random_ends(N, N, E, seed)
    edge_index[:, -20:] = edge_index[:, :20].flip(0)
    edge_index[:, 60:75] = edge_index[:, :15]
    return Data(edge_index=edge_index, num_nodes=N, time=torch.randint(10, (N,), generator=draws), **columns(E, seed))


def typed(seed: int) -> HeteroData:
    data, sizes, draws = HeteroData(), {"a": 20, "b": 15}, torch.Generator().manual_seed(seed)
    for kind, size in sizes.items():
        data[kind].num_nodes, data[kind].time = size, torch.randint(10, (size,), generator=draws)
    for at, kind in enumerate(WAYS_BACK):
        data[kind].edge_index = random_ends(sizes[kind[0]], sizes[kind[2]], 70, 10 * seed + at)
        for name, values in columns(70, at).items():
            data[kind][name] = values
    return data


def edges_of(store: Any) -> Counter[Edge]:
    return Counter(zip(*store.edge_index.tolist(), store.e_id.tolist(), strict=True))


def check_attributes(store: Any, of: Any, src: torch.Tensor, dst: torch.Tensor) -> None:
    """Every edge with a number is that edge of the graph; the others have no value."""
    known = store.e_id >= 0
    ends = torch.stack([src[store.edge_index[0, known]], dst[store.edge_index[1, known]]])
    assert torch.equal(ends, of.edge_index[:, store.e_id[known]])
    for name in ("kind", "edge_attr", "edge_time", "edge_weight"):
        assert torch.equal(store[name][known], of[name][store.e_id[known]]), name
        rest = store[name][~known]
        assert (rest.isnan() if rest.is_floating_point() else rest == -1).all(), name
    assert store.edge_index[1].tolist() == sorted(store.edge_index[1].tolist())


def wanted(drawn: Counter[Edge], back: Counter[Edge], of: Any, of_back: Any, src: Any, dst: Any, seen: Any) -> Counter:
    """All edges of a type, by the slow rule: the i-th edge there leads back by the i-th that may be seen."""

    def between(edges: Any, u: int, v: int, at: int) -> list[int]:
        is_one = (edges.edge_index[0] == u) & (edges.edge_index[1] == v)
        return [int(e) for e in is_one.nonzero() if seen(edges, int(e), at)]

    made = Counter(drawn)
    for v, u, number in back:  # drawn from v to u; at u's place is who asks
        ways = between(of, int(src[u]), int(dst[v]), v)
        place = between(of_back, int(dst[v]), int(src[u]), v).index(number)
        edge = (u, v, ways[min(place, len(ways) - 1)] if ways else NO_EDGE)
        made[edge] = max(made[edge], 1)
    return made


SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "replace": {"replace": True},
    "disjoint": {"disjoint": True},
    "weights": {"weight_attr": "edge_weight"},
    "times of edges": {"time_attr": "edge_time", "input_time": torch.arange(N) % 10},
    "times of nodes": {"time_attr": "time", "input_time": torch.arange(N) % 10},
    "seeds twice": {"input_nodes": torch.tensor([3, 3, 4, 5, 3])},
    "transformed": {"transform_sampler_output": lambda output: output},
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("seed", [1, 2])
def test_each_edge_has_its_own_number_and_attributes(settings: dict[str, Any], seed: int) -> None:
    data = multigraph(seed)
    settings = {"num_neighbors": [3, 2], "batch_size": 7, "seed": seed, **settings}
    num_lone = num_added = 0
    both_ways = NeighborLoader(data, subgraph_type="bidirectional", **settings)
    for batch, drawn in zip(both_ways, NeighborLoader(data, **settings), strict=True):
        since = data.time[data.edge_index[0]] if settings.get("time_attr") == "time" else data.edge_time

        def seen(_: Any, e: int, at: int, batch: Any = batch, since: Any = since) -> bool:
            return "time_attr" not in settings or bool(since[e] <= batch.seed_time[batch.batch[at]])

        assert torch.equal(batch.n_id, drawn.n_id)
        check_attributes(batch, data, batch.n_id, batch.n_id)
        before, found = edges_of(drawn), edges_of(batch)
        assert found == wanted(before, before, data, data, batch.n_id, batch.n_id, seen)
        if "batch" in batch:
            assert torch.equal(*batch.batch[batch.edge_index])
        assert not {"num_sampled_nodes", "num_sampled_edges"} & {*batch.keys()}
        num_lone += sum(number < 0 for _, _, number in found)
        num_added += len(found - before)
    assert 0 < num_lone < num_added


@pytest.mark.parametrize("settings", ["links", {}, {"disjoint": True}, {"time_attr": "edge_time"}], ids=str)
def test_ways_back_are_of_the_reverse_type(settings: Any) -> None:
    data = typed(3)

    def batches(subgraph_type: str) -> Any:
        same: dict[str, Any] = {"batch_size": 5, "seed": 1, "subgraph_type": subgraph_type}
        if settings == "links":
            return LinkNeighborLoader(data, [3, 2], TO, neg_sampling="binary", **same)
        time = torch.arange(15) % 10 if "time_attr" in settings else None
        return NeighborLoader(data, [3, 2], "b", input_time=time, **same, **settings)

    for batch, drawn in zip(batches("bidirectional"), batches("directional"), strict=True):
        for kind, back in WAYS_BACK.items():
            src, dst = (batch[end] for end in kind[::2])

            def seen(edges: Any, e: int, at: int, batch: Any = batch, dst: Any = dst) -> bool:
                return "time_attr" not in settings or bool(edges.edge_time[e] <= batch["b"].seed_time[dst.batch[at]])

            check_attributes(batch[kind], data[kind], src.n_id, dst.n_id)
            ends = edges_of(drawn[kind]), edges_of(drawn[back])
            assert edges_of(batch[kind]) == wanted(*ends, data[kind], data[back], src.n_id, dst.n_id, seen)


def test_types_without_a_reverse_stay_as_they_were_drawn() -> None:
    data = typed(4)
    del data[BACK]
    data["b", "x", "a"].edge_index, data["b", "y", "a"].edge_index = (random_ends(15, 20, 9, seed) for seed in (1, 2))
    settings: dict[str, Any] = {"num_neighbors": [3, 2], "input_nodes": "b", "batch_size": 5, "seed": 1}
    with pytest.warns(UserWarning, match=r"no reverse type of \('a', 'to', 'b'\), whose edges stay"):
        loader = NeighborLoader(data, subgraph_type="bidirectional", **settings)
    for batch, drawn in zip(loader, NeighborLoader(data, **settings), strict=True):
        assert edges_of(batch[TO]) == edges_of(drawn[TO])
    named, other = ("a", "rev_to", "b"), ("b", "x", "a")  # by PyG's rule a rev_ has its own name's ways back, or none
    with pytest.warns(UserWarning, match=r"no reverse type of \('a', 'rev_to', 'b'\), whose"):
        assert reverse_types((named, other)) == {named: None, other: named}


def test_what_was_drawn_may_be_kept_as_by_pyg() -> None:
    data = multigraph(5)
    sampler = GnnloadSampler(data, [3, 2], "bidirectional", seed=1)
    sampler.keep_orig_edges = True
    batch = next(iter(NeighborLoader(data, [3, 2], neighbor_sampler=sampler, batch_size=7)))
    drawn = next(iter(NeighborLoader(data, [3, 2], batch_size=7, seed=1)))
    assert torch.equal(batch._orig_edge_index, drawn.edge_index)
    assert batch.num_sampled_edges == drawn.num_sampled_edges


def test_backward_the_ways_back_are_turned_too() -> None:
    data = multigraph(6)
    sampler = GnnloadSampler(data, [3, 2], "bidirectional", sample_direction="backward", seed=1)
    for batch in NeighborLoader(data, [3, 2], neighbor_sampler=sampler, batch_size=7):
        check_attributes(batch, data, batch.n_id, batch.n_id)
        assert (batch.e_id < 0).any()
    kinds = typed(6)
    sampler = GnnloadSampler(kinds, [3, 2], "bidirectional", sample_direction="backward", seed=1)
    for batch in NeighborLoader(kinds, [3, 2], "a", neighbor_sampler=sampler, batch_size=7):
        for kind in WAYS_BACK:
            check_attributes(batch[kind], kinds[kind], *(batch[end].n_id for end in kind[::2]))


def test_a_number_that_is_none_is_no_place_in_an_attribute() -> None:
    data = Data(edge_index=torch.tensor([[1, 2], [0, 1]]), num_nodes=3, kind=torch.arange(2))
    with pytest.warns(UserWarning, match="added edges that the graph does not have"):
        [batch] = NeighborLoader(data, [-1, -1], torch.tensor([0]), subgraph_type="bidirectional")
    assert batch.edge_index.tolist() == [[1, 0, 2, 1], [0, 1, 1, 2]]
    assert batch.kind.tolist() == [0, -1, 1, -1]
    with pytest.raises(IndexError):
        data.kind[batch.e_id]
    with pytest.raises(IndexError):
        data.kind[batch.e_id.int()]
    sampler = GnnloadSampler(data, [-1], "bidirectional")
    with pytest.raises(IndexError):  # PyG's own loader looks attributes up by it
        next(iter(NodeLoader(data, sampler, torch.tensor([0]))))


def test_frames_of_edges_have_no_rows_without_a_value() -> None:
    data = Data(edge_index=torch.tensor([[1, 2], [0, 1]]), num_nodes=3)
    data.tf = TensorFrame({stype.numerical: torch.rand(2, 1)}, {stype.numerical: ["n"]})
    with pytest.raises(GraphDataError, match="a TensorFrame of edges cannot have rows without a value"):
        next(iter(NeighborLoader(data, [-1], torch.tensor([0]), subgraph_type="bidirectional")))
