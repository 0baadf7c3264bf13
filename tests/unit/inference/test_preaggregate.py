"""Sums over in-neighbours: equal to dense products, alike however they are cut, and refused when they are stale."""

from __future__ import annotations

import json
import math
import os
import pickle
import re
import subprocess
import sys
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lightning_gnnload import (
    DiskFeatureStore,
    FeatureStore,
    Graph,
    GraphData,
    GraphFolder,
    MemoryFeatureStore,
    NodeTable,
    load_graph_data,
    preaggregate,
    quantize,
    save_graph_data,
)
from lightning_gnnload.errors import GnnLoadError, GraphDataError, LoaderConfigError, StaleTableError, StoreFormatError
from lightning_gnnload.inference import aggregation, hop_tables
from lightning_gnnload.inference import preaggregate as made
from lightning_gnnload.inference.hop_trees import bounded
from lightning_gnnload.storage import aggregates as stored
from lightning_gnnload.storage.aggregates import check_fresh
from lightning_gnnload.storage.manifest import with_checksum
from tests import forkserver
from tests.runif import RunIf
from tests.unit.inference.models import NUM_NODES, edges, weights
from tests.unit.typed import KINDS, NODES, typed_edges, typed_graph

WIDTH = 37  # no multiple of a vector


def features(num_nodes: int = NUM_NODES) -> torch.Tensor:
    return torch.randn(num_nodes, WIDTH, generator=torch.Generator().manual_seed(0))


def flat(weighted: bool = False, **settings: Any) -> GraphData:
    """A hub, repeated edges, loops, and nodes without in-neighbours."""
    graph = Graph.from_coo(*edges(), NUM_NODES, edge_weight=weights() if weighted else None, keep_order=True)
    return GraphData(graph, **{"x": features(), **settings})


def dense(weighted: bool) -> np.ndarray:
    matrix = np.zeros((NUM_NODES, NUM_NODES))
    src, dst = edges()
    np.add.at(matrix, (dst, src), weights().astype(np.float64) if weighted else 1.0)
    return matrix


def with_loops(weighted: bool) -> np.ndarray:
    """One loop a node: the weight of its last one, or 1."""
    src, dst = edges()
    own = np.ones(NUM_NODES)
    if weighted:
        own[src[src == dst]] = weights()[src == dst]
    matrix = dense(weighted)
    np.fill_diagonal(matrix, own)
    return matrix


def normed(aggr: str, matrix: np.ndarray) -> np.ndarray:
    def inverse(degrees: np.ndarray, power: float) -> np.ndarray:
        return np.where(degrees > 0, np.maximum(degrees, 1e-300) ** -power, 0)

    into, out_of = matrix.sum(1), matrix.sum(0)
    if aggr == "mean":
        return inverse(into, 1)[:, None] * matrix
    if aggr == "sum":
        return matrix
    return inverse(into, 0.5)[:, None] * matrix * inverse(into if aggr == "gcn" else out_of, 0.5)


def rows_of(store: FeatureStore | NodeTable) -> torch.Tensor:
    store = store.store if isinstance(store, NodeTable) else store
    rows = torch.empty(store.shape, dtype=store.dtype)
    store.gather(torch.arange(len(rows)), rows)
    return rows


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("aggr", ["mean", "sum", "gcn", "both"])
def test_hops_are_dense_products(aggr: Any, loops: bool, weighted: bool) -> None:
    data = preaggregate(flat(weighted), aggr=aggr, hops=3, self_loops=loops, progress=False)
    matrix = normed(aggr, with_loops(weighted) if loops else dense(weighted))
    expected = features().double().numpy()
    for hop in (1, 2, 3):
        expected = matrix @ expected
        rows = data.tables[f"x_{aggr}_{hop}"].rows.double().numpy()
        assert np.abs(rows - expected).max() <= 1e-5 * np.abs(expected).max()
        aggregate = data.aggregates[f"x_{aggr}_{hop}"]
        assert (aggregate.table, aggregate.aggr, aggregate.hop) == ("x", aggr, hop)
        assert (aggregate.self_loops, aggregate.weighted) == (loops, weighted)


@RunIf(extras="pyg")
@pytest.mark.parametrize("weighted", [False, True])
def test_gcn_is_what_pygs_layer_multiplies_its_weights_by(weighted: bool) -> None:
    from torch_geometric.nn import GCNConv, SAGEConv

    index, weight = torch.from_numpy(edges()), torch.from_numpy(weights()) if weighted else None
    table = preaggregate(flat(weighted), aggr="gcn", progress=False).tables["x_gcn_1"].rows
    torch.manual_seed(0)
    conv, mean_conv = GCNConv(WIDTH, 8), SAGEConv(WIDTH, 8)
    torch.testing.assert_close(conv.lin(table) + conv.bias, conv(features(), index, weight), rtol=1e-4, atol=1e-4)
    if not weighted:
        mean = preaggregate(flat(), progress=False).tables["x_mean_1"].rows
        torch.testing.assert_close(
            mean_conv.lin_l(mean) + mean_conv.lin_r(features()), mean_conv(features(), index), rtol=1e-4, atol=1e-4
        )


@RunIf(extras="dgl")
@pytest.mark.parametrize("weighted", [False, True])
def test_both_is_what_dgls_layer_multiplies_its_weights_by(weighted: bool) -> None:
    import dgl

    graph = dgl.graph(tuple(torch.from_numpy(edges())), num_nodes=NUM_NODES)
    table = preaggregate(flat(weighted), aggr="both", progress=False).tables["x_both_1"].rows
    torch.manual_seed(0)
    conv = dgl.nn.GraphConv(WIDTH, 8, norm="none" if weighted else "both", allow_zero_in_degree=True)
    norm = dgl.nn.EdgeWeightNorm("both")(graph, torch.from_numpy(weights())) if weighted else None
    expected = conv(graph, features(), edge_weight=norm)
    torch.testing.assert_close(table @ conv.weight + conv.bias, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("weighted", [False, True])
def test_however_the_work_is_cut_and_shared_the_bits_are_the_same(
    weighted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aggregation, "_PIECE", 16)  # the hub has 26 pieces
    data, results, threads = flat(weighted), [], torch.get_num_threads()
    asked: Any = {"hops": 2, "table": "x", "dtype": None, "aggr": "mean", "name": None, "self_loops": None}
    asked |= {"node_type": None, "merged": False}
    [table] = made._tables(data, memory=1 << 30, weighted=None, as_of=None, **asked)
    assert table.width == WIDTH
    try:
        for max_nodes, max_edges, width, num_threads in (
            *((NUM_NODES, 1 << 20, WIDTH, count) for count in (1, 2, 3)),
            *((size, 1 << 20, WIDTH, 1) for size in (1, 7, NUM_NODES - 1)),
            (NUM_NODES, 100, WIDTH, 2),
            (50, 30, 16, 1),
            (50, 1 << 20, 5, 2),
            (50, 1 << 20, 32, 2),
        ):
            torch.set_num_threads(num_threads)
            cut = bounded(table.hops, {"max_nodes": max_nodes, "max_edges": max_edges})
            cut_table = replace(table, hops=cut, width=width, chunk_bytes=max_nodes * 4 * WIDTH)
            results.append(hop_tables.in_memory(data, [cut_table], lambda _: None))
    finally:
        torch.set_num_threads(threads)
    for name in ("x_mean_1", "x_mean_2"):
        assert len({result.tables[name].rows.numpy().tobytes() for result in results}) == 1


def test_halves_are_summed_as_float32_and_codes_as_what_they_mean() -> None:
    # Of 5,000 ones, a sum in float16 stays at 2,048.
    star = Graph.from_coo(np.arange(1, 5001), np.zeros(5000, np.int64))
    for dtype in (torch.float16, torch.bfloat16):
        ones = GraphData(star, x=torch.ones(5001, 3, dtype=dtype))
        mean = preaggregate(ones, progress=False).tables["x_mean_1"].rows
        assert mean.dtype == dtype
        assert mean[0].tolist() == [1.0] * 3
        total = preaggregate(ones, aggr="sum", dtype=torch.float32, progress=False).tables["x_sum_1"].rows
        assert total[0].tolist() == [5000.0] * 3
    # The second hop is made of numbers that were not rounded: 0 + 1/3 and the like would not come back to 1 otherwise.
    chain = Graph.from_coo([1, 2, 3, 0], [0, 0, 0, 4])
    third = GraphData(chain, x=torch.tensor([[0.0], [1.0], [1.0], [0.0], [0.0]], dtype=torch.float16))
    hops = preaggregate(third, hops=2, dtype=torch.float32, progress=False)
    assert hops.tables["x_mean_2"].rows[4] == np.float32(2) / np.float32(3)
    with pytest.raises(GraphDataError, match=r"sum of x goes up to 3e\+05, but torch.float16 .* --dtype float32"):
        preaggregate(
            GraphData(star, x=torch.full((5001, 1), 60.0).half()), aggr="sum", dtype=torch.float16, progress=False
        )
    x = features()
    codes = quantize(x, dtype=torch.float32, progress=False)
    decoded = preaggregate(flat(x=rows_of(codes)), progress=False).tables["x_mean_1"].rows
    assert torch.equal(preaggregate(flat(x=codes), progress=False).tables["x_mean_1"].rows, decoded)
    whole = preaggregate(flat(x=(x * 3).to(torch.int8)), progress=False).tables["x_mean_1"].rows
    assert whole.dtype == torch.float32
    assert preaggregate(flat(x=x.double()), progress=False).tables["x_mean_1"].rows.dtype == torch.float64


def test_a_graph_with_types_has_a_table_for_each_edge_type(tmp_path: Path) -> None:
    sizes = {"paper": 5, "author": 18}
    x = {name: torch.randn(NODES[name], size) for name, size in sizes.items()}
    data = GraphData(typed_graph(), x=x, tables={"paper": {"year": torch.arange(30)}})
    save_graph_data(data, tmp_path / "graph")
    aggregated = preaggregate(tmp_path / "graph", progress=False)
    again = preaggregate(data, progress=False)
    lists, checked = typed_edges(), 0
    for triple in KINDS:
        source, _, target = triple
        joined = "__".join(triple)
        by_hop = aggregated.aggregates_of(f"x.{source}", metapath=(joined,))
        assert by_hop == ({1: f"x_mean_1_{joined}.{target}"} if source in sizes else {})
        for name in by_hop.values():
            matrix = np.zeros((NODES[target], NODES[source]))
            np.add.at(matrix, tuple(lists[triple][::-1]), 1.0)
            matrix /= np.maximum(matrix.sum(1), 1)[:, None]
            rows = rows_of(aggregated.tables[name])
            assert aggregated.tables[name].first == data.graph.types.range_of(target).start
            np.testing.assert_allclose(rows, matrix @ x[source].double().numpy(), atol=1e-6)
            assert torch.equal(rows, rows_of(again.tables[name]))
            checked += 1
    assert checked == 6
    assert preaggregate(data, table="year", progress=False).tables["year_mean_1_paper__has__field.field"]
    for settings, message in (
        ({"aggr": "gcn"}, "degrees of several"),
        ({"table": "z"}, "no node type has a table 'z'; there are x, year"),
        ({"self_loops": True}, "cannot be loops"),
    ):
        with pytest.raises(GraphDataError, match=message):
            preaggregate(data, progress=False, **settings)


def typed_dense(data: GraphData, triples: list[Any], weighted: bool, until: float) -> np.ndarray:
    """The mean over edges of these types, between the same two node types, as a matrix of float64."""
    types, graph = data.graph.types, data.graph
    targets, sources = types.range_of(triples[0][2]), types.range_of(triples[0][0])
    matrix = np.zeros((len(targets), len(sources)))
    for node in targets:
        number = types.node_types.index(triples[0][2])
        for place, edge_type in enumerate(types.slots[number]):
            if types.edge_types[edge_type] not in triples:
                continue
            slots = types.slots[number]
            run = types.first_run[number] + (node - targets.start) * len(slots) + place
            for edge in range(int(graph.run_ptr[run]), int(graph.run_ptr[run + 1])):
                if graph.clock is None or not graph.clock.timed[edge_type] or graph.edge_time[edge] < until:
                    weight = graph.edge_weight[edge] if weighted else 1.0
                    matrix[node - targets.start, graph.indices[edge] - sources.start] += weight
    total = matrix.sum(1, keepdims=True)
    return matrix / np.where(total == 0, 1, total)


@pytest.mark.parametrize("merged", [False, True])
def test_hops_of_a_graph_with_types_are_products_along_metapaths(merged: bool, tmp_path: Path) -> None:
    random, lists = np.random.default_rng(3), typed_edges()
    lists["paper", "extends", "paper"] = random.integers(0, 30, (2, 70))  # which merges with "cites"
    weight = {triple: random.random(ends.shape[1]).astype(np.float32) for triple, ends in lists.items()}
    time = {triple: np.arange(ends.shape[1]) % 10 for triple, ends in lists.items() if triple[1] != "extends"}
    graph = Graph.from_hetero(NODES, lists, edge_weight=weight, edge_time=time)
    x = {name: torch.randn(NODES[name], size) for name, size in {"paper": 5, "author": 18}.items()}
    save_graph_data(GraphData(graph, x=x), tmp_path / "graph")
    settings = {"hops": 3, "as_of": 6, "merge_relations": merged, "node_type": "field", "progress": False}
    # 4 columns at a time, so that rows are joined of parts, and what waits to be summed again is let go.
    data = preaggregate(tmp_path / "graph", memory=2 * 4 * 4 * 80, **settings)
    within = preaggregate(GraphData(graph, x=x), **settings)
    until = graph.clock.until(np.array([6]), "<=")[0]
    by_pair: dict[Any, list[Any]] = {}
    for triple in lists:
        by_pair.setdefault((triple[0], triple[2]) if merged else triple, []).append(triple)
    level = [(name, name, (), rows.double().numpy()) for name, rows in x.items()]
    expected: dict[Any, np.ndarray] = {}
    for _ in range(3):
        following = []
        for first, end, path, rows in level:
            for triples in by_pair.values():
                if triples[0][0] != end:
                    continue
                step = "__".join(triples[0]) if len(triples) == 1 else f"{end}__*__{triples[0][2]}"
                product = typed_dense(data, triples, True, until) @ rows
                following.append((first, triples[0][2], (*path, step), product))
                if triples[0][2] == "field":
                    expected[f"x.{first}", (*path, step)] = product
        level = following
    made = {(aggregate.table, aggregate.metapath): name for name, aggregate in data.aggregates.items()}
    assert made.keys() == expected.keys()
    assert len(made) == (8 if merged else 13)
    for key, name in made.items():
        assert data.aggregates[name].hop == len(key[1])
        np.testing.assert_allclose(rows_of(data.tables[name]), expected[key], atol=1e-5)
        assert torch.equal(rows_of(data.tables[name]), rows_of(within.tables[name]))
        assert data.tables[name].first == graph.types.range_of("field").start


def test_metapaths_are_counted_before_they_are_summed_and_have_names_of_files() -> None:
    nodes = {"paper": 2, "author": 2}
    edges = {("paper", f"r{k}", "paper"): ([0, 1], [1, 0]) for k in range(20)}
    graph = Graph.from_hetero(nodes, edges | {("author", "w" * 300, "paper"): ([0], [1])})
    data = GraphData(graph, x={"paper": torch.ones(2, 1), "author": torch.ones(2, 1)})
    with pytest.raises(GraphDataError, match=r"2 hops lead along more than 256 metapaths.* merge_relations=True"):
        preaggregate(data, hops=2, progress=False)
    merged = preaggregate(data, hops=2, merge_relations=True, progress=False)
    first, second, long, _ = merged.aggregates
    assert (first, second) == ("x_mean_1_paper__all__paper.paper", "x_mean_2_paper__all__paper__all__paper.paper")
    assert long.startswith("x_mean_1_author__ww")
    assert max(map(len, merged.tables)) < 160
    flat_data = GraphData(Graph.from_coo([0], [1]), x=torch.ones(2, 1))
    for settings in ({"merge_relations": True}, {"node_type": "paper"}):
        with pytest.raises(GraphDataError, match="are of graphs with types"):
            preaggregate(flat_data, progress=False, **settings)


def test_names_of_types_that_are_spelled_alike_are_told_apart() -> None:
    pair = ([0, 1], [1, 0])
    graph = Graph.from_hetero({"a": 2}, {("a", "to-b", "a"): pair, ("a", "to b", "a"): pair})
    data = preaggregate(GraphData(graph, x={"a": torch.eye(2)}), progress=False)
    assert [*data.tables][1:] == ["x_mean_1_a__to_b__a_0.a", "x_mean_1_a__to_b__a_1.a"]


def test_later_edges_do_not_count() -> None:
    src, dst = edges()
    times = np.arange(len(src)) % 10
    graph = Graph.from_coo(src, dst, NUM_NODES, edge_time=times)
    data = GraphData(graph, x=features())
    with pytest.raises(GraphDataError, match=r"a sum over all would tell of those that came later\. Give as_of="):
        preaggregate(data, progress=False)
    matrix = np.zeros((NUM_NODES, NUM_NODES))
    np.add.at(matrix, (dst[times <= 6], src[times <= 6]), 1.0)
    safe = preaggregate(data, aggr="sum", as_of=6, progress=False)
    np.testing.assert_allclose(safe.tables["x_sum_1"].rows, matrix @ features().double().numpy(), atol=1e-4)
    assert safe.aggregates["x_sum_1"].as_of == 6
    with pytest.raises(GraphDataError, match="'x' is no time"):
        preaggregate(data, as_of="x")
    dated = Graph.from_coo([0, 0], [1, 1], edge_time=np.array(["2024-01-01", "2024-06-01"], "datetime64[D]"))
    early = preaggregate(GraphData(dated, x=torch.eye(2)), aggr="sum", as_of="2024-03-01", progress=False)
    assert early.tables["x_sum_1"].rows[1].tolist() == [1.0, 0.0]


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"aggr": "median"}, LoaderConfigError, "'median' is not known; give one of 'mean', 'sum', 'gcn', 'both'"),
        ({"hops": 0}, LoaderConfigError, "hops=0: a whole number"),
        ({"hops": True}, LoaderConfigError, "hops=True"),
        ({"dtype": torch.int8}, LoaderConfigError, "torch.int8"),
        ({"table": "z"}, GraphDataError, "no table 'z' of nodes; there are x, some, old"),
        ({"table": "some"}, GraphDataError, r"nodes 0 to 9, num_features=2\) alone"),
        ({"name": "old", "table": "x"}, GraphDataError, "there is a table 'old_1', which is no aggregate"),
        ({"name": "1"}, GraphDataError, "'1_1' cannot name a table"),
        (
            {"memory": 1000},
            GraphDataError,
            "a column of all nodes, which takes 2.3 KiB. Give memory=38400.* at least 2400",
        ),
        ({"as_of": 3}, GraphDataError, "the graph has no times"),
        ({"weighted": True}, GraphDataError, "the graph has no edge weights"),
    ],
)
def test_what_cannot_be_made_is_refused(settings: Any, error: type[GnnLoadError], message: str) -> None:
    data = flat(tables={"some": NodeTable(torch.ones(10, 2), 0), "old": features(), "old_1": features()})
    if "'z'" in message:
        del data.tables["old_1"]
    with pytest.raises(error, match=message):
        preaggregate(data, progress=False, **settings)


@pytest.mark.parametrize("shape", [(), (4, 3), (0,)])
def test_rows_of_any_shape_keep_it(shape: tuple[int, ...], tmp_path: Path) -> None:
    x = torch.randn(NUM_NODES, *shape)
    save_graph_data(flat(tables={"more": x}), tmp_path / "graph")
    for data in (preaggregate(tmp_path / "graph", table="more", progress=False), flat(tables={"more": x})):
        store = preaggregate(data, table="more", progress=False).tables["more_mean_1"]
        assert store.row_shape == shape
        expected = normed("mean", dense(False)) @ x.reshape(NUM_NODES, math.prod(shape)).double().numpy()
        np.testing.assert_allclose(rows_of(store), expected, atol=1e-6)


# Folders.


def listing(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_tables_are_added_to_a_folder_and_not_made_twice(tmp_path: Path) -> None:
    folder = tmp_path / "graph"
    save_graph_data(flat(), folder, attributes={"licence": "none"})
    features_file = os.stat(folder / "x.bin")
    # 16 columns at a time, so that rows are joined of three parts.
    narrow = 2 * NUM_NODES * 2 * 4 * 17
    data = preaggregate(folder, hops=2, memory=narrow, progress=False)
    expected = preaggregate(flat(), hops=2, progress=False)
    for name in ("x_mean_1", "x_mean_2"):
        assert torch.equal(rows_of(data.tables[name]), expected.tables[name].rows)
        check_fresh(data, name)
    assert os.path.samestat(features_file, os.stat(folder / "x.bin")), "files are shared with the folder of before"
    assert json.loads((folder / "manifest.json").read_text())["attributes"] == {"licence": "none"}
    assert os.listdir(tmp_path) == ["graph"]
    load_graph_data(folder, verify=True)
    before = os.stat(folder / "table.x_mean_1.bin")
    preaggregate(folder, aggr="sum", progress=False)
    assert os.path.samestat(before, os.stat(folder / "table.x_mean_1.bin"))
    data = preaggregate(folder, hops=2, progress=False)
    assert os.path.samestat(before, os.stat(folder / "table.x_mean_1.bin")), "it was there already"
    assert [*data.aggregates] == ["x_mean_1", "x_mean_2", "x_sum_1"]
    preaggregate(folder, dtype=torch.bfloat16, progress=False)
    assert rows_of(load_graph_data(folder, features="disk").tables["x_mean_1"]).dtype == torch.bfloat16
    some = GraphFolder(folder, tables=["x_sum_1"]).load()
    assert ([*some.tables], [*some.aggregates]) == (["x_sum_1"], ["x_sum_1"])
    with pytest.raises(GraphDataError, match="no table 'y_sum_1' of the nodes; these are x_"):
        load_graph_data(folder, tables=["y_sum_1"])


def test_a_table_that_another_is_made_of_is_not_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "graph"
    save_graph_data(flat(), folder)
    preaggregate(folder, progress=False)
    preaggregate(folder, table="x_mean_1", name="twice", progress=False)
    before = listing(folder)
    with pytest.raises(StaleTableError, match=r"'twice_1' is the mean of x_mean_1, but 'table\.x_mean_1'"):
        preaggregate(folder, dtype=torch.float16, progress=False)
    assert listing(tmp_path) == before
    alone = load_graph_data(folder, tables=["twice_1"])
    check_fresh(alone, "twice_1")


def test_a_copy_of_data_gets_the_tables(tmp_path: Path) -> None:
    data = preaggregate(flat(), out=tmp_path / "graph", progress=False)
    assert torch.equal(rows_of(data.tables["x_mean_1"]), preaggregate(flat(), progress=False).tables["x_mean_1"].rows)
    with pytest.raises(StoreFormatError, match="exists already"):
        preaggregate(flat(), out=tmp_path / "graph", progress=False)


@pytest.mark.parametrize("memory", [None, 2 * NUM_NODES * 2 * 4 * 17])
def test_an_interrupt_leaves_the_folder_as_it_was(
    memory: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "graph"
    save_graph_data(flat(), folder)
    before, calls = listing(tmp_path), [0]

    def interrupted(rows: torch.Tensor, lists: Any) -> torch.Tensor:
        calls[0] += 1
        if calls[0] == 2:
            raise KeyboardInterrupt
        return aggregation.sums(rows, lists)

    monkeypatch.setattr(hop_tables, "sums", interrupted)
    for out in (None, tmp_path / "new"):
        calls[0] = 0
        with pytest.raises(KeyboardInterrupt):
            preaggregate(folder, hops=2, memory=memory, out=out, progress=False)
        assert listing(tmp_path) == before


def test_a_folder_that_another_process_replaces_is_not_written_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "graph"
    save_graph_data(flat(), folder)
    real = stored.write_manifest

    def replaced(*arguments: Any, **settings: Any) -> None:
        monkeypatch.setattr(stored, "write_manifest", real)
        save_graph_data(flat(x=features() + 1), folder, overwrite=True)
        real(*arguments, **settings)

    monkeypatch.setattr(stored, "write_manifest", replaced)
    with pytest.raises(StoreFormatError, match="was replaced by another process"):
        preaggregate(folder, progress=False)
    assert torch.equal(rows_of(load_graph_data(folder).x), features() + 1)


def test_stale_tables_are_refused_wherever_they_are_met(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "graph"
    save_graph_data(flat(), folder)
    data = preaggregate(folder, progress=False)
    # The same bytes elsewhere are not stale; that is known by reading them.
    data.x = DiskFeatureStore(folder)
    check_fresh(data, "x_mean_1")
    save_graph_data(data, tmp_path / "copy")
    data.x.close()
    for change in ("x", "graph"):
        changed = load_graph_data(folder)
        if change == "x":
            changed.x = flat(x=features() + 1).x
        else:
            changed.graph = Graph.from_coo(*edges(seed=1), NUM_NODES)
        problem = (
            f"'x_mean_1' is the mean of x, but '{'x' if change == 'x' else 'ind'}.*has changed since. Make it again"
        )
        with pytest.raises(StaleTableError, match=problem):
            check_fresh(changed, "x_mean_1")
        with pytest.raises(StaleTableError, match=problem):
            save_graph_data(changed, tmp_path / "stale")
        assert not (tmp_path / "stale").exists()
        remade = preaggregate(changed, progress=False)
        check_fresh(remade, "x_mean_1")
        del changed.tables["x_mean_1"]
        save_graph_data(changed, tmp_path / f"without_{change}")
    # Other processes, and copies that replace the rows, know that they are the same; the former ones are let go.
    within = preaggregate(flat(), progress=False)
    check_fresh(pickle.loads(pickle.dumps(within)), "x_mean_1")  # noqa: S301  as Lightning spawns ranks
    former = weakref.ref(within.x)
    within.put("x", MemoryFeatureStore(features()))
    assert former() is None
    monkeypatch.setattr(stored, "checksums", lambda *_: pytest.fail("they are known without being read"))
    check_fresh(within, "x_mean_1")
    monkeypatch.undo()
    # In memory, torch counts what is done to a tensor.
    within = preaggregate(flat(), progress=False)
    check_fresh(within, "x_mean_1")
    within.x.rows.mul_(2)
    with pytest.raises(StaleTableError):
        check_fresh(within, "x_mean_1")


def test_a_folder_with_a_stale_table_is_refused_and_can_be_mended(tmp_path: Path) -> None:
    folder = tmp_path / "graph"
    save_graph_data(flat(), folder)
    preaggregate(folder, progress=False)
    expected = listing(folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["aggregates"]["x_mean_1"]["sources"]["x"] ^= 1
    (folder / "manifest.json").write_text(json.dumps(with_checksum(manifest)))
    with pytest.raises(StaleTableError, match=re.escape(str(folder))):
        load_graph_data(folder)
    preaggregate(folder, progress=False)
    assert listing(folder) == expected
    for broken in ({"table": 3}, {"aggr": "median"}, {"hop": 0}, {"sources": {"x": "1"}}, {"more": 1}):
        manifest["aggregates"]["x_mean_1"] |= broken
        (folder / "manifest.json").write_text(json.dumps(with_checksum(manifest)))
        with pytest.raises(StoreFormatError, match="describes no aggregate"):
            load_graph_data(folder)
        manifest = json.loads(expected[str(folder / "manifest.json")])


_BOUNDED = """
import resource, torch
from lightning_gnnload import preaggregate
torch.set_num_threads(1)
preaggregate("small", progress=False)  # so that what torch takes by itself is there
used = int(open("/proc/self/status").read().partition("VmData:")[2].split()[0]) << 10
limit = used + {memory} + (6 << 20)  # 4 MiB of reads under way, and what malloc leaves between others
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
preaggregate("graph", memory={memory}, progress=False)
"""


def test_a_table_larger_than_the_memory_takes_no_more_than_it(tmp_path: Path) -> None:
    num_nodes, memory = 100_000, 16 << 20
    nodes, x = np.arange(num_nodes), torch.randn(num_nodes, 128, generator=torch.Generator().manual_seed(0))
    assert x.nbytes > 3 * memory
    graph = Graph.from_coo(np.concatenate([np.roll(nodes, 1), np.roll(nodes, 7)]), np.concatenate([nodes, nodes]))
    save_graph_data(GraphData(graph, x=x), tmp_path / "graph")
    save_graph_data(GraphData(Graph.from_coo([0], [1]), x=torch.ones(2, 3)), tmp_path / "small")
    command = [sys.executable, "-c", _BOUNDED.format(memory=memory)]
    with forkserver.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as child:
        assert child.communicate()[1] == ""
    rows = rows_of(load_graph_data(tmp_path / "graph").tables["x_mean_1"])
    torch.testing.assert_close(rows, (x.roll(1, 0) + x.roll(7, 0)) / 2)
