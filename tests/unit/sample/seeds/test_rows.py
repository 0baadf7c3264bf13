"""What rows ask a sampler for."""

import numpy as np
import pytest

from lightning_gnnload import Graph, LaborSampler, NeighborSampler, SeedTable, WeightedNeighborSampler, ops
from lightning_gnnload.errors import SamplerConfigError, SeedError
from lightning_gnnload.ops import Draw, DrawKey
from lightning_gnnload.ops.philox import hash32
from lightning_gnnload.sample.fanouts import numbered_fanouts, typed_fanouts
from lightning_gnnload.sample.seeds.links import seed_kind
from tests.unit.toy import toy_graph

KEY = DrawKey(seed=3, epoch=1, step=5)
BUYS, SEES = ("user", "buys", "item"), ("user", "sees", "item")
EDGES = {BUYS: ([0, 1, 2, 0], [0, 0, 1, 1]), SEES: ([0, 1], [0, 0])}
COUNTS = {"user": 3, "item": 2}
TIMES = {BUYS: [100, 110, 120, 130]}
TIMED = Graph.from_hetero(COUNTS, EDGES, edge_time=TIMES)  # codes count from 100; an item is a node from 3 on
AGED = Graph.from_hetero(COUNTS, EDGES, edge_time=TIMES, node_time={"item": [105, 125]})


def asked(graph, sampler, table, rows=None, key=KEY, **options):
    rows = np.arange(len(table)) if rows is None else np.array(rows)
    return seed_kind(graph, sampler, rows if table is None else table).ask(rows, key, **options)


def test_plain_ids_ask_for_nothing_more() -> None:
    ids = np.array([17, 3])
    found = seed_kind(toy_graph(), NeighborSampler([2]), ids).ask(ids, KEY)
    assert found.draw.seeds.tolist() == [17, 3]
    assert (found.draw.queries, found.y, found.columns) == (None, None, {})


def test_rows_bring_what_is_theirs() -> None:
    table = SeedTable([9, 4, 7], y=[1, 2, 3], time=[5, 6, 7], columns={"site": [[1.0, 2], [3, 4], [5, 6]]})
    found = asked(toy_graph(), NeighborSampler([2]), table, [2, 0])
    assert found.draw.seeds.tolist() == [7, 9]
    assert found.draw.queries is None  # the graph has no times, so that all share
    assert found.y.tolist() == [3, 1]
    assert {name: rows.tolist() for name, rows in found.columns.items()} == {
        "input_id": [2, 0],
        "time": [7, 5],
        "site": [[5, 6], [1, 2]],
    }


def test_disjoint_rows_draw_by_their_numbers() -> None:
    table = SeedTable([4, 4, 9])
    found = asked(toy_graph(), NeighborSampler([2], sharing="disjoint"), table, [2, 1])
    assert found.draw.seeds.tolist() == [9, 4]
    queries = found.draw.queries
    assert (queries.of_seed.tolist(), queries.name.tolist(), queries.by_row) == ([0, 1], [2, 1], True)
    assert (queries.since, queries.until) == (None, None)
    # Another step: the same names.
    other = asked(toy_graph(), NeighborSampler([2], sharing="disjoint"), table, [2, 1], DrawKey(3, 1, 6))
    assert other.draw.queries.name.tolist() == [2, 1]
    # Of plain ids the numbers are the ids.
    ids = np.array([17, 3])
    plain = seed_kind(toy_graph(), NeighborSampler([2], sharing="disjoint"), ids).ask(ids, KEY)
    assert plain.draw.queries.name.tolist() == [17, 3]


@pytest.mark.parametrize(("before", "until"), [("<=", [21, 31, 0]), ("<", [20, 31, 0])])
def test_times_bound_what_counts(before, until) -> None:
    table = SeedTable([0, 0, 1], node_type="item", time=[120, 1000, 5])
    found = asked(TIMED, NeighborSampler([2], before=before), table)
    assert found.draw.seeds.tolist() == [3, 3, 4]
    assert found.draw.queries.until.tolist() == until
    assert found.draw.queries.since is None
    assert found.columns["time"].tolist() == [120, 1000, 5]


@pytest.mark.parametrize("window", [15, 15.0])
def test_a_window_begins_before_the_time(window) -> None:
    table = SeedTable([0, 0], node_type="item", time=[120, 200])
    found = asked(TIMED, NeighborSampler([2], window=window), table)
    assert (found.draw.queries.since.tolist(), found.draw.queries.until.tolist()) == ([5, 31], [21, 31])


@pytest.mark.parametrize("window", [np.timedelta64(2, "D"), 2 * 86_400 * 10**9, np.timedelta64(2**63 - 1, "ns")])
def test_a_window_of_dates_counts_nanoseconds(window) -> None:
    days = np.array(["2020-01-01", "2020-01-03", "2020-01-04"], "datetime64[D]")
    graph = Graph.from_coo([1, 2, 3], [0, 0, 0], edge_time=days)
    found = asked(graph, NeighborSampler([2], window=window), SeedTable([0], time=days[2:] + 1))
    reaches_beyond = window == np.timedelta64(2**63 - 1, "ns")
    assert found.draw.queries.since.tolist() == [0 if reaches_beyond else 2]  # codes count days


def test_a_window_in_days_is_none_of_numbers() -> None:
    sampler = NeighborSampler([2], window=np.timedelta64(30, "D"))
    with pytest.raises(SamplerConfigError, match=r"window=.*30,'D'.*a number of the same unit"):
        seed_kind(TIMED, sampler, SeedTable([0], node_type="item", time=[120]))


@pytest.mark.parametrize("window", [np.inf, 2**70, 2**63 - 1, 1e30])
@pytest.mark.parametrize("time", [-(2**63) + 5, 120])
def test_a_window_may_reach_beyond_all_times(window, time) -> None:
    table = SeedTable([0, 0], node_type="item", time=[time, 120])
    assert asked(TIMED, NeighborSampler([2], window=window), table).draw.queries.since.tolist() == [0, 0]


def test_a_window_stays_whole() -> None:
    # As a float it would be a multiple of 1024.
    table = SeedTable([0], node_type="item", time=[2**62 + 121])
    edges = {("user", "buys", "item"): ([0, 0], [0, 0])}
    graph = Graph.from_hetero(None, edges, edge_time={("user", "buys", "item"): [120, 2**62 + 120]})
    for window, since in ((2**62 + 1, 0), (2**62, 1)):
        assert asked(graph, NeighborSampler([2], window=window), table).draw.queries.since.tolist() == [since]


def test_a_window_that_nanoseconds_cannot_say_is_refused() -> None:
    with pytest.raises(SamplerConfigError, match=r"window\[0\] does not fit in 64 bits"):
        NeighborSampler([2], window=np.timedelta64(300, "Y"))


@pytest.mark.parametrize(("before", "end"), [("<=", 1), ("<", 0)])
def test_a_path_goes_on_before_its_edge(before, end) -> None:
    table = SeedTable([0], node_type="item", time=[120])
    queries = asked(TIMED, NeighborSampler([2], before=before, order="path"), table).draw.queries
    assert (queries.along_path, queries.path_end) == (True, end)


def test_rows_of_one_time_share() -> None:
    table = SeedTable([0, 1, 0, 1], node_type="item", time=[130, 110, 110, 130])
    found = asked(TIMED, NeighborSampler([2], sharing="time"), table)
    queries = found.draw.queries
    assert queries.of_seed.tolist() == [1, 0, 0, 1]
    assert queries.until.tolist() == [11, 31]
    assert not queries.by_row
    assert queries.name.tolist() == [5 ^ int(code) for code in hash32(np.array([11, 31], np.uint32))]
    assert queries.num_queries == 2


def test_nodes_have_their_own_time() -> None:
    own = asked(AGED, NeighborSampler([2]), SeedTable([1, 0], node_type="item"))
    assert own.draw.queries.until.tolist() == [26, 6]
    assert own.columns["time"].tolist() == [125, 105]
    plain = seed_kind(AGED, NeighborSampler([2]), np.array([4])).ask(np.array([4]), KEY)
    assert (plain.draw.queries.until.tolist(), plain.columns["time"].tolist()) == ([26], [125])
    given = asked(AGED, NeighborSampler([2]), SeedTable([1], node_type="item", time=[107]))
    assert given.draw.queries.until.tolist() == [8]
    with pytest.raises(SeedError, match="node 0 of type 'user' is a seed without a time"):
        seed_kind(AGED, NeighborSampler([2]), np.array([0])).ask(np.array([0]), KEY)


def test_times_are_ignored_on_demand() -> None:
    found = asked(TIMED, NeighborSampler([2], before=None), SeedTable([0], node_type="item", time=[120]))
    assert found.draw.queries is None
    assert found.columns["time"].tolist() == [120]


@pytest.mark.parametrize("sharing", ["plain", "disjoint"])
def test_ends_of_links_are_seeds_once_a_query(sharing) -> None:
    src, dst = [5, 9, 5, 7], [9, 5, 3, 7]
    found = asked(toy_graph(), NeighborSampler([2], sharing=sharing), SeedTable(src=src, dst=dst, y=[1, 2, 3, 4]))
    assert found.draw.seeds.tolist() == ([5, 9, 3, 7] if sharing == "plain" else [5, 9, 9, 5, 5, 3, 7])
    assert found.draw.seeds[found.columns["src"]].tolist() == src
    assert found.draw.seeds[found.columns["dst"]].tolist() == dst
    assert found.y.tolist() == [1, 2, 3, 4]
    if sharing == "disjoint":
        assert found.draw.queries.of_seed.tolist() == [0, 0, 1, 1, 2, 2, 3]
        for end in ("src", "dst"):
            assert found.draw.queries.of_seed[found.columns[end]].tolist() == [0, 1, 2, 3]


def test_links_of_one_time_share_their_ends() -> None:
    table = SeedTable(src=[0, 0, 0], dst=[1, 1, 0], edge_type="buys", time=[130, 110, 130])
    found = asked(TIMED, NeighborSampler([2], sharing="time"), table)
    assert found.draw.seeds.tolist() == [0, 4, 0, 4, 3]
    assert found.draw.queries.of_seed.tolist() == [1, 1, 0, 0, 1]
    assert found.columns["src"].tolist() == [0, 2, 0]
    assert found.columns["dst"].tolist() == [1, 3, 4]


@pytest.mark.parametrize(
    ("graph", "settings", "table", "error", "message"),
    [
        (toy_graph(), {}, SeedTable([4, 7, 4]), SeedError, "rows 0 and 2 have the same node"),
        (TIMED, {}, SeedTable([4]), SeedError, "before=None"),
        (TIMED, {}, None, SeedError, "before=None"),
        (AGED, {}, SeedTable(src=[0], dst=[1], edge_type="buys"), SeedError, "give each row's|Give each row's"),
        (TIMED, {"sharing": "plain"}, SeedTable([4], time=[5]), SamplerConfigError, "'disjoint' or 'time'"),
        (TIMED, {"sharing": "time"}, SeedTable([4, 4], time=[111, 111]), SeedError, "rows 0 and 1.*node and time"),
        (AGED, {"sharing": "time"}, SeedTable([4, 4]), SeedError, "rows 0 and 1.*node and time"),
        (toy_graph(), {"sharing": "time"}, SeedTable([4], time=[3]), SamplerConfigError, "the graph has none"),
        (toy_graph(), {"window": 3}, SeedTable([4], time=[3]), SamplerConfigError, "window=3.*the graph has none"),
        (toy_graph(), {"order": "path"}, None, SamplerConfigError, "order='path'.*the graph has none"),
        (toy_graph(), {"before": "<"}, None, SamplerConfigError, "before='<'.*the graph has none"),
    ],
)
def test_rows_that_cannot_be_asked_for(graph, settings, table, error, message: str) -> None:
    with pytest.raises(error, match=message):
        seed_kind(graph, NeighborSampler([2], **settings), np.array([0]) if table is None else table)


@pytest.mark.parametrize("node", [5, -1])
def test_seeds_that_are_no_nodes_are_named(node: int) -> None:
    for graph, times in ((TIMED, [120]), (AGED, None), (AGED, [120])):
        with pytest.raises(SeedError, match=rf"seeds\[0\] is {node}, which is not a node.*\[0, 5\)"):
            NeighborSampler([2]).sample(graph, [node], times=times)


@pytest.mark.parametrize("given", [{"times": [120]}, {"times": [120, 130], "rows": [4]}])
def test_seeds_have_a_time_and_a_row_each(given) -> None:
    with pytest.raises(SeedError, match=f"{[*given][-1]} has 1 entries for 2 seeds"):
        NeighborSampler([2]).sample(TIMED, [3, 4], **given)


def test_samplers_without_times_refuse_them() -> None:
    table = SeedTable([4], time=[120])
    with pytest.raises(SamplerConfigError, match="LaborSampler draws whatever their time"):
        seed_kind(TIMED, LaborSampler([2]), table)
    with pytest.raises(SamplerConfigError, match="WeightedNeighborSampler"):
        WeightedNeighborSampler([2]).sample(TIMED, [4], times=[120])
    with pytest.raises(SamplerConfigError, match="LaborSampler"):
        LaborSampler([2]).sample(TIMED, [4], times=[120])
    with pytest.raises(SeedError, match="edges of any time"):
        NeighborSampler([2]).draw(TIMED, Draw(np.array([4]), KEY), np.zeros(1 << 16, np.uint8))


@pytest.mark.parametrize(
    ("fanouts", "table"),
    [
        ([3, -1], [[3, 3], [-1, -1]]),
        ([{"buys": 2}, {SEES: 1, BUYS: -1}], [[2, 0], [-1, 1]]),
        ([{"user__sees__item": 2}, 4], [[0, 2], [4, 4]]),
        ([{1: 2}], [[0, 2]]),
        ({BUYS: [2, 0], "sees": [-1, 1]}, [[2, -1], [0, 1]]),
    ],
)
def test_fanouts_by_type_and_hop(fanouts, table) -> None:
    assert ops.fanout_table(numbered_fanouts(typed_fanouts(fanouts), TIMED.types), 2).tolist() == table


def test_fanouts_name_types_that_are_there() -> None:
    with pytest.raises(SamplerConfigError, match="'rates' names no edge type"):
        NeighborSampler([{"rates": 2}]).sample(TIMED, [4], times=[120])
    typed = Graph.from_coo([0], [1], edge_type=[0])
    with pytest.raises(SamplerConfigError, match="edge type"):
        NeighborSampler([{"rates": 2}]).sample(typed, [1])


def test_settings_are_told() -> None:
    sampler = NeighborSampler([2], before="<", window=7, order="path", pick="last", sharing="time")
    told = "sharing='time', before='<', window=7, order='path', pick='last'"
    assert repr(sampler) == f"NeighborSampler([2], expand='all', {told})"
    assert sampler.presence(toy_graph(), np.ones(300)) is None


@pytest.mark.parametrize("time", [25, 26, 10**9])
def test_rows_may_come_before_all_edges_and_long_after(time) -> None:
    dated, always = ("user", "buys", "item"), ("tag", "of", "item")
    graph = Graph.from_hetero(None, {dated: ([0, 1], [0, 0]), always: ([0], [0])}, edge_time={dated: [26, 27]})
    for rows in ([time], [time, time]):
        table = SeedTable([0] * len(rows), node_type="item", time=rows)
        seeds = asked(graph, NeighborSampler([-1]), table)
        assert seeds.draw.queries.until.tolist() == [{25: 0, 26: 1}.get(time, 2)] * len(rows)
    found = NeighborSampler([-1]).sample(graph, graph.types.range_of("item"), times=[time])
    assert found.blocks[0].edge_type.tolist().count(graph.edge_type_number(always)) == 1


def test_a_node_without_a_time_is_told_before_the_first_batch() -> None:
    graph = Graph.from_coo([1, 2], [0, 0], node_time=[np.iinfo(np.int64).min, 3, 4])
    with pytest.raises(SeedError, match="node 0 is a seed without a time, and has none itself; so are 1 of 2 seeds"):
        seed_kind(graph, NeighborSampler([2]), SeedTable([1, 0]))


@pytest.mark.parametrize("empty", [np.array([], "M8[s]"), []])
def test_a_window_of_days_is_one_of_a_graph_without_any_times_yet(empty) -> None:
    dated, always = ("user", "buys", "item"), ("item", "like", "item")
    graph = Graph.from_hetero({"user": 1, "item": 2}, {dated: ([], []), always: ([0], [1])}, edge_time={dated: empty})
    table = SeedTable([1], node_type="item", time=np.array(["2024-02-01"], "M8[D]"))
    sampler = NeighborSampler([-1], window=np.timedelta64(3, "D"))
    assert asked(graph, sampler, table).draw.queries.since.tolist() == [1]  # behind all, of which there are none
