"""What links ask for: their ends, their negatives, and the edges that they must not see."""

import numpy as np
import pytest
import torch

from lightning_gnnload import Graph, LaborSampler, Negatives, NeighborSampler, SeedTable, WeightedNeighborSampler
from lightning_gnnload.data.block import MiniBatch
from lightning_gnnload.errors import GraphDataError, SamplerConfigError, SeedError
from lightning_gnnload.ops import DrawKey
from lightning_gnnload.sample.base import draw_here
from lightning_gnnload.sample.seeds.links import LinkSettings, distinct_ends, seed_kind
from lightning_gnnload.sample.workload import FIXED_DRAWS_EPOCH
from tests.unit.seed_tables import BACK, BUYS, NUM_ITEMS, NUM_USERS, link_table, plain_graph, timed_graph

KEY = DrawKey(seed=3, epoch=1, step=5)
GRAPH = timed_graph()
ROWS = np.array([7, 3, 50, 99])


def asked(settings: LinkSettings, sampler=None, *, rows=ROWS, key=KEY, graph=GRAPH, **columns):
    columns = {"edge_type": "buys", **columns} if graph.types is not None else columns
    return seed_kind(graph, sampler or NeighborSampler([2]), link_table(**columns), settings).ask(rows, key)


def ends_in(graph, rows=ROWS) -> np.ndarray:
    return link_table(edge_type="buys" if graph.types is not None else None).nodes_in(graph)[rows]


@pytest.mark.parametrize("sharing", ["disjoint", "time"])
@pytest.mark.parametrize("corrupt", ["dst", "src", "both"])
def test_negatives_are_seeds_of_their_row(corrupt, sharing) -> None:
    negatives = Negatives("triplet", num=3, corrupt=corrupt)
    found = asked(LinkSettings(negatives), NeighborSampler([2], sharing=sharing))
    columns, ends = found.columns, ends_in(GRAPH)
    until = GRAPH.clock.until(columns["time"].numpy(), "<=")
    wanted = negatives.draw(GRAPH, "buys", ROWS, *np.ascontiguousarray(ends.T), until, KEY)
    assert columns["negative_mask"].dtype == torch.bool
    assert columns["negative_mask"].tolist() == (wanted >= 0).tolist()
    there = columns["negative_mask"].numpy()
    assert found.draw.seeds[columns["negatives"]][there].tolist() == wanted[there].tolist()
    assert columns["negatives"][~columns["negative_mask"]].tolist() == [0] * int((~there).sum())
    of_row = found.draw.queries.of_seed[columns["src"]]
    assert (found.draw.queries.of_seed[columns["negatives"]] == of_row[:, None])[there].all()
    assert found.draw.queries.until[of_row].tolist() == until.tolist()
    pairs = list(zip(found.draw.queries.of_seed.tolist(), found.draw.seeds.tolist(), strict=True))
    assert len(set(pairs)) == len(pairs)


@pytest.mark.parametrize("corrupt", ["dst", "src", "both"])
def test_binary_negatives_are_further_edges(corrupt) -> None:
    negatives = Negatives("binary", num=3, corrupt=corrupt)
    found = asked(LinkSettings(negatives))
    columns, ends = found.columns, ends_in(GRAPH)
    until = GRAPH.clock.until(columns["time"].numpy(), "<=")
    drawn = negatives.draw(GRAPH, "buys", ROWS, *np.ascontiguousarray(ends.T), until, KEY)
    wanted = [(src, dst, 1.0) for src, dst in ends.tolist()]
    for (src, dst), row in zip(ends.tolist(), drawn.tolist(), strict=True):
        for at, node in enumerate(row):
            if node >= 0:
                wanted.append((src, node, 0.0) if at < negatives.num_dst(3) else (node, dst, 0.0))
    both = found.draw.seeds[columns["src"]].tolist(), found.draw.seeds[columns["dst"]].tolist()
    assert list(zip(*both, columns["label"].tolist(), strict=True)) == wanted
    assert columns["input_id"].tolist() == ROWS.tolist()
    src_query, dst_query = (found.draw.queries.of_seed[columns[end]].tolist() for end in ("src", "dst"))
    assert src_query == dst_query  # an edge lies within its row's own graph


@pytest.mark.parametrize("mode", ["joint", "in_batch"])
def test_shared_negatives_come_once_where_rows_share(mode) -> None:
    graph = plain_graph()
    found = asked(LinkSettings(Negatives(mode, num=3)), graph=graph)
    assert len(np.unique(found.draw.seeds)) == len(found.draw.seeds)
    assert found.draw.queries is None
    assert found.columns["negatives"].shape == (4, 3)


@pytest.mark.parametrize("settings", [{"exclude": True}, {"reverse_types": ["buys"]}])
def test_settings_of_links_that_cannot_be(settings) -> None:
    with pytest.raises(SamplerConfigError, match=f"{next(iter(settings))}="):
        LinkSettings(**settings)


def test_hard_negatives_are_the_tables() -> None:
    given = np.random.default_rng(0).integers(0, NUM_ITEMS, (100, 2))
    given[3, 1] = -1
    found = asked(LinkSettings(Negatives("hard")), columns={"negatives": given})
    mask = found.columns["negative_mask"].numpy()
    assert not mask[1, 1]
    assert mask.any()
    nodes = found.draw.seeds[found.columns["negatives"]]
    assert nodes[mask].tolist() == (given[ROWS] + NUM_USERS)[mask].tolist()
    narrow = asked(LinkSettings(Negatives("hard")), columns={"negatives": torch.from_numpy(given).int()})
    assert narrow.columns["negatives"].equal(found.columns["negatives"])
    for columns, told in (({}, "there is none"), ({"negatives": given + 0.5}, r"float64 \[100, 2\]")):
        with pytest.raises(SeedError, match=f"column 'negatives'.*{told}"):
            asked(LinkSettings(Negatives("hard")), columns=columns)
    with pytest.raises(SeedError, match=r"negatives\[0, 1\] is 400.*cannot be the destination.*\[0, 180\)"):
        asked(LinkSettings(Negatives("hard")), columns={"negatives": np.full((100, 2), [-1, 400])})


def test_fixed_negatives_do_not_depend_on_the_batch() -> None:
    key = DrawKey(seed=3, epoch=FIXED_DRAWS_EPOCH, step=0)

    def of_row_3(rows: list[int], key: DrawKey) -> list[int]:
        found = asked(LinkSettings(Negatives("triplet", num=4)), rows=np.array(rows), key=key)
        return found.draw.seeds[found.columns["negatives"][rows.index(3)]].tolist()

    assert of_row_3([3], key) == of_row_3([9, 8, 3, 50], key)
    assert of_row_3([3], KEY) != of_row_3([3], DrawKey(seed=3, epoch=2, step=5))


@pytest.mark.parametrize("exclude", ["self", "reverse"])
def test_edges_that_are_asked_about_are_left_out(exclude) -> None:
    # Rows that are edges of the graph, by their place in its list.
    rng = np.random.default_rng(0)
    users, items = rng.integers(0, 20, 200), rng.integers(0, 30, 200)
    graph = Graph.from_hetero({"user": 20, "item": 30}, {BUYS: (users, items), BACK: (items, users)}, keep_order=True)
    ids = rng.permutation(200)[:60]
    table = SeedTable(src=users[ids], dst=items[ids], edge_type="buys", edge_ids=ids)
    for sharing in ("plain", "disjoint"):
        asking = seed_kind(graph, NeighborSampler([2], sharing=sharing), table, LinkSettings(exclude=exclude))
        assert asking.needs
        queries = asking.ask(ROWS[:3], KEY).draw.queries
        wanted = set()
        for number, row in enumerate(ROWS[:3]):
            for kind in (BUYS, BACK)[: 1 + (exclude == "reverse")]:
                node = items[ids[row]] + 20 if kind == BUYS else users[ids[row]]
                places = np.arange(graph.indptr[node], graph.indptr[node + 1])
                [place] = places[graph.edge_order[places] == ids[row]]
                wanted.add((number if sharing == "disjoint" else 0, int(place)))
        found = list(zip(queries.excluded_query.tolist(), queries.excluded.tolist(), strict=True))
        assert sorted(wanted) == found
        assert queries.num_queries == (3 if sharing == "disjoint" else 1)


def seen_of_asked(settings: LinkSettings, sampler: NeighborSampler, *, with_ids: bool) -> int:
    """Counts the edges of mini-batches that their own rows ask about, and the edges that go back."""
    rng = np.random.default_rng(0)
    users, items, times = rng.integers(0, 6, 60), rng.integers(0, 7, 60), rng.integers(0, 9, 60)
    graph = Graph.from_hetero(
        {"user": 6, "item": 7},
        {BUYS: (users, items), BACK: (items, users)},
        edge_time={BUYS: times, BACK: times},
        keep_order=True,
    )
    every = np.arange(graph.num_edges)
    ends = np.stack([graph.indices, np.searchsorted(graph.indptr, every, side="right") - 1])
    is_back = graph.edge_types_of(every) == 1
    user, item = np.where(is_back, ends[::-1], ends)
    asked = rng.permutation(60)[:20]
    rows = SeedTable(
        src=users[asked],
        dst=items[asked],
        edge_type="buys",
        edge_ids=asked if with_ids else None,
        time=rng.integers(4, 10, 20),
    )
    found = seed_kind(graph, sampler, rows, settings).ask(np.arange(20), KEY)
    arena, layout = draw_here(sampler, graph, found.draw)
    batch = MiniBatch.view(arena, layout, len(found.draw.seeds))
    queries = np.unique(rows.time, return_inverse=True)[1] if sampler.sharing == "time" else np.arange(20)
    count = 0
    for block in batch.blocks:
        of_edge = batch.rows[block.edge_dst()].numpy()
        for row, query in enumerate(queries):
            seen = block.edge_ids.numpy()[of_edge == query]
            is_own = (user[seen] == users[asked[row]]) & (item[seen] == items[asked[row]] + 6)
            if with_ids:
                is_own = graph.edge_order[seen] == asked[row]
            count += np.count_nonzero(is_own & (~is_back[seen] | (settings.exclude != "self")))
    return count


@pytest.mark.parametrize("with_ids", [False, True])
@pytest.mark.parametrize("exclude", ["self", "reverse"])
@pytest.mark.parametrize("options", [{}, {"sharing": "time"}, {"pick": "last", "before": "<"}, {"order": "root"}])
def test_no_row_sees_what_it_is_asked_about(options, exclude, with_ids) -> None:
    # Along paths a seed's node is found again, as another one, into which the edge leads as well.
    for fanout in (-1, 3):
        sampler = NeighborSampler([fanout] * 3, edge_ids=True, **{"order": "path", **options})
        negatives = Negatives("binary", num=2, corrupt="both")
        assert seen_of_asked(LinkSettings(negatives), sampler, with_ids=with_ids) > 0
        assert seen_of_asked(LinkSettings(negatives, exclude), sampler, with_ids=with_ids) == 0


def test_who_leaves_no_edges_out_says_so() -> None:
    settings = LinkSettings(exclude="self")
    for sampler in (LaborSampler([2]), WeightedNeighborSampler([2])):
        with pytest.raises(SamplerConfigError, match=r"Sampler\(.*cannot leave edges out.*NeighborSampler, which can"):
            asked(settings, sampler, graph=plain_graph())


def test_settings_that_cannot_work() -> None:
    with pytest.raises(SamplerConfigError, match="exclude='all'"):
        LinkSettings(exclude="all")
    with pytest.raises(SamplerConfigError, match="the seeds are nodes"):
        seed_kind(plain_graph(), NeighborSampler([2]), SeedTable([3]), LinkSettings(Negatives()))
    full = Graph.from_coo([0, 0, 1, 1], [0, 1, 0, 1])
    with pytest.raises(GraphDataError, match="no edge is false"):
        seed_kind(full, NeighborSampler([2]), SeedTable(src=[0], dst=[1]), LinkSettings(Negatives()))


def test_distinct_ends_against_a_plain_loop() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        num_rows, width = rng.integers(0, 9), rng.integers(1, 5)
        ends, of_row = rng.integers(-1, 6, (num_rows, width)), rng.integers(0, 3, num_rows)
        seeds, of_seed, places = distinct_ends(ends, of_row, num_nodes=6)
        known: list[tuple[int, int]] = []
        for query, row in zip(of_row.tolist(), ends.tolist(), strict=True):
            known += [pair for node in dict.fromkeys(row) if node >= 0 and (pair := (query, node)) not in known]
        assert list(zip(of_seed.tolist(), seeds.tolist(), strict=True)) == known
        wanted = [
            [known.index((query, node)) if node >= 0 else 0 for node in row]
            for query, row in zip(of_row.tolist(), ends.tolist(), strict=True)
        ]
        assert places.tolist() == wanted


def test_a_row_with_several_targets_asks_for_that_of_the_epoch() -> None:
    table = SeedTable(
        src=[0, 1], dst=[2, 4, 6, 3, 5, 7], dst_ptr=[0, 3, 6], edge_type="buys", time=[50, 60], edge_ids=np.arange(6)
    )
    rows = seed_kind(GRAPH, NeighborSampler([2]), table, LinkSettings(Negatives("triplet", num=2)))
    seen = set()
    for epoch in range(40):
        key = DrawKey(0, epoch, 0)
        asked = rows.ask(np.array([1, 0]), key)
        taken = table.taken(np.array([1, 0]), 0, epoch)
        assert (asked.draw.seeds[asked.columns["dst"]] - NUM_USERS).tolist() == table.targets[taken].tolist()
        seen |= set(taken.tolist())
    assert seen == set(range(6))  # of 40 epochs; a right draw fails with 6 * (2/3)**40 < 1e-6
