"""Samplers by DGL's names: the law of each option, beside a brute-force count and DGL's own; and what is refused."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, permutations, product
from typing import Any

import numpy as np
import pytest
import torch

from lightning_gnnload.errors import SamplerConfigError, SamplerUnsupportedError, SeedError
from tests.runif import RunIf

pytestmark = RunIf(extras="dgl")

HUBS, DEGREE, FANOUT = 20_000, 4, 2
WEIGHTS = (1.0, 0.0, 2.0, 5.0)
MASK = (True, False, True, True)


def hubs() -> Any:
    """Hubs with in-neighbours of their own: each is a trial of the same draw."""
    import dgl

    hub = torch.arange(HUBS).repeat_interleave(DEGREE)
    g = dgl.graph((HUBS + torch.arange(HUBS * DEGREE), hub))
    g.edata["w"], g.edata["m"] = torch.tensor(WEIGHTS).repeat(HUBS), torch.tensor(MASK).repeat(HUBS)
    return g


def drawn_sets(g: Any, loading: Any, sampler: Any, **settings: Any) -> Counter[tuple[int, ...]]:
    """How many hubs drew each sorted tuple of positions in their lists."""
    torch.manual_seed(0)
    [(_, _, [block])] = loading.DataLoader(g, torch.arange(HUBS), sampler, batch_size=HUBS, **settings)
    import dgl

    positions, hub = block.edata[dgl.EID].numpy() % DEGREE, block.edges(order="eid")[1].numpy()
    by_hub: list[list[int]] = [[] for _ in range(HUBS)]
    for at, position in zip(hub.tolist(), positions.tolist(), strict=True):
        by_hub[at].append(position)
    return Counter(tuple(sorted(drawn)) for drawn in by_hub)


def without_replacement(weights: tuple[float, ...]) -> dict[tuple[int, ...], float]:
    """The chance of each set of FANOUT, drawn one after the other, by all orders."""
    chances: Counter[tuple[int, ...]] = Counter()
    for order in permutations(range(len(weights)), FANOUT):
        chance, rest = 1.0, sum(weights)
        for position in order:
            chance, rest = chance * weights[position] / rest, rest - weights[position]
        chances[tuple(sorted(order))] += chance
    return chances


def with_replacement(weights: tuple[float, ...]) -> dict[tuple[int, ...], float]:
    chances: Counter[tuple[int, ...]] = Counter()
    for order in product(range(len(weights)), repeat=FANOUT):
        chances[tuple(sorted(order))] += float(np.prod([weights[position] / sum(weights) for position in order]))
    return chances


def poisson(_: Any) -> dict[tuple[int, ...], float]:
    """LABOR's: each neighbour by itself, where no other hub shares it."""
    chance = FANOUT / DEGREE
    return {
        drawn: chance ** len(drawn) * (1 - chance) ** (DEGREE - len(drawn))
        for size in range(DEGREE + 1)
        for drawn in combinations(range(DEGREE), size)
    }


@pytest.mark.parametrize("is_ours", [True, False], ids=["ours", "dgl"])
@pytest.mark.parametrize(
    ("name", "settings", "law", "weights"),
    [
        ("NeighborSampler", {}, without_replacement, (1.0,) * DEGREE),
        ("NeighborSampler", {"replace": True}, with_replacement, (1.0,) * DEGREE),
        ("NeighborSampler", {"prob": "w"}, without_replacement, WEIGHTS),
        ("NeighborSampler", {"prob": "w", "replace": True}, with_replacement, WEIGHTS),
        ("NeighborSampler", {"mask": "m"}, without_replacement, MASK),
        ("NeighborSampler", {"prob": "m", "replace": True}, with_replacement, MASK),
        ("LaborSampler", {}, poisson, None),
    ],
)
def test_each_option_draws_by_its_law_as_dgls_own_does(
    is_ours: bool, name: str, settings: Any, law: Any, weights: Any
) -> None:
    import dgl

    import lightning_gnnload.dgl as ours

    loading: Any = ours if is_ours else dgl.dataloading
    seed: Any = {"seed": 3} if is_ours else {}
    counts = drawn_sets(hubs(), loading, getattr(loading, name)([FANOUT], **settings), **seed)
    chances = law(weights)
    assert {drawn for drawn in counts if not chances.get(drawn)} == set()
    for drawn, chance in chances.items():
        # 5 sigma, of at most 16 sets, a case: an error probability below 1e-5 a case; seeds are fixed.
        assert abs(counts[drawn] - HUBS * chance) <= 5 * np.sqrt(HUBS * chance * (1 - chance)), (drawn, chance)


@pytest.mark.parametrize("name", ["NeighborSampler", "LaborSampler"])
def test_excluded_edges_are_left_out_of_what_was_drawn_as_dgl_does(name: str) -> None:
    import lightning_gnnload.dgl as ours

    g = hubs()
    excluded = torch.arange(HUBS) * DEGREE
    _, _, [block] = getattr(ours, name)([FANOUT]).sample(g, torch.arange(HUBS), excluded)
    counts = np.bincount(block.edata["_ID"].numpy() % DEGREE, minlength=DEGREE)
    chance = FANOUT / DEGREE
    # Drawn before they are left out: the others come as often as ever. 5 sigma.
    assert counts[0] == 0
    assert np.abs(counts[1:] - HUBS * chance).max() < 5 * np.sqrt(HUBS * chance * (1 - chance))
    assert (g.find_edges(block.edata["_ID"])[1] == block.dstdata["_ID"][block.edges(order="eid")[1]]).all()


def test_fanouts_count_from_the_outermost_hop_and_by_type() -> None:
    import dgl

    from lightning_gnnload.dgl import MultiLayerFullNeighborSampler, NeighborSampler

    g = dgl.rand_graph(100, 3000)
    _, _, blocks = NeighborSampler([2, 5]).sample(g, torch.arange(10))
    assert [int(block.in_degrees().max()) for block in blocks] == [2, 5]
    _, _, [block] = MultiLayerFullNeighborSampler(1).sample(g, torch.arange(10))
    assert block.in_degrees().tolist() == g.in_degrees(torch.arange(10)).tolist()
    many = torch.arange(40)
    h = dgl.heterograph({("u", "a", "v"): (many, many % 2), ("u", "b", "v"): (many, many % 2)})
    _, _, [block] = NeighborSampler([{"a": 3, "b": 0}]).sample(h, {"v": torch.arange(2)})
    assert (block.num_edges("a"), block.num_edges("b")) == (6, 0)
    with pytest.raises(SamplerConfigError, match="names no fanout for"):
        NeighborSampler([{"a": 3}]).sample(h, {"v": torch.arange(2)})


def test_weights_and_masks_of_one_type_leave_other_types_uniform_and_keep_ids() -> None:
    import dgl

    from lightning_gnnload.dgl import NeighborSampler

    src, dst = torch.arange(6), torch.zeros(6, dtype=torch.long)
    h = dgl.heterograph({("u", "a", "v"): (src, dst), ("u", "b", "v"): (src.flip(0), dst)})
    for column in (torch.arange(6) >= 4, (torch.arange(6) >= 4).float()):
        h.edges["a"].data["p"] = column
        _, _, [block] = NeighborSampler([-1], prob="p").sample(h, {"v": torch.tensor([0])})
        assert sorted(block.edges["a"].data["_ID"].tolist()) == [4, 5]
        assert sorted(block.edges["b"].data["_ID"].tolist()) == [0, 1, 2, 3, 4, 5]
        for name in ("a", "b"):
            ends = block.srcnodes["u"].data["_ID"][block.edges(etype=name, order="eid")[0]]
            assert torch.equal(ends, h.find_edges(block.edges[name].data["_ID"], etype=name)[0])


def test_a_changed_column_or_graph_is_drawn_from_as_it_is_now() -> None:
    import dgl

    from lightning_gnnload.dgl import NeighborSampler

    g = dgl.graph(([1, 2], [0, 0]), num_nodes=4)
    g.edata["m"] = torch.tensor([True, False])
    sampler = NeighborSampler([-1], mask="m")
    assert sampler.sample(g, torch.tensor([0]))[0].tolist() == [0, 1]
    g.edata["m"][0], g.edata["m"][1] = False, True
    assert sampler.sample(g, torch.tensor([0]))[0].tolist() == [0, 2]
    g.add_edges([3], [0], {"m": torch.tensor([True])})
    assert sampler.sample(g, torch.tensor([0]))[0].tolist() == [0, 2, 3]


def test_what_cannot_be_is_refused_by_name() -> None:
    import dgl

    from lightning_gnnload.dgl import LaborSampler, NeighborSampler, as_edge_prediction_sampler

    g = dgl.graph(([1], [0]))
    with pytest.raises(SamplerUnsupportedError, match=r"dgl\.reverse"):
        NeighborSampler([1], edge_dir="out")
    with pytest.raises(SamplerConfigError, match="multiply"):
        NeighborSampler([1], prob="w", mask="m")
    with pytest.raises(SamplerUnsupportedError, match=r"dgl\.dataloading\.LaborSampler"):
        LaborSampler([1], prob="w")
    with pytest.raises(SamplerConfigError, match="no edges have this column"):
        NeighborSampler([1], prob="w").sample(g, torch.tensor([0]))
    with pytest.raises(SamplerConfigError, match="reverse_eids"):
        as_edge_prediction_sampler(NeighborSampler([1]), exclude="reverse_id")
    with pytest.raises(SamplerConfigError, match="not known"):
        as_edge_prediction_sampler(NeighborSampler([1]), exclude="itself")
    with pytest.raises(SeedError):
        NeighborSampler([1]).sample(g, torch.tensor([0, 0]))


def test_other_names_of_dgl_are_dgls_or_say_what_to_use() -> None:
    import dgl

    import lightning_gnnload.dgl as ours
    from lightning_gnnload.errors import NotHereError

    assert ours.dataloading is ours
    assert ours.graph is dgl.graph
    assert ours.dataloading.BlockSampler is dgl.dataloading.BlockSampler
    assert ours.MultiLayerNeighborSampler is ours.NeighborSampler
    assert not hasattr(ours.dataloading, "SAINTSampler")
    with pytest.raises(NotHereError, match="DataLoader with it"):
        from lightning_gnnload.dgl import ClusterGCNSampler  # noqa: F401
