"""Links over parts, where nobody has the whole graph: seeds, negatives and edges left out equal those of its lists."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lightning_gnnload import Graph, GraphData, Negatives, NeighborSampler, SeedTable, partition_graph
from lightning_gnnload.data.partition import Partition
from lightning_gnnload.data.remote_graph import RemoteGraph
from lightning_gnnload.errors import ExchangeError, GraphDataError, SamplerConfigError, SeedError
from lightning_gnnload.ops import DrawKey
from lightning_gnnload.sample.group.group import SamplingGroup
from lightning_gnnload.sample.parts.collective import CollectiveSampler
from lightning_gnnload.sample.seeds.links import LinkSettings, seed_kind
from tests.unit.sample.ranks import disjoint, over_parts

COUNTS = {"user": 14, "none": 0, "item": 9}
BUYS, BACK, KNOWS = ("user", "buys", "item"), ("item", "rev_buys", "user"), ("user", "knows", "user")
VIEWS = ("user", "views", "item")
ROWS = 24


def edge_lists(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 14, 90), rng.integers(0, 9, 90), rng.integers(0, 12, 90)


def typed_graph(seed: int, *, timed: bool, flat: bool = False, keep_order: bool = False) -> Graph:
    """Half of all pairs of users and items are edges, some of them several times, so that most negatives are drawn
    again."""
    rng = np.random.default_rng(seed + 100)
    users, items, times = edge_lists(seed)
    friends = rng.integers(0, 14, (2, 60))
    if flat:
        when: dict[str, Any] = {"edge_time": times, "node_time": rng.integers(0, 8, 23)} if timed else {}
        return Graph.from_coo(users, 14 + items, 23, keep_order=keep_order, **when)
    described: dict[str, Any] = {"keep_order": keep_order}
    if timed:
        described["edge_time"] = {BUYS: times, BACK: times}
        described["node_time"] = {"item": rng.integers(0, 8, 9)}
    return Graph.from_hetero(
        COUNTS,
        {VIEWS: rng.integers(0, 9, (2, 80)), BUYS: (users, items), BACK: (items, users), KNOWS: friends},
        **described,
    )


def outline_of(graph: Graph) -> RemoteGraph:
    columns = [name for name in Graph.ARRAYS if getattr(graph, name) is not None]
    known = {"types": graph.types, "clock": graph.clock, "node_time": graph.node_time}
    return RemoteGraph(graph.num_nodes, graph.num_edges, graph.fingerprint, columns, **known)


def parts_of(graph: Graph) -> Partition:
    return disjoint(graph, np.random.default_rng(0).integers(0, 3, graph.num_nodes), 3)


def table_of(graph: Graph, *, several: bool = False, hard: bool = False) -> SeedTable:
    """Rows whose ends are edges, and some that are none."""
    rng = np.random.default_rng(7)

    def table(src: int, dst: int, **kind: Any) -> SeedTable:
        columns = {"columns": {"negatives": rng.integers(-1, min(src, dst), (ROWS, 5))}} if hard else {}
        time = {} if graph.clock is None else {"time": rng.integers(0, 13, ROWS)}
        return SeedTable(src=rng.integers(0, src, ROWS), dst=rng.integers(0, dst, ROWS), **time, **columns, **kind)

    if graph.types is None:
        return table(23, 23)
    if not several:
        return table(14, 9, edge_type="buys")
    return SeedTable.of_types({BUYS: table(14, 9), KNOWS: table(14, 14)})


def asked(kind: Any, rows: np.ndarray, step: int) -> list[Any]:
    batch = kind.ask(rows, DrawKey(5, 1, step))
    queries = batch.draw.queries
    names = ("of_seed", "name", "since", "until", "excluded", "excluded_query")
    arrays = {name: getattr(queries, name, None) for name in names}
    columns = {name: column.tolist() for name, column in batch.columns.items()}
    return [batch.draw.seeds.tolist(), {k: None if v is None else v.tolist() for k, v in arrays.items()}, columns]


NEGATIVES = [
    Negatives("binary", num=3),
    Negatives("triplet", num=4, corrupt="both", tries=3),
    Negatives("triplet", num=2, corrupt="src"),
    Negatives("joint", num=6),
    Negatives("in_batch"),
    Negatives("in_batch", num=3),
    Negatives("hard", num=4, corrupt="both"),
    Negatives("triplet", num=3, weight="heat"),
    None,
]


@pytest.mark.parametrize("negatives", NEGATIVES, ids=repr)
@pytest.mark.parametrize("shape", ["flat", "typed", "several"])
@pytest.mark.parametrize("timed", [False, True])
def test_what_links_ask_is_what_the_whole_graph_tells(negatives: Any, shape: str, timed: bool) -> None:
    graph = typed_graph(3, timed=timed, flat=shape == "flat")
    table = table_of(graph, several=shape == "several", hard=getattr(negatives, "mode", "") == "hard")
    heat = np.random.default_rng(1).integers(1, 5, graph.num_nodes).astype(np.float64)
    links = LinkSettings(negatives, "self" if shape == "flat" else "reverse", weights={"heat": heat})
    sampler = NeighborSampler([3])
    whole = seed_kind(graph, sampler, table, links)
    batches = [(rows, step) for step, rows in enumerate(np.array_split(np.arange(len(table)), 2))]

    def work(colleagues: SamplingGroup) -> list[Any]:
        kind = seed_kind(outline_of(graph), CollectiveSampler(sampler, colleagues), table, links)
        return [asked(kind, *batch) for batch in batches[: 2 - colleagues.rank % 2]]  # one asks less

    expected = [asked(whole, *batch) for batch in batches]
    if negatives is not None and negatives.mode == "triplet" and negatives.tries > 3:
        empty = Graph.from_coo([], [], graph.num_nodes) if graph.types is None else None
        assert empty is None or expected != [asked(seed_kind(empty, sampler, table, links), *each) for each in batches]
    for rank, found in enumerate(over_parts(parts_of(graph), work)):
        assert found == expected[: 2 - rank % 2]


def test_where_all_pairs_are_edges_nothing_is_false() -> None:
    pairs = np.divmod(np.arange(9), 3)
    graph = Graph.from_hetero(
        {"a": 3, "b": 3}, {("a", "to", "b"): tuple(np.concatenate([end, end[:1]]) for end in pairs)}
    )
    table = SeedTable(src=[0], dst=[1], edge_type="to")

    def work(colleagues: SamplingGroup) -> None:
        collective = CollectiveSampler(NeighborSampler([2]), colleagues)
        with pytest.raises(GraphDataError, match="all 9 pairs of 3 sources and 3 destinations are edges"):
            seed_kind(outline_of(graph), collective, table, LinkSettings(Negatives("triplet")))

    over_parts(parts_of(graph), work)


@pytest.mark.parametrize("exclude", ["self", "reverse"])
@pytest.mark.parametrize("shape", ["flat", "typed"])
def test_edges_given_by_id(shape: str, exclude: Any) -> None:
    """Of several edges between the same ends, one; and its reverse, by the same id where that is of another type."""
    graph = typed_graph(3, timed=True, flat=shape == "flat", keep_order=True)
    rows = np.random.default_rng(2).permutation(90)[:ROWS]
    users, items, times = edge_lists(3)
    offset, kind = (14, {}) if shape == "flat" else (0, {"edge_type": "buys"})
    table = SeedTable(src=users[rows], dst=offset + items[rows], time=times[rows] + 1, edge_ids=rows, **kind)
    links, sampler = LinkSettings(exclude=exclude), NeighborSampler([3])
    expected = asked(seed_kind(graph, sampler, table, links), np.arange(ROWS), 0)

    def work(colleagues: SamplingGroup) -> list[Any]:
        collective = CollectiveSampler(sampler, colleagues)
        outline: Any = outline_of(graph)
        wrong = SeedTable(src=users[rows[:1]], dst=offset + items[rows[:1]], time=[9], edge_ids=[rows[1]], **kind)
        with pytest.raises(SeedError, match=rf"edge {rows[1]} .*does not lead from (user|node) {users[rows[0]]} to"):
            seed_kind(outline, collective, wrong, links).ask(np.array([0]), DrawKey(0, 0, 0))
        return asked(seed_kind(outline, collective, table, links), np.arange(ROWS), 0)

    assert over_parts(parts_of(graph), work) == [expected] * 3
    assert len(expected[1]["excluded"]) >= ROWS


def test_edges_given_by_ids_that_were_not_kept_are_refused_by_name() -> None:
    graph = typed_graph(0, timed=False, flat=True)

    def work(colleagues: SamplingGroup) -> None:
        lookup = CollectiveSampler(NeighborSampler([2]), colleagues).lookup
        with pytest.raises(SamplerConfigError, match=r"edges are given by id, but .* do not keep .* keep_order=True"):
            lookup.find_ids(0, np.array([0]), np.array([15]))

    over_parts(parts_of(graph), work)


@pytest.mark.parametrize(
    ("operation", "settings", "columns"),
    [
        ("are_links", {"edge_type": 4}, {"src": np.array([1])}),
        ("are_links", {"edge_type": -1}, {"src": np.array([1])}),
        ("are_links", {"edge_type": "buys"}, {"src": np.array([1])}),
        ("are_links", {"edge_type": 0}, {"src": np.array([23])}),
        ("are_links", {"edge_type": 0}, {"src": np.array([-1])}),
        ("are_links", {"edge_type": 0}, {"src": np.array([0.5])}),
        ("are_links", {"edge_type": 0}, {}),
        ("links_between", {"edge_type": 0}, {"src": np.array([1]), "until": np.array([2**32])}),
        ("are_links", {"edge_type": 0}, {"src": np.array([1]), "until": np.array([2**32])}),
        ("mark_links", {}, {"src": np.array([1])}),
    ],
)
def test_what_is_no_question_gets_no_answer(operation: str, settings: Any, columns: Any) -> None:
    graph = typed_graph(0, timed=True)
    if operation == "links_between":
        columns = {"src": np.array([1, 2])}  # two for one node

    def work(colleagues: SamplingGroup) -> None:
        with pytest.raises((ExchangeError, SamplerConfigError)):
            colleagues.ask(operation, np.array([0]), settings, shared=columns)

    [partition] = [disjoint(graph, np.zeros(graph.num_nodes, np.int64), 1)]
    over_parts(partition, work)


def test_links_of_a_head_name_their_edges_as_those_of_the_whole_graph(tmp_path: Path) -> None:
    """A run over the whole graph goes on over owners, whose parts keep the user's ids of edges."""
    edges = np.random.default_rng(0).integers(0, 20, (2, 90))
    table = SeedTable(src=edges[0, :30], dst=edges[1, :30], edge_ids=np.arange(30))
    data = GraphData(Graph.from_coo(*edges, 20, keep_order=True), train=table)
    partition = partition_graph(data, tmp_path / "parts", 2, hops=0, progress=False)
    head, links = partition.graph_data.graph, LinkSettings(Negatives("triplet", num=2), "reverse")
    whole = seed_kind(data.graph, NeighborSampler([2]), table, links)

    def work(colleagues: SamplingGroup) -> list[Any]:
        kind = seed_kind(head, CollectiveSampler(NeighborSampler([2]), colleagues), table, links)
        assert kind.settings_by_name == whole.settings_by_name
        draw = kind.ask(np.arange(30), DrawKey(0, 0, 0)).draw
        return [draw.seeds.tolist(), draw.queries.excluded.tolist()]

    draw = whole.ask(np.arange(30), DrawKey(0, 0, 0)).draw
    assert over_parts(partition, work) == [[draw.seeds.tolist(), draw.queries.excluded.tolist()]] * 2
