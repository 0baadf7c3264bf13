"""Edges of tables become the lists that ``Graph.from_hetero`` makes of the same edges in memory."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from lightning_gnnload import Graph
from tests.unit.ingest.tables import MICROSECONDS, assert_same_graph, build, edge_table, texts

USERS, ITEMS, BUYS, KNOWS = 211, 97, 6000, 2500
TYPES = {"buys": ("user", "buys", "item"), "rev": ("item", "rev_buys", "user"), "knows": ("user", "knows", "user")}


def shop(times: str, seed: int):
    """Two tables of nodes and two of edges, with hubs, repeats, self loops, missing ends and missing times."""
    rng = np.random.default_rng(seed)
    users, items = texts("u", USERS), rng.permutation(10**6)[:ITEMS] * 10**9 - 5
    buys = rng.integers(0, USERS, BUYS), np.minimum(rng.zipf(1.3, BUYS) - 1, ITEMS - 1)
    knows = rng.integers(0, USERS, KNOWS), np.minimum(rng.zipf(1.2, KNOWS) - 1, USERS - 1)
    knows[0][:40] = knows[1][:40]
    spread = {"seconds": 10**6 * rng.integers(0, 10**5, BUYS), "wide": rng.integers(-(2**50), 2**50, BUYS)}
    spread["equal"] = np.full(BUYS, 1234567)
    time = spread[times]
    return rng, users, items, buys, knows, time


@pytest.mark.parametrize("most_records", [100, 5000])
@pytest.mark.parametrize("times", ["seconds", "wide", "equal"])
def test_lists_equal_those_of_a_graph_in_memory(times, most_records, tmp_path, monkeypatch):
    if times == "seconds":  # room is given back as lists are read
        monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=0))
    # With 100 records at once, hubs are cut by time, and one list of equal times is read in slices.
    rng, users, items, buys, knows, time = shop(times, 5)
    weight = rng.random(BUYS).astype(np.float32)
    joined = rng.choice(time, USERS)  # sources that come later than their edges
    graph, written = build(
        {
            "version": 1,
            "nodes": {
                "user": {
                    "from": pa.table({"name": users, "joined": pa.array(joined, pa.timestamp("us"))}),
                    "id": "name",
                    "time": "joined",
                    "timezone": "UTC",
                },
                "item": {"from": pa.table({"sku": items}), "id": "sku"},
            },
            "edges": {
                "buys": {
                    "from": edge_table([users[u] for u in buys[0]], items[buys[1]], at=time, w=weight),
                    "src": "user.src",
                    "dst": "item.dst",
                    "time": "at",
                    "time_unit": "us",
                    "weight": "w",
                    "reverse": True,
                },
                "knows": {
                    "from": edge_table(*([users[u] for u in ends] for ends in knows)),
                    "src": "user.src",
                    "dst": "user.dst",
                },
            },
        },
        tmp_path / "graph",
        most_records=most_records,
    )
    ends = {TYPES["buys"]: buys, TYPES["rev"]: buys[::-1], TYPES["knows"]: knows}
    nanoseconds = (time * MICROSECONDS).astype("datetime64[ns]")
    wanted = Graph.from_hetero(
        {"user": USERS, "item": ITEMS},
        ends,
        edge_weight={TYPES["buys"]: weight, TYPES["rev"]: weight},
        edge_time={TYPES["buys"]: nanoseconds, TYPES["rev"]: nanoseconds},
        node_time={"user": (joined * MICROSECONDS).astype("datetime64[ns]")},
        keep_order=True,
    )
    assert_same_graph(graph, wanted)
    counts = written.counts["knows"]
    assert counts.self_loops == np.count_nonzero(knows[0] == knows[1])
    assert counts.first_rows["self_loops"] == 0
    assert written.isolated == {
        "user": USERS - len(np.unique(np.concatenate([buys[0], *knows]))),
        "item": ITEMS - len(np.unique(buys[1])),
    }
