"""Links of several edge types in one loader: each type as a loader of its own would have it, in all formats."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch

from lightning_gnnload import (
    Graph,
    GraphData,
    GraphDataModule,
    Negatives,
    NeighborSampler,
    SeedTable,
    Task,
    TypedMiniBatch,
    load_graph_data,
    save_graph_data,
    score_links,
)
from lightning_gnnload.data.orders.even import EvenOrder
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.errors import GraphDataError, InferenceError, LoaderConfigError, SamplerConfigError
from lightning_gnnload.ops import DrawKey
from lightning_gnnload.pipeline.payload import Payload
from lightning_gnnload.pipeline.slots import Slot
from lightning_gnnload.sample.seeds.exclusion import reverse_of
from lightning_gnnload.sample.seeds.links import LinkSettings, seed_kind
from tests.runif import RunIf

COUNTS = {"user": 40, "item": 60, "shop": 9}
BUYS, SEES, SELLS = ("user", "buys", "item"), ("user", "sees", "item"), ("shop", "sells", "item")
ROWS = {BUYS: 23, SEES: 0, SELLS: 11}
KEY = DrawKey(seed=5, epoch=2, step=3)
MODES = ["binary", "triplet", "joint", "in_batch", "hard"]


def edges_of(edge_type: Any) -> np.ndarray:
    """Sources, destinations and times, ``[3, E]``."""
    rng = np.random.default_rng(len(edge_type[1]))
    return np.stack([rng.integers(0, high, 300) for high in (COUNTS[edge_type[0]], COUNTS[edge_type[2]], 100)])


def graph_of(*, timed: bool) -> Graph:
    edges, times = {}, {}
    for src, name, dst in ROWS:
        (sources, targets, when), back = edges_of((src, name, dst)), (dst, f"rev_{name}", src)
        edges |= {(src, name, dst): (sources, targets), back: (targets, sources)}
        times |= {(src, name, dst): when, back: when}
    return Graph.from_hetero(COUNTS, edges, edge_time=times if timed else None, keep_order=True)


def tables(*, timed: bool, ids: bool = True, **columns: Any) -> dict[Any, SeedTable]:
    made = {}
    for edge_type, count in ROWS.items():
        src, dst, time = edges_of(edge_type)[:, :count]
        hard = np.random.default_rng(count).integers(0, COUNTS["item"], (count, 2))
        more = {"columns": {"negatives": hard, **columns}, "weight": np.arange(count) / 8, "y": np.arange(count) % 3}
        edge_ids, time = range(count) if ids else None, time if timed else None
        made[edge_type] = SeedTable(src=src, dst=dst, edge_type=edge_type, edge_ids=edge_ids, time=time, **more)
    return made


def asked(graph: Graph, table: SeedTable, rows: Any, negatives: Any, exclude: Any = "reverse", **sampler: Any) -> Any:
    settings = LinkSettings(negatives, exclude)
    return seed_kind(graph, NeighborSampler([2], **sampler), table, settings).ask(np.array(rows), KEY)


def links_of(batch: Any) -> dict[Any, dict[str, torch.Tensor]]:
    """All that belongs to links by their type, with nodes of the graph in the place of positions."""
    seeds, found = torch.from_numpy(batch.draw.seeds), {}
    for link, columns in batch.form.by_type(batch.columns | {"y": batch.y}):
        found[link.edge_type] = named = dict(columns)
        for name in {"src", "dst", "negatives"} & named.keys():
            nodes = seeds[named[name]]
            named[name] = nodes.where(named["negative_mask"], -1) if name == "negatives" else nodes
    return found


def left_out(batch: Any) -> list[tuple[int, int]]:
    """Which edges are left out of which query, by position."""
    queries = batch.draw.queries
    return list(zip(queries.excluded_query.tolist(), queries.excluded.tolist(), strict=True))


@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("exclude", ["self", "reverse"])
@pytest.mark.parametrize("mode", [None, *MODES])
def test_each_type_is_as_in_a_loader_of_its_own(mode: Any, exclude: Any, timed: bool) -> None:
    graph, own = graph_of(timed=timed), tables(timed=timed)
    corrupt: Any = "both" if mode in ("binary", "triplet") else "dst"
    numbers = {BUYS: 3, SEES: 1, SELLS: 2 if mode in ("binary", "triplet", "joint") else None}
    numbers = dict.fromkeys(ROWS) if mode == "hard" else numbers
    every = {of: None if mode is None else Negatives(mode, num=num, corrupt=corrupt) for of, num in numbers.items()}
    rows = [30, 2, 9, 23, 17, 33]  # of all tables together; those of the third begin at 23
    both = asked(graph, SeedTable.of_types(own), rows, every, exclude, sharing="disjoint")
    found, excluded = links_of(both), dict[int, set[int]]()
    assert both.columns["input_id"].tolist() == [7, 2, 9, 0, 17, 10]
    assert both.columns["type"].dtype == torch.int32
    for query, position in left_out(both):
        excluded.setdefault(query, set()).add(position)
    for edge_type, of_type in ({BUYS: [2, 9, 17], SELLS: [7, 0, 10]}).items():
        alone = asked(graph, own[edge_type], of_type, every[edge_type], exclude, sharing="disjoint")
        [wanted] = links_of(alone).values()
        assert found[edge_type].keys() == wanted.keys()
        for name, column in wanted.items():
            assert found[edge_type][name].dtype == column.dtype
            assert found[edge_type][name].tolist() == column.tolist(), name
        at = [number for number, row in enumerate(rows) if (row < 23) == (edge_type == BUYS)]
        edges = [(query, position) for query in at for position in sorted(excluded[query])]
        assert [(at.index(query), position) for query, position in edges] == left_out(alone)
    assert all(not len(column) for name, column in found[SEES].items())
    assert found[SEES]["src"].dtype == torch.int64


@pytest.mark.parametrize("sharing", ["plain", "disjoint"])
def test_one_type_alone_is_what_it_is_without_its_name(sharing: Any) -> None:
    graph, own = graph_of(timed=False), tables(timed=False)
    one, other = (
        asked(graph, table, [3, 1, 20], Negatives("binary", num=2), sharing=sharing)
        for table in (own[BUYS], SeedTable.of_types({BUYS: own[BUYS]}))
    )
    assert (one.form, one.draw.seeds.tolist(), left_out(one)) == (
        other.form,
        other.draw.seeds.tolist(),
        left_out(other),
    )
    assert {name: column.tolist() for name, column in one.columns.items()} == {
        name: column.tolist() for name, column in other.columns.items()
    }


def test_negatives_of_some_types_alone() -> None:
    graph, table = graph_of(timed=False), SeedTable.of_types(tables(timed=False))
    names = {"buys": None, "sees": None, "sells": Negatives("binary", num=2)}
    found = links_of(asked(graph, table, [0, 23, 1, 24], names))
    assert found[BUYS]["label"].tolist() == [1, 1]
    assert found[SELLS]["row"].tolist()[:2] == [0, 1]
    assert sorted(found[SELLS]["row"].tolist()) == [0, 0, 0, 1, 1, 1]
    for negatives, message in (
        ({"buys": Negatives()}, "Name each of these types"),
        ({**names, "rev_buys": None}, "Name each of these types"),
        ({**names, "buys": Negatives("triplet")}, "binary, triplet.*one mode"),
    ):
        with pytest.raises(SamplerConfigError, match=message):
            asked(graph, table, [0], negatives)


@pytest.mark.parametrize("names", [("buys", BUYS), ("user__buys__item", "buys")])
def test_one_type_under_two_names(names: Any) -> None:
    graph, table = graph_of(timed=False), SeedTable.of_types(tables(timed=False))
    message = "are one edge type. Give it once"
    with pytest.raises(SamplerConfigError, match=f"negatives: {names[0]!r}.*{message}"):
        asked(graph, table, [0], dict.fromkeys((*names, "sees", "sells")))
    with pytest.raises(SamplerConfigError, match=message):
        EvenOrder(dict.fromkeys(names, 2)).bind_rows(table, table.ends, graph, 8)
    with pytest.raises(SamplerConfigError, match=message):
        reverse_of(graph.types, "sells", dict.fromkeys(names, "rev_buys"))


def test_a_type_without_rows_needs_no_false_edges() -> None:
    full = (np.arange(4) // 2, np.arange(4) % 2)  # every pair is an edge
    edges: Any = {BUYS: ([0], [1]), SEES: full, SELLS: ([], [])}
    graph = Graph.from_hetero({"user": 2, "item": 2, "shop": 0}, edges, keep_order=True)
    one, none = SeedTable(src=[0], dst=[1], y=[1]), SeedTable(src=[], dst=[], y=np.zeros(0, int))
    found = links_of(asked(graph, SeedTable.of_types({BUYS: one, SEES: none, SELLS: none}), [0], Negatives()))
    assert {edge_type: len(links["input_id"]) for edge_type, links in found.items()} == {BUYS: 1, SEES: 0, SELLS: 0}
    with pytest.raises(GraphDataError, match="all 4 pairs"):
        asked(graph, SeedTable.of_types({BUYS: one, SEES: one}), [0], Negatives())


# From a data module, in all formats.


def module(form: Any = "blocks", *, timed: bool = True, negatives: Any = None, **settings: Any) -> GraphDataModule:
    data = GraphData(graph_of(timed=timed), train=tables(timed=timed))
    settings = {"batch_size": 9, "num_threads": 0, "batch_format": form, "order": "sequential", **settings}
    return GraphDataModule(data, NeighborSampler([3, 2], expand="new"), negatives=negatives, **settings)


@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("mode", [None, *MODES])
def test_blocks_have_links_by_type(mode: Any, timed: bool) -> None:
    made, seen = module(timed=timed, negatives=None if mode is None else Negatives(mode)), dict[Any, list[int]]()
    for batch in made.train_dataloader():
        assert list(batch.links) == list(ROWS)
        for (src, name, dst), links in batch.links.items():
            rows, table = links["input_id"], tables(timed=timed)[src, name, dst]
            seen.setdefault((src, name, dst), []).extend(rows.tolist())
            assert batch.nodes[src][links["src"][: len(rows)]].tolist() == table.ends[rows, 0].tolist()
            assert batch.nodes[dst][links["dst"][: len(rows)]].tolist() == table.ends[rows, 1].tolist()
            assert (links["y"].tolist(), links["weight"].tolist()) == (table.y[rows].tolist(), (rows / 8).tolist())
            assert ("time" in links) == timed
    assert seen == {edge_type: list(range(count)) for edge_type, count in ROWS.items()}


@RunIf(extras="pyg")
@pytest.mark.parametrize("mode", ["binary", "triplet", None])
def test_pyg_has_the_links_of_each_type_in_its_store(mode: Any) -> None:
    negatives = None if mode is None else Negatives(mode, num=2)
    flat, pygs = (list(module(form, negatives=negatives).train_dataloader()) for form in ("blocks", "pyg"))
    for batch, data in zip(flat, pygs, strict=True):
        for edge_type, links in batch.links.items():
            store, num_rows = data[edge_type], len(links["input_id"])
            assert (store.batch_size, store.input_id.tolist()) == (num_rows, links["input_id"].tolist())
            assert store.weight.equal(links["weight"])
            if mode == "triplet":
                assert store.src_index.equal(links["src"])
                assert store.dst_neg_index.shape == store.dst_neg_mask.shape == (num_rows, 2)
                assert store.seed_time.equal(links["time"])
                assert "src_index" not in data["user"]
                continue
            assert store.edge_label_index.tolist() == [links["src"].tolist(), links["dst"].tolist()]
            assert store.edge_label_time.tolist() == links["time"][links.get("row", slice(None))].tolist()
            # PyG's labels count from 1 beside binary negatives, by the whole table of the type.
            labels = links["y"] + (mode == "binary" and num_rows > 0)
            assert store.edge_label[:num_rows].equal(labels)
            assert not store.edge_label[num_rows:].any()


@RunIf(extras="pyg")
@pytest.mark.parametrize("mode", ["binary", "triplet"])
@pytest.mark.parametrize("with_labels", [False, True])
def test_pyg_has_no_negatives_of_a_type_that_asked_for_none(mode: Any, with_labels: bool) -> None:
    ends, labels = {"src": np.arange(9), "dst": np.arange(9)}, np.arange(9) % 3
    own = {of: SeedTable(**ends, y=labels if with_labels else None, edge_type=of) for of in (BUYS, SELLS)}
    settings: Any = {"batch_size": 18, "num_threads": 0, "batch_format": "pyg", "order": "sequential"}
    stores = []
    for train, negatives in ((own, {BUYS: Negatives(mode, num=2), SELLS: None}), (own[SELLS], None)):
        data = GraphData(graph_of(timed=False), train=train)
        made = GraphDataModule(data, NeighborSampler([2], expand="new"), negatives=negatives, **settings)
        stores.append(next(iter(made.train_dataloader()))[SELLS])
    joint, alone = stores
    assert set(joint.keys()) == set(alone.keys())
    assert joint.edge_label_index.shape == alone.edge_label_index.shape
    assert ("edge_label" in joint) == with_labels
    assert not with_labels or joint.edge_label.equal(alone.edge_label)


@RunIf(extras="pyg")
@pytest.mark.parametrize("num", [4, None])
def test_negatives_are_as_wide_where_a_type_has_no_rows(num: Any) -> None:
    mode: Any = "triplet" if num else "in_batch"
    settings: Any = {"timed": False, "negatives": {BUYS: Negatives(mode, num=num), SEES: None, SELLS: None}}
    # The third mini-batch of 12 has rows of SELLS alone.
    flat, pygs = (list(module(form, batch_size=12, **settings).train_dataloader())[2] for form in ("blocks", "pyg"))
    for name in ("negatives", "negative_mask"):
        assert flat.links[BUYS][name].shape == (0, num or 0)
    for name in ("dst_neg_index", "dst_neg_mask"):
        assert pygs[BUYS][name].shape == (0, num or 0)
        assert name not in pygs[SELLS]


@RunIf(extras="pyg")
@pytest.mark.parametrize(
    "name", ["edge_label", "edge_label_index", "edge_label_time", "src_index", "dst_pos_index", "dst_neg_index"]
)
@pytest.mark.parametrize("mode", ["binary", "triplet"])
def test_pyg_loses_no_column_of_links(name: str, mode: Any) -> None:
    column = {name: [7, 8]}
    check_column_of_pyg(SeedTable(src=[0, 1], dst=[2, 3], edge_type=BUYS, columns=column), name, mode)
    one, other = (SeedTable(src=[0, 1], dst=[2, 3], columns=column) for _ in range(2))
    check_column_of_pyg({BUYS: one, SELLS: other}, name, mode)


@RunIf(extras="pyg")
@pytest.mark.parametrize("name", ["batch_size", "seed_time"])
def test_pyg_loses_no_column_of_seeds(name: str) -> None:
    check_column_of_pyg(SeedTable(src=[0, 1], dst=[2, 3], edge_type=BUYS, columns={name: [7, 8]}), name, "triplet")
    check_column_of_pyg(SeedTable([0, 1], node_type="user", time=[3, 4], columns={name: [7, 8]}), name, None)


def check_column_of_pyg(train: Any, name: str, mode: Any) -> None:
    sampler, negatives = NeighborSampler([2], expand="new"), None if mode is None else Negatives(mode)
    data = GraphData(graph_of(timed=False), train=train)
    made = GraphDataModule(data, sampler, num_threads=0, batch_format="pyg", negatives=negatives)
    with pytest.raises(GraphDataError, match=f"'{name}' is a column of the seed table.*Name the column anew"):
        next(iter(made.train_dataloader()))


@RunIf(extras="dgl")
@pytest.mark.parametrize("mode", ["binary", "triplet", None])
def test_dgls_pair_graphs_hold_all_types(mode: Any) -> None:
    negatives = None if mode is None else Negatives(mode, num=2)
    flat, dgls = (list(module(form, negatives=negatives).train_dataloader()) for form in ("blocks", "dgl"))
    for batch, (_, positive, *rest) in zip(flat, dgls, strict=True):
        assert len(rest) == (1 if mode is None else 2)
        for edge_type, links in batch.links.items():
            num_rows = len(links["input_id"])
            pairs = [ends.tolist() for ends in positive.edges(etype=edge_type, order="eid")]
            assert pairs == [links[end][:num_rows].tolist() for end in ("src", "dst")]
            if num_rows:
                assert positive.edges[edge_type].data["label"].equal(links["y"])
                assert positive.edges[edge_type].data["seed_time"].equal(links["time"])
            if mode == "binary":
                assert rest[0].num_edges(edge_type) == len(links["src"]) - num_rows
            elif mode == "triplet":
                assert rest[0].num_edges(edge_type) == int(links["negative_mask"].sum())


def content(batch: Any) -> Any:
    return [values.tolist() for values in (*batch.nodes.values(), *batch.seed_columns.values())]


def test_batches_depend_neither_on_ranks_nor_on_threads() -> None:
    made = module(negatives=Negatives("binary", num=2), order="shuffle")
    wanted = [content(batch) for batch in made.train_dataloader()]
    made.num_threads = 2
    assert next(map(content, made.train_dataloader())) != wanted[0]  # the next epoch
    loader = made.train_dataloader()
    loader.set_epoch(0)
    assert [content(batch) for batch in loader] == wanted
    workload = made.workload("train")
    halves = [workload.seeds_of(BatchRequest(0, 0, rank, 2)).tolist() for rank in range(2)]
    assert [*halves[0], *halves[1]] == workload._epoch_order(0, 18)[:18].tolist()


def test_another_process_reads_them_by_type() -> None:
    made, slot = module(negatives=Negatives("triplet", num=2)), Slot()
    payload = made.source("train").make(BatchRequest(0, 0, 0, 1), slot)
    batch = Payload.from_json(json.loads(json.dumps(payload.to_json()))).view(slot.buffer())
    [wanted, *_] = made.train_dataloader()
    links = TypedMiniBatch.of(batch, made.graph_data.graph).links
    assert [*map(repr, links.items())] == [*map(repr, wanted.links.items())]
    moved = wanted.to("meta")
    assert (moved.seed_form, moved.seed_columns["type"].is_meta) == (wanted.seed_form, True)


def test_they_are_validated_and_predicted_by_type() -> None:
    own = tables(timed=True, ids=False)
    made = module()
    made._data = GraphData(made.graph_data.graph, train=own, val=own)
    made.predict, made.negatives = own, None
    for loader in (made.val_dataloader(), made.predict_dataloader()):
        assert sum(len(links["src"]) for batch in loader for links in batch.links.values()) == 34
    with pytest.raises(InferenceError, match=r"links of one edge type.*34 links"):
        score_links(lambda src, dst: src, torch.ones(109, 1), SeedTable.of_types(own), made.graph_data.graph)


def test_a_folder_keeps_their_types(tmp_path: Any) -> None:
    own = tables(timed=True)
    data = GraphData(graph_of(timed=True), train=own, tasks={"again": Task({"train": own})})
    save_graph_data(data, tmp_path / "graph")
    loaded = load_graph_data(tmp_path / "graph")
    for read in (loaded, loaded.with_task("again")):
        table, wanted = read.table("train"), data.table("train")
        assert (table.rows_by_type, table.checksum, repr(table)) == (wanted.rows_by_type, wanted.checksum, repr(wanted))
        loaders = (
            GraphDataModule(of, NeighborSampler([2]), 20, num_threads=0).train_dataloader() for of in (read, data)
        )
        one, other = ([content(batch) for batch in loader] for loader in loaders)
        assert one == other


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({SELLS: SeedTable([1, 2])}, "Tables of links are needed"),
        ({SELLS: SeedTable(src=[1], dst=[2], edge_type=BUYS)}, "each under its own edge type"),
        ({SELLS: SeedTable(src=[0], dst=[1, 2], dst_ptr=[0, 2])}, "one target a row"),
        (
            {SELLS: SeedTable(src=[1, 2], dst=[2, 3], edge_type={BUYS: 1, SEES: 1})},
            "is given by itself, or in its parts",
        ),
        ({SELLS: SeedTable(src=[1], dst=[2], edge_type={BUYS: 1})}, "each under its own edge type"),
        ({SELLS: SeedTable(src=[1], dst=[2])}, "'edge_ids' is int64 .* and missing"),
        ({SELLS: SeedTable(src=[1], dst=[2], edge_ids=[3])}, "'time' is int64"),
        ({SELLS: SeedTable(src=[1], dst=[2], edge_ids=[3], time=[4])}, "'y' is missing and torch.int64"),
        ({SELLS: SeedTable(src=[1], dst=[2], edge_ids=[3], time=[4], y=[0.5])}, "torch.float64"),
        ({SELLS: SeedTable(src=[1], dst=[2], edge_ids=[3], time=[4], y=[0])}, "'weight'.*fill={'weight': 0}"),
    ],
)
def test_tables_that_do_not_go_together(changes: Any, message: str) -> None:
    with pytest.raises(GraphDataError, match=message):
        SeedTable.of_types(tables(timed=True) | changes)


ONE = SeedTable(src=[1], dst=[2])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([ONE, ONE], "is no dict of tables"),
        (None, "None is no dict of tables"),
        ({}, "{} is no dict of tables"),
        ({BUYS: ([1], [2])}, r"is given \(\[1\], \[2\]\).*Give SeedTable"),
        ({BUYS: ONE, SELLS: None}, "is given None"),
        ({("buys",): ONE}, r"\('buys',\) is no edge type. Give a triple or a name"),
        ({(0, 1, 2): ONE}, r"\(0, 1, 2\) is no edge type"),
        ({None: ONE, BUYS: ONE}, "None is no edge type"),
    ],
)
def test_what_are_no_tables_by_type(given: Any, message: str) -> None:
    with pytest.raises(GraphDataError, match=message):
        SeedTable.of_types(given)


@pytest.mark.parametrize(
    ("column", "fill", "message"),
    [
        (np.ones(1, np.int8), {"q": 1000}, "'q': 1000.*torch.int8"),
        (np.ones(1, int), {"q": float("nan")}, "'q': nan.*torch.int64"),
        (np.ones(1, int), {"q": 0.5}, "'q': 0.5.*does not hold it"),
        (np.ones(1, np.uint8), {"q": -1}, "torch.uint8"),
        (np.ones(1, bool), {"q": 2}, "torch.bool"),
        (np.ones(1, np.float32), {"q": 1e300}, "torch.float32"),
        (np.ones(1, np.float32), {"q": "1"}, "'q': '1'"),
        (np.ones(1, np.float32), {"q": torch.ones(40)}, "Give one number"),
        (np.ones(1), {"p": 1.0}, "fill={'p': 1.0}.*that some tables have: q"),
        (np.ones(1), ["q"], "a dict by name is needed"),
    ],
)
def test_what_fills_no_column(column: Any, fill: Any, message: str) -> None:
    one, other = SeedTable(src=[1], dst=[2], columns={"q": column}), SeedTable(src=[1], dst=[2])
    with pytest.raises(GraphDataError, match=message):
        SeedTable.of_types({"buys": one, "sees": other}, fill=fill)


@pytest.mark.parametrize("fill", [2, 2.0, np.int64(2), np.float32(2), torch.tensor(2)])
@pytest.mark.parametrize("dtype", [np.float32, np.int16])
def test_any_number_fills_a_column_that_holds_it(fill: Any, dtype: Any) -> None:
    one, other = SeedTable(src=[1], dst=[2], columns={"q": np.ones(1, dtype)}), SeedTable(src=[1], dst=[2])
    assert SeedTable.of_types({"buys": one, "sees": other}, fill={"q": fill}).columns["q"].tolist() == [1, 2]


def test_columns_that_some_lack_are_filled() -> None:
    one, other = SeedTable(src=[1], dst=[2], weight=[2.0]), SeedTable(src=[1, 2], dst=[3, 4])
    table = SeedTable.of_types({"buys": one, "sees": other}, fill={"weight": 0.5})
    assert table.columns["weight"].tolist() == [2, 0.5, 0.5]
    typed = SeedTable(src=[1], dst=[2], columns={"type": [1]})
    assert SeedTable.of_types({"buys": typed}).columns["type"].tolist() == [1]  # no other type to tell it from
    with pytest.raises(GraphDataError, match="'type' tells the types"):
        SeedTable.of_types({"buys": typed, "sees": typed})
    with pytest.raises(GraphDataError, match="'type' tells the types"):
        SeedTable(src=[1, 2], dst=[3, 4], edge_type={"buys": 1, "sees": 1}, columns={"type": [1, 2]})
    with pytest.raises(GraphDataError, match="given twice"):
        GraphData(graph_of(timed=False), train={"buys": one, BUYS: one})
    with pytest.raises(GraphDataError, match="how many of the 2 rows each type has"):
        SeedTable(src=[1, 2], dst=[3, 4], edge_type={"buys": 1, "sees": 2})
    with pytest.raises(GraphDataError, match=r"\('user', 'sees', 'item'\): src\[0\] is 40"):
        GraphData(graph_of(timed=False), train={BUYS: one, SEES: SeedTable(src=[40], dst=[1], weight=[1.0])})
    ends = {"src": [1, 2], "dst": [3, 4]}
    for edge_type in (["user", "buys", "item"], 0, "buys", "user__buys__item"):  # number 0 is a type as well
        data = GraphData(graph_of(timed=False), train=SeedTable(**ends, edge_type=edge_type))
        assert data.train.tolist() == [1, 2, 43, 44]
    for edge_type in (np.array(BUYS), ("user", ["buys"], "item")):
        with pytest.raises(GraphDataError, match="a triple or a name is needed"):
            SeedTable(**ends, edge_type=edge_type)
    with pytest.warns(DeprecationWarning, match="SeedTable.kind"):
        assert one.is_links


# Orders.


@pytest.mark.parametrize("weights", [None, {"sells": 3}, {"sells": 0.5, "buys": 2}, {"buys": 0}])
@pytest.mark.parametrize("epoch", range(3))
def test_each_part_of_an_even_epoch_has_the_same_share_of_each_type(weights: Any, epoch: int) -> None:
    table = SeedTable.of_types(tables(timed=False))
    order = EvenOrder(weights).bind_rows(table, table.ends, graph_of(timed=False), 8)
    rows = order.order(np.arange(34), seed=1, epoch=epoch)
    is_bought, exact = rows < 23, np.array([23 * (weights or {}).get("buys", 1), 11 * (weights or {}).get("sells", 1)])
    share = exact[0] / exact.sum()
    assert (len(rows), is_bought.sum()) == (34, round(34 * share))
    for begin in range(0, 34 - 8, 8):
        assert abs(is_bought[begin : begin + 8].sum() - 8 * share) < 1.5
    counts = np.bincount(rows, minlength=34)
    for of_type in (counts[:23], counts[23:]):
        assert of_type.max() - of_type.min() <= 1  # as often as the others of its type
    if weights is None:
        assert sorted(rows.tolist()) == list(range(34))
    assert rows.tolist() == order.order(np.arange(34), seed=1, epoch=epoch).tolist()
    assert rows.tolist() != order.order(np.arange(34), seed=1, epoch=epoch + 1).tolist()


def test_rows_that_one_epoch_leaves_out_come_in_others() -> None:
    table = SeedTable.of_types(tables(timed=False))
    order = EvenOrder({"sells": 4}).bind_rows(table, table.ends, graph_of(timed=False), 8)
    epochs = [order.order(np.arange(34), seed=1, epoch=epoch) for epoch in range(60)]
    # A row of 23, of which an epoch has 12, is in none of 60 with a chance of 23 * (11/23)**60 < 1e-17.
    assert set(np.concatenate(epochs).tolist()) == set(range(34))


def test_what_is_even_needs_types() -> None:
    own = tables(timed=False)
    batches = list(module(timed=False, order=EvenOrder({"sells": 2})).train_dataloader())
    assert sum(len(batch.links[SELLS]["src"]) for batch in batches) == 17
    for seeds in (own[BUYS], [1, 2, 3]):
        made = GraphDataModule(GraphData(graph_of(timed=False), train=seeds), NeighborSampler([2]), order="even")
        with pytest.raises(LoaderConfigError, match="order='even' needs links of several edge types"):
            made.train_dataloader()
    for weights, message in (({"rev_buys": 2}, "weights are given for rev_buys"), ({"buys": 0, "sells": 0}, "above 0")):
        with pytest.raises(LoaderConfigError, match=message):
            module(timed=False, order=EvenOrder(weights)).train_dataloader()


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        *(({"sells": of}, "weight of 'sells'.*give a finite") for of in (-1, "2", float("nan"), np.inf, 10**400, None)),
        *(({"sells": of}, "weight of 'sells'.*give a finite") for of in (np.ones(2), torch.ones(2), 1j)),
        *((of, "no dict of weights by edge type") for of in ([1, 2], 3, [], "sells")),
    ],
)
def test_weights_of_types_that_cannot_be(weights: Any, message: str) -> None:
    with pytest.raises(LoaderConfigError, match=message):
        EvenOrder(weights)


@pytest.mark.parametrize("scale", [1, 1e-300, 1e307, np.float32(2), np.int64(2), torch.tensor(2.0)])
def test_weights_of_types_are_any_numbers(scale: Any) -> None:
    table = SeedTable.of_types(tables(timed=False))
    orders = [EvenOrder({"buys": 4 * of, "sells": 2 * of}) for of in (scale, 1)]
    one, other = (
        order.bind_rows(table, table.ends, graph_of(timed=False), 8).order(np.arange(34), seed=1, epoch=0)
        for order in orders
    )
    assert one.tolist() == other.tolist()
    assert {type(weight) for order in orders for weight in order.weights.values()} <= {int, float}
