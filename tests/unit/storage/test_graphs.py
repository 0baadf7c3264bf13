import errno
import json
import os
import stat
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from lightning_gnnload import FeatureStore, Graph, GraphData, NodeTable, load_graph_data, quantize, save_graph_data
from lightning_gnnload.data.sanity import check_training_labels
from lightning_gnnload.data.seedtable import SeedTable
from lightning_gnnload.errors import FeatureFileError, GnnLoadError, GraphDataError, StoreFormatError
from lightning_gnnload.storage import folders
from tests.unit.storage.conftest import edit, example

INTEGERS = [torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.int8, torch.int16, torch.int32, torch.int64]
DTYPES = [torch.bool, *INTEGERS, torch.float16, torch.bfloat16, torch.float32, torch.float64]


DAMAGE = {
    "edge_type": ([0, 1, -1, 1], r"edge types lie in \[-1, 1\].* read from .*graph/edge_type\.bin"),
    "edge_order": ([0, 1, 2, 4], r"edge_order\[3\] is 4.* read from edge_order\.bin \(int32 \[4\]\)"),
    "edge_weight": ([1, np.nan, 1, 1], r"edge_weight must be finite.* read from edge_weight\.bin"),
    "indices": ([0, 1, 2, 3], r"indices\[3\] is 3.* read from .*indices\.bin \(int32 \[4\]\)"),
    "indptr": ([0, 3, 2, 4], r"indptr\[2\] is 2, less than.* read from indptr\.bin \(int64 \[4\]\)"),
    "val": ([3], r"val ids: id 3.* read from val\.bin"),
    "seeds.train.src": ([9, 0], r"train: SeedTable: src\[0\] is 9.* read from seeds\.train\.src\.bin"),
    "seeds.train.time": ([1, np.nan], r"SeedTable: time\[1\] is no time.* read from seeds\.train\.time\.bin"),
    "seeds.train.column.weight": ([1, -1], r"weight\[1\] is -1.* read from seeds\.train\.column\.weight\.bin"),
    "ids..offsets": ([0, 1, 5, 7], r"ids.*offsets of user ids.* read from .*ids\.\.offsets\.bin"),
    "y": ([1, 0, 5], r"label that is none, first node 2 with 5.* read from .*graph/y\.bin"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_an_error_names_the_file_that_was_read(tmp_path: Path, name: str) -> None:
    data = example()
    if name.startswith("seeds"):
        data = GraphData(data.graph, train=SeedTable(src=[0, 1], dst=[1, 2], time=[1.5, 2.5], weight=[1.0, 2.0]))
    elif name.startswith("ids"):
        data = GraphData(data.graph, user_ids=["a", "b", "c"])
    save_graph_data(data, tmp_path / "graph")
    entry = json.loads((tmp_path / "graph" / "manifest.json").read_text())["arrays"][name]
    file, (values, message) = tmp_path / "graph" / entry["file"], DAMAGE[name]
    entries = np.fromfile(file, entry["dtype"])
    entries[:] = values
    entries.tofile(file)

    def use() -> None:
        loaded = load_graph_data(tmp_path / "graph")
        check_training_labels(loaded)
        _ = loaded.graph.typed_lists  # which a sampler by type needs first

    with pytest.raises(GnnLoadError, match=message):
        use()


def assert_arrays(found: Graph, wanted: Graph) -> None:
    for name in Graph.ARRAYS:
        given, expected = getattr(found, name), getattr(wanted, name)
        assert (given is None) == (expected is None), name
        if given is not None:
            assert given.tolist() == expected.tolist(), name
            assert given.dtype == expected.dtype, name


def test_lists_of_an_older_folder_are_sorted(tmp_path: Path, monkeypatch) -> None:
    lists = np.array([0, 2, 2, 4]), np.array([1, 2, 0, 1], np.int32)
    wanted = Graph.from_csc(*lists, edge_type=np.array([1, 0, 1, 1]))
    with monkeypatch.context() as older:
        older.setattr(Graph, "_sort_by_type", lambda graph: None)
        graph = Graph.from_csc(*lists, edge_type=np.array([1, 0, 1, 1]))
        save_graph_data(GraphData(graph, train=[0]), tmp_path / "graph")
        graph.lost_order = True
        save_graph_data(GraphData(graph, train=[0]), tmp_path / "lost")
    with pytest.warns(UserWarning, match="its lists do not lie by edge_type"):
        assert_arrays(load_graph_data(tmp_path / "graph").graph, wanted)
    with pytest.warns(UserWarning, match="Write the folder anew"):
        assert load_graph_data(tmp_path / "lost").graph.edge_order is None
    save_graph_data(GraphData(wanted, train=[0]), tmp_path / "anew")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_arrays(load_graph_data(tmp_path / "anew").graph, wanted)


def test_what_was_written_is_read(folder: Path) -> None:
    data, wanted = load_graph_data(folder, verify=True), example()
    assert_arrays(data.graph, wanted.graph)
    assert data.x.rows.tolist() == wanted.x.rows.tolist()
    assert data.y.tolist() == [1, 0, 4]
    assert [data.train.tolist(), data.val.tolist(), data.test.tolist()] == [[2, 0], [1], []]
    assert data.num_classes == 5


BUYS, SOLD = ("user", "buys", "item"), ("item", "sold by", "shop/../s")


def typed_example(times: list, **settings) -> GraphData:
    """Types with names that are none of files; quantised features, tables of edges, and one type without nodes."""
    graph = Graph.from_hetero(
        {"user": 3, "shop/../s": 1, "item": 2, "tag": 0},
        {BUYS: ([0, 2, 2, 1], [1, 1, 0, 1]), SOLD: ([1, 0], [0, 0])},
        edge_time={BUYS: times},
        node_time={"item": times[:2]},
        edge_weight={SOLD: [0.5, 2.0]},
        keep_order=True,
    )
    return GraphData(
        graph,
        {"user": quantize(torch.rand(3, 2), progress=False), "item": torch.rand(2, 3, 2).half()},
        {"item": torch.tensor([1, -1])},
        {"item": [0]},
        tables={"tag": {"name": torch.zeros(0)}, "shop/../s": {"x": torch.ones(1)}},
        edge_x={BUYS: torch.rand(4, 2)},
        **settings,
    )


@pytest.mark.parametrize("edge_tables", [None, {}, {SOLD: {"when": torch.arange(2)}}])
@pytest.mark.parametrize("times", [[7, 3, 3, 2**62], [0.5, 0.25, 1.5, 0.5], [5, 4, 5, 4]], ids=["far", "parts", "near"])
@pytest.mark.parametrize("features", ["mapped", "disk"])
def test_types_and_times_are_part_of_it(tmp_path: Path, edge_tables, times, features) -> None:
    data = typed_example(times, edge_tables=edge_tables)
    save_graph_data(data, tmp_path / "graph")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # where the file system refuses direct reads
        loaded = load_graph_data(tmp_path / "graph", verify=True, features=features)
    assert_arrays(loaded.graph, data.graph)
    assert loaded.graph.types == data.graph.types
    assert loaded.graph.fingerprint == data.graph.fingerprint
    asked = np.array(times)
    assert loaded.graph.clock.until(asked, "<=").tolist() == data.graph.clock.until(asked, "<=").tolist()
    assert loaded.graph.clock.timed.tolist() == [True, True]
    assert loaded.names_edge_tables == (edge_tables is not None)
    assert loaded.stores.keys() == data.stores.keys()
    for name, store in data.stores.items():
        rows, wanted = (torch.empty(store.shape, dtype=store.dtype) for _ in range(2))
        loaded.stores[name].gather(torch.arange(len(rows)), rows)
        store.gather(torch.arange(len(rows)), wanted)
        assert torch.equal(rows, wanted), name
        assert loaded.stores[name].row_shape == store.row_shape
    assert loaded.edge_tables_of(BUYS)["x"].edge_type == BUYS
    assert loaded.tables_of("item")["x"].nodes == range(4, 6)
    assert (loaded.y.tolist(), loaded.split("train", "item").tolist()) == (data.y.tolist(), [0])
    assert {path.parent for path in (tmp_path / "graph").rglob("*")} == {tmp_path / "graph"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.update(types=3), "'types' is missing or of the wrong kind"),
        (lambda m: m.update(types=None), "types and run_ptr come together"),
        (lambda m: m.update(types={}), "describes no types"),
        (lambda m: m["types"].update(num_nodes=[3, 1, 2, 1]), "the types have 7 nodes, but the graph 6"),
        (lambda m: m["types"].update(num_nodes=[3, 2, 1, 0]), "sources of edges of its type"),
        (lambda m: m["types"]["edge_types"].append(["tag", "a", "item"]), r"clock.timed must be bool \[3\]"),
        (lambda m: m["arrays"].update(run_ptr=m["arrays"]["edge_time"]), "run_ptr has"),
        (lambda m: m["types"].update(num_nodes=[True, 2**70, 2, 0]), "too many"),
        (lambda m: m["types"].update(num_nodes=[1.5, 1, 2, 0]), "describes no types"),
        (lambda m: m["types"]["edge_types"][0].__setitem__(0, "tag"), "sources of edges of its type"),
        (lambda m: m["types"].update(edge_types=[["user", "buys"]]), "is no edge type"),
        (lambda m: m["types"].update(edge_types=7), "describes no types"),
        (lambda m: m["types"].update(node_types=[str(n) for n in range(5000)]), "too many"),
        (lambda m: m.update(clock=None), "edge_time and clock come together"),
        (lambda m: m.update(clock=[]), "'clock' is missing or of the wrong kind"),
        (lambda m: m.update(clock={}), "describes no clock"),
        (lambda m: m["clock"].update(unit=0), "describes no clock"),
        (lambda m: m["clock"].update(last=2**63), "describes no clock"),
        (lambda m: m["clock"].update(first=-(2**63), last=2**63 - 1, unit=2**40), "describes no clock"),
        (lambda m: m["clock"].update(unit=2**70), "describes no clock"),
        (lambda m: m["clock"].update(timed=[True]), r"clock.timed must be bool \[2\]"),
        (lambda m: m["clock"].update(timed=[0, 1]), "describes no clock"),
        (lambda m: m["arrays"].pop("edge_time"), "edge_time and clock come together"),
        (lambda m: m["arrays"].update(edge_time=m["arrays"]["run_ptr"]), "edge_time has"),
        (lambda m: m["arrays"].update(clock_ranked=m["arrays"]["edge_weight"]), "clock_ranked must be"),
        (lambda m: m["arrays"].update(clock_ranked=m["arrays"]["table.name.tag"]), "clock_ranked must be"),
        (lambda m: m["tables"].update({"x.user": 1}), "table 'x.user' has 3 rows"),
    ],
)
def test_types_and_times_that_do_not_fit(tmp_path: Path, change, message: str) -> None:
    save_graph_data(typed_example([7, 3, 3, 2**62]), tmp_path / "graph")
    edit(tmp_path / "graph", change)
    with pytest.raises(StoreFormatError, match=message):
        load_graph_data(tmp_path / "graph")


def test_a_folder_from_before_there_were_types_loads(folder: Path) -> None:
    edit(folder, lambda manifest: (manifest.pop("types"), manifest.pop("clock")))
    assert load_graph_data(folder).graph.fingerprint == example().graph.fingerprint


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_keeps_its_bits(tmp_path: Path, dtype: torch.dtype) -> None:
    bits = torch.randint(0, 2 if dtype is torch.bool else 120, (3, 4 * dtype.itemsize), dtype=torch.uint8)
    x = bits.view(dtype)
    save_graph_data(GraphData(example().graph, x), tmp_path / "graph")
    found = load_graph_data(tmp_path / "graph", verify=True).x.rows
    assert found.dtype is dtype
    assert torch.equal(found.view(torch.uint8), bits)


@pytest.mark.parametrize("x", [None, np.empty((0, 4), np.float32)])
def test_empty_and_absent_arrays(tmp_path: Path, x) -> None:
    save_graph_data(GraphData(Graph.from_coo([], []), x), tmp_path / "graph")
    data = load_graph_data(tmp_path / "graph", verify=True)
    assert (data.num_nodes, data.graph.num_edges, len(data.train), data.y) == (0, 0, 0, None)
    assert data.num_features == (0 if x is None else 4)
    assert data.graph.edge_weight is None


def test_rows_that_are_a_view_are_written_as_they_look(tmp_path: Path) -> None:
    whole = torch.arange(24.0).view(6, 4)
    save_graph_data(GraphData(example().graph, whole[1:4], y=whole[::2, 1]), tmp_path / "graph")
    data = load_graph_data(tmp_path / "graph")
    assert torch.equal(data.x.rows, whole[1:4])
    assert torch.equal(data.y, whole[::2, 1])


def test_a_single_link_is_written(tmp_path: Path) -> None:
    """Its source is one number out of a row of two: contiguous, with a stride of 2."""
    data = GraphData(Graph.from_coo([0, 1], [1, 2]), train=SeedTable(src=[2], dst=[1]))
    save_graph_data(data, tmp_path / "one")
    assert load_graph_data(tmp_path / "one").table("train").ends.tolist() == [[2, 1]]


def test_arrays_are_mapped_and_not_read(folder: Path) -> None:
    data = load_graph_data(folder)
    maps = Path("/proc/self/maps").read_text()
    assert all(str(folder / name) in maps for name in ("x.bin", "indices.bin", "indptr.bin"))
    assert not data.graph.indices.flags.owndata


def test_only_the_owner_may_look(folder: Path) -> None:
    # mkdir's default under umask 022 would let everyone read the data.
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_folder_is_replaced_only_when_told(folder: Path) -> None:
    other = GraphData(Graph.from_coo([0], [1]))
    with pytest.raises(StoreFormatError, match=r"exists already.*overwrite=True"):
        save_graph_data(other, folder)
    assert load_graph_data(folder).num_nodes == 3
    mapped = load_graph_data(folder)
    save_graph_data(other, folder, overwrite=True)
    assert load_graph_data(folder).num_nodes == 2
    assert mapped.x.rows.sum() == 15  # who has mapped the old one keeps it
    assert [path.name for path in folder.parent.iterdir()] == ["graph"]


@pytest.mark.parametrize("exists", [False, True])
@pytest.mark.parametrize("name", ["indices.bin", "manifest.json", "graph"])
@pytest.mark.parametrize("exchanges", [True, False])
def test_a_crash_leaves_the_folder_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exists: bool, name: str, exchanges: bool
) -> None:
    """Interrupted where the named file is opened, or where the whole is moved into its place."""
    target = tmp_path / "graph"
    if exists:
        save_graph_data(example(), target)
    rename, exchange, crashes = os.rename, folders.exchange, []

    def crash(at: str | os.PathLike[str]) -> None:
        if not crashes and os.path.basename(at) == name:
            crashes.append(at)
            raise KeyboardInterrupt

    def opens(file, mode="r"):
        crash(file)
        return open(file, mode)

    def renames(source, destination) -> None:
        crash(destination)
        rename(source, destination)

    def exchanged(first, second) -> bool:
        if exchanges:
            crash(second)
        return exchanges and exchange(first, second)

    with monkeypatch.context() as patch:
        patch.setattr(folders, "open", opens, raising=False)
        patch.setattr(folders, "exchange", exchanged)
        patch.setattr(os, "rename", renames)
        with pytest.raises(KeyboardInterrupt):
            save_graph_data(GraphData(Graph.from_coo([0], [1])), target, overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == (["graph"] if exists else [])
    if exists:
        assert load_graph_data(target, verify=True).num_nodes == 3


def test_tables_and_edge_features_are_part_of_it(tmp_path: Path) -> None:
    graph = Graph.from_coo([0, 1, 2, 0], [1, 2, 0, 2], keep_order=True)
    tables = {"year": torch.tensor([[7], [8], [9]]), "paper": NodeTable(torch.rand(2, 5).half(), 1)}
    save_graph_data(GraphData(graph, tables=tables, edge_x=torch.arange(8.0).view(4, 2)), tmp_path / "graph")
    data = load_graph_data(tmp_path / "graph", verify=True)
    assert list(data.stores) == ["year", "paper", "edge_x"]
    assert torch.equal(data.tables["year"].rows, tables["year"])
    assert torch.equal(data.tables["paper"].store.rows, tables["paper"].store.rows)
    assert data.tables["paper"].nodes == range(1, 3)
    assert data.edge_x.rows.tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert data.graph.edge_order.tolist() == graph.edge_order.tolist()  # or rows would go to other edges
    assert str(tmp_path / "graph" / "table.year.bin") in Path("/proc/self/maps").read_text()


def test_all_of_them_may_stay_on_disk(tmp_path: Path) -> None:
    data = GraphData(
        Graph.from_coo([0, 1, 2, 0], [1, 2, 0, 2], keep_order=True),
        torch.rand(3, 4),
        tables={"year": torch.rand(3), "paper": NodeTable(torch.rand(2, 5).half(), 1), "grid": torch.rand(3, 2, 2)},
        edge_x=torch.rand(4, 2),
        edge_tables={"when": torch.arange(4)},
    )
    save_graph_data(data, tmp_path / "graph")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # where the file system refuses direct reads
        loaded = load_graph_data(tmp_path / "graph", features="disk")
    for name, store in loaded.stores.items():
        out = torch.empty(store.shape, dtype=store.dtype)
        (read,) = store.gather(torch.arange(len(out)), out)
        assert (read.tier, read.rows) == ("disk", len(out))
        assert torch.equal(out, data.stores[name].rows), name
        assert store.row_shape == data.stores[name].row_shape, name
        store.close()


def test_columns_and_tables_of_edges_come_back_as_they_were(tmp_path: Path) -> None:
    graph = Graph.from_coo([0, 1, 2, 0], [1, 2, 0, 2], edge_weight=torch.rand(4), keep_order=True)
    tables = {"year": torch.arange(3), "grid": torch.rand(3, 2, 2)}
    for edge_tables in (None, {}, {"when": torch.arange(4), "_TYPE": torch.arange(4)[:, None]}):
        data = GraphData(graph, tables=tables, edge_tables=edge_tables)
        save_graph_data(data, tmp_path / "graph", overwrite=True)
        loaded = load_graph_data(tmp_path / "graph")
        assert loaded.edge_tables.keys() == (edge_tables or {}).keys()
        assert loaded.names_edge_tables == (edge_tables is not None)  # else the graph's weights would come unasked
        for name, store in data.stores.items():
            assert torch.equal(loaded.stores[name].rows, store.rows)
            assert loaded.stores[name].row_shape == store.row_shape


def test_a_lost_order_of_edges_stays_lost(tmp_path: Path) -> None:
    for keep_order in (False, True):
        save_graph_data(
            GraphData(Graph.from_coo([0, 1], [1, 0], keep_order=keep_order)), tmp_path / "graph", overwrite=True
        )
        graph = load_graph_data(tmp_path / "graph").graph
        if keep_order:
            GraphData(graph, edge_x=torch.zeros(2, 1))
        else:
            with pytest.raises(GraphDataError, match="did not keep the order"):
                GraphData(graph, edge_x=torch.zeros(2, 1))


def test_a_folder_from_before_there_were_tables_loads(folder: Path) -> None:
    edit(folder, lambda manifest: (manifest.pop("tables"), manifest.pop("lost_order")))
    edit(folder, lambda manifest: manifest["arrays"].pop("table.year"))
    (folder / "table.year.bin").unlink()
    assert load_graph_data(folder).tables == {}


@pytest.mark.parametrize("chunk_bytes", [1, 8, 20, 1 << 20])
def test_rows_of_any_store_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk_bytes: int) -> None:
    # The wrong code loses the last rows, which do not fill a chunk, or writes some twice.
    class Squares(FeatureStore):
        shape = (3, 2)
        dtype = torch.int16

        def gather(self, ids, out) -> None:
            out[:] = torch.stack([ids, ids * ids], 1)

    monkeypatch.setattr(folders, "CHUNK_BYTES", chunk_bytes)
    save_graph_data(GraphData(example().graph, Squares(), tables={"again": Squares()}), tmp_path / "graph")
    data = load_graph_data(tmp_path / "graph", verify=True)
    assert data.x.rows.tolist() == data.tables["again"].rows.tolist() == [[0, 0], [1, 1], [2, 4]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.update(tables=[]), "'tables' is missing or of the wrong kind"),
        (lambda m: m.update(tables={"year": -1}), "'tables' is missing or of the wrong kind"),
        (lambda m: m.update(tables={"other": None}), "lists no array 'table.other'"),
        (lambda m: m.update(tables={"year": 1}), "table 'year' is for .* has 3 nodes"),
        (lambda m: m["arrays"]["table.year"].update(shape=[1, 3]), "table 'year' has 1 rows"),
        (lambda m: m["arrays"]["table.year"].update(shape=[]), r"table.year.bin has \d+ bytes"),
        (lambda m: m.update(edge_tables={"year": None}), "'edge_tables' is missing or of the wrong kind"),
        (lambda m: m.update(edge_tables=[3]), "'edge_tables' is missing or of the wrong kind"),
        (lambda m: m.update(edge_tables=["when"]), "lists no array 'edge.when'"),
        (lambda m: m["tables"].update({"x": None}) or m["arrays"].update({"table.x": m["arrays"]["x"]}), "named 'x'"),
        (lambda m: m["arrays"].update(edge_x=m["arrays"]["x"]), "edge_x has 3 rows"),
    ],
)
def test_tables_that_do_not_fit(folder: Path, change, message: str) -> None:
    edit(folder, change)
    with pytest.raises(StoreFormatError, match=message):
        load_graph_data(folder)


@pytest.mark.parametrize("name", ["x", "y", "indices", "edge_weight", "train"])
def test_a_flipped_bit_is_found_when_bytes_are_verified(folder: Path, name: str) -> None:
    content = bytearray((folder / f"{name}.bin").read_bytes())
    content[0] ^= 1
    (folder / f"{name}.bin").write_bytes(content)
    with pytest.raises(StoreFormatError, match=rf"{name}\.bin is damaged: bytes 0 to \d+ of array '{name}'"):
        load_graph_data(folder, verify=True)


def test_ids_are_checked_without_verify(folder: Path) -> None:
    np.array([0, 9, 1, 2], np.int32).tofile(folder / "indices.bin")
    with pytest.raises(StoreFormatError, match=r"indices.*9.*[Pp]repare it again"):
        load_graph_data(folder)


def test_a_disk_that_is_full_is_named_and_nothing_stays(tmp_path, monkeypatch) -> None:
    def no_room(fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_room)
    with pytest.raises(FeatureFileError, match=r"graph cannot be written: .*No space left.*disk with room"):
        save_graph_data(example(), tmp_path / "graph")
    assert not list(tmp_path.iterdir())


def test_data_and_folder_the_wrong_way_round(tmp_path: Path) -> None:
    with pytest.raises(StoreFormatError, match=r"a PosixPath is given to be saved; save_graph_data\(data, folder\)"):
        save_graph_data(tmp_path / "graph", example())  # type: ignore[arg-type]
