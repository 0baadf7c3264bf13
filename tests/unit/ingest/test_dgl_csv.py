import importlib.util
import warnings

import numpy as np
import pytest
import torch

from lightning_gnnload import DGLCSV, GraphData, GraphDataModule, NeighborSampler
from lightning_gnnload.data import datasets as former
from lightning_gnnload.errors import DatasetError
from tests.runif import RunIf

META = "dataset_name: made\nnode_data:\n- file_name: nodes.csv\nedge_data:\n- file_name: edges.csv\n"
NODES = """node_id,label,train_mask,val_mask,test_mask,feat,age
7,1,True,False,False,"0.5, 0.25",30
-2,0,False,True,False,"1.5,2.5",31
40,2,False,False,True,"3,4",32
12,1,True,False,False,"0.1,1e3",33
"""
EDGES = """src_id,dst_id,feat,label,weight
7,40,"1,2,3",0,0.5
40,-2,"4,5,6",1,1.5
12,7,"7,8,9",0,2.5
"""
TYPED_META = """version: 1.0.0
dataset_name: shop
separator: ;
node_data:
- {file_name: users.csv, ntype: user, node_id_field: name}
- {file_name: items.csv, ntype: item}
edge_data:
- {file_name: buys.csv, etype: [user, buys, item], src_id_field: who, dst_id_field: what}
- {file_name: knows.csv, etype: [user, knows, user]}
"""
USERS = "name;feat\nbob;0.5\nann;1.5\nEve;2.5\n"
ITEMS = "node_id;price;feat\n30;1.25;(1, 2)\n4;2.5;(3, 4)\n100;3.75;(5, 6)\n"
BUYS = """who;what;train_mask;test_mask;label;at
ann;4;1;0;5;1000
bob;100;0;1;3;3000
ann;30;1;0;1;2000
Eve;4;0;0;2;4000
"""
KNOWS = "src_id;dst_id\nann;bob\nbob;Eve\n"


def flat(folder, nodes=NODES, edges=EDGES, meta=META):
    return write(folder, {"meta.yaml": meta, "nodes.csv": nodes, "edges.csv": edges})


def typed(folder, **changed):
    files = {"meta.yaml": TYPED_META, "users.csv": USERS, "items.csv": ITEMS, "buys.csv": BUYS, "knows.csv": KNOWS}
    return write(folder, files | {f"{name}.csv": text for name, text in changed.items()})


def write(folder, files):
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def read(folder, **settings) -> GraphData:
    dataset = DGLCSV(folder, root=folder.parent / "converted", **settings)
    dataset.prepare()
    return dataset.load()


def edges(data: GraphData) -> list[tuple[int, int]]:
    dst = np.repeat(np.arange(data.num_nodes), data.graph.in_degrees)
    return sorted(zip(data.graph.indices.tolist(), dst.tolist(), strict=True))


def test_every_column_of_a_folder_without_types_is_read(tmp_path):
    data = read(flat(tmp_path / "flat"), edge_weight_name="weight")
    graph = data.graph  # of the nodes -2, 7, 12 and 40, in this order
    assert graph.types is None
    assert edges(data) == sorted([(1, 3), (3, 0), (2, 1)])
    assert data.x.rows.tolist() == [[1.5, 2.5], [0.5, 0.25], [np.float32(0.1), 1000], [3, 4]]
    assert data.x.dtype is torch.float32
    assert data.y.tolist() == [0, 1, 1, 2]
    assert (data.train.tolist(), data.val.tolist(), data.test.tolist()) == ([1, 2], [0], [3])
    assert data.tables["age"].rows.tolist() == [[31], [30], [33], [32]]
    assert data.edge_x.rows.tolist() == [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
    assert data.edge_x.dtype is torch.int64
    assert graph.indices.tolist() == np.array([1, 3, 2])[graph.edge_order].tolist()
    assert graph.edge_weight.tolist() == np.array([0.5, 1.5, 2.5])[graph.edge_order].tolist()
    assert data.edge_tables["label"].rows[:, 0].tolist() == [0, 1, 0]
    assert data.edge_tables["weight"].rows[:, 0].tolist() == [0.5, 1.5, 2.5]
    assert data.num_classes == 3
    assert set(data.tables) == {"age"}


def test_every_column_of_a_folder_with_types_is_read(tmp_path):
    data = read(typed(tmp_path / "shop"), time_name="at")
    types = data.graph.types
    assert dict(zip(types.node_types, types.num_nodes, strict=True)) == {"user": 3, "item": 3}
    bob, ann, eve = 2, 1, 0  # by the alphabet, where capitals come first
    four, thirty, hundred = (types.range_of("item").start + at for at in range(3))  # by size
    bought = [(ann, four), (bob, hundred), (ann, thirty), (eve, four)]
    assert edges(data) == sorted([*bought, (ann, bob), (bob, eve)])
    assert data.tables_of("user")["x"].store.rows.tolist() == [[2.5], [1.5], [0.5]]
    assert data.tables_of("item")["x"].store.rows.tolist() == [[3, 4], [1, 2], [5, 6]]
    assert data.tables_of("item")["price"].store.rows.tolist() == [[2.5], [1.25], [3.75]]
    train, test = data.table("train"), data.table("test")
    assert train.edge_type == ("user", "buys", "item")
    assert train.ends.tolist() == [[ann, 0], [ann, 1]]
    assert train.edge_ids.tolist() == [0, 2]
    assert train.y.tolist() == [5, 1]
    assert train.time.tolist() == [1000, 2000]
    assert test.ends.tolist() == [[bob, 2]]
    assert data.graph.in_neighbors(four).tolist() == [ann, eve]  # at 1000 and 4000
    assert data.graph.edge_time is not None


@RunIf(extras="dgl")
@pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("pandas", "pydantic")), reason="needs pandas and pydantic"
)
def test_it_reads_what_dgl_reads(tmp_path):
    """The same numbers of nodes and edges, the same columns, of DGL's own reader."""
    import dgl

    for folder in (flat(tmp_path / "flat"), typed(tmp_path / "shop")):
        theirs = dgl.data.CSVDataset(str(folder), force_reload=True, verbose=False)[0]
        data = read(folder, seed_type="user" if folder.name == "shop" else None)
        types = data.graph.types
        for kind in theirs.canonical_etypes:
            src, dst = (ids.numpy() for ids in theirs.edges(etype=kind, order="eid"))
            first = [0, 0] if types is None else [types.range_of(name).start for name in (kind[0], kind[2])]
            assert set(zip(src + first[0], dst + first[1], strict=True)) <= set(edges(data))
            ours = data.edge_tables if types is None else data.edge_tables_of(kind)
            columns = {name: getattr(table, "store", table).rows for name, table in ours.items()}
            columns |= {} if data.edge_x is None else {"x": data.edge_x.rows}
            same(columns, theirs.edges[kind].data, without=())
        assert theirs.num_edges() == data.graph.num_edges
        for node_type in theirs.ntypes:
            ours = data.tables if types is None else data.tables_of(node_type)
            columns = {name: getattr(table, "store", table).rows for name, table in ours.items()}
            columns |= {} if data.x is None else {"x": data.x.rows}
            same(columns, theirs.nodes[node_type].data, without=("label", "train_mask", "val_mask", "test_mask"))
        if types is None:
            assert data.y.tolist() == theirs.ndata["label"].tolist()
            for split in ("train", "val", "test"):
                assert data.split(split).tolist() == theirs.ndata[f"{split}_mask"].nonzero()[:, 0].tolist()


def same(ours, theirs, without) -> None:
    named = {{"x": "feat"}.get(name, name): rows for name, rows in ours.items()}
    assert named.keys() == set(theirs) - {*without}
    for name, rows in named.items():
        assert torch.equal(rows.squeeze().double(), theirs[name].squeeze().float().double()), name


def test_it_trains_in_a_data_module(tmp_path):
    dataset = DGLCSV(typed(tmp_path / "shop"), root=tmp_path / "converted")
    module = GraphDataModule(dataset, NeighborSampler([2, 2]), batch_size=1, num_threads=0)
    module.prepare_data()
    module.setup("fit")
    assert len(module.train_dataloader()) == 2


def test_masks_of_one_type_may_be_chosen(tmp_path):
    users = "name;train_mask\nbob;True\nann;False\nEve;True\n"
    items = "node_id;train_mask\n30;0\n4;1\n100;0\n"
    folder = typed(tmp_path / "shop", users=users, items=items)
    both = read(folder)
    assert both.split("train", "user").tolist() == [0, 2]
    assert both.split("train", "item").tolist() == [0]
    assert read(folder, seed_type="item").train.tolist() == [3]
    assert read(folder, seed_type="buys").table("train").edge_ids.tolist() == [0, 2]
    for seed_type, count in (("knows", 0), ("shop", 0)):
        with pytest.raises(DatasetError, match=f"seed_type is '{seed_type}', which names {count} types of edges"):
            read(folder, seed_type=seed_type)


def test_what_is_not_read_is_named_at_once(tmp_path):
    nodes = NODES.replace("age", "city name").replace(",30\n", ",7\n")
    nodes = "\n".join(f"{line},{'colour' if at == 0 else 'red'},x" for at, line in enumerate(nodes.splitlines()))
    nodes = nodes.replace("colour,x", "colour,")
    folder = flat(tmp_path / "flat", nodes=nodes, meta=META + "licence: none\ngraph_data: {file_name: graphs.csv}\n")
    with pytest.warns(UserWarning, match="does not read") as told:
        data = read(folder)
    [message] = [str(each.message) for each in told]
    assert set(message.partition("does not read ")[2].rstrip(".").split(", ")) == {
        "licence",
        "graph_data",
        "nodes.csv: colour",
        "nodes.csv: column 9 without a name",
        "nodes.csv: city name",
        "which names no table",
    }
    assert data.tables == {}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read(flat(tmp_path / "whole"))


def test_long_cells_and_marks_before_the_text_are_read(tmp_path):
    """Spreadsheets write such a mark; a list of thousands of numbers is longer than Python's reader takes at first."""
    wide = ",".join(["0.25"] * 40_000)
    folder = flat(
        tmp_path / "wide", nodes=f'\ufeffnode_id,feat\n0,"{wide}"\n\n1,"{wide}"\n', edges="src_id,dst_id\n0,1\n"
    )
    data = read(folder)
    assert data.x.shape == (2, 40_000)
    assert data.graph.num_edges == 1


def test_files_without_rows_are_read(tmp_path):
    for nodes, count in (("node_id\nann\nbob\n", 2), ("node_id\n7\n", 1), ("node_id\n", 0)):
        data = read(flat(tmp_path / "empty", nodes=nodes, edges="src_id,dst_id,w\n"), edge_weight_name="w")
        assert (data.num_nodes, data.graph.num_edges) == (count, 0)
        assert len(data.graph.edge_weight) == 0


def test_a_single_graph_may_have_an_id(tmp_path):
    nodes, edges_ = "graph_id,node_id\n5,0\n5,1\n", "graph_id,src_id,dst_id\n5,0,1\n"
    assert edges(read(flat(tmp_path / "one", nodes=nodes, edges=edges_))) == [(0, 1)]
    with pytest.raises(DatasetError, match=r"hold 2 graphs, 5, 6\.\.\., by their ids.*One graph is sampled here"):
        read(flat(tmp_path / "two", nodes=nodes + "6,0\n6,1\n", edges=edges_ + "6,1,0\n"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"edges": EDGES.replace("12,7", "13,7")}, r"edges\.csv: row 2, column 'src_id': 13 is no node of type '_V'"),
        (
            {"edges": EDGES.replace("12,7", "x,7")},
            r"'src_id' cannot be read; .* is 'x' in row 2\. Needed is a whole",
        ),
        ({"edges": EDGES.replace("src_id", "from")}, r"no column 'src_id', but .*edge_data\[0\]\.src_id_field"),
        ({"nodes": NODES.replace("12,", "7,")}, r"nodes\.csv: row 3 has node 7 again"),
        (
            {"nodes": NODES.replace("12,1", "12,")},
            r"1 of 4 values of column 'label' .* is '' in row 3\. Needed is one as '1'",
        ),
        (
            {"nodes": NODES.replace("12,1", "12,one")},
            r"'label' .* is 'one' in row 3\. Needed is one as '1'",
        ),
        ({"nodes": NODES.replace("7,1", "7,one")}, r"column 'label' holds texts.*Classes are counted from 0"),
        (
            {"nodes": NODES.replace('"3,4"', '"3,4,5"')},
            r"'feat' cannot be read; .* is '3,4,5' in row 2\. Needed is one as '0\.5, 0\.25'",
        ),
        ({"nodes": NODES.replace('"3,4"', '"3,"')}, r"'feat' cannot be read; .* is '3,' in row 2"),
        (
            {"nodes": NODES.replace("True,False,False,", "2,0,0,")},
            r"2 of 4 values of column 'train_mask' cannot be read; .* 'False' in row 1\. Needed is one as '2'",
        ),
        ({"nodes": NODES.replace("31\n", "31,5\n")}, r"line 3 of .*nodes\.csv has 8 fields, but there are 7 columns"),
        ({"nodes": NODES.replace("age", "label")}, r"the header has 'label' more than once"),
        ({"nodes": NODES + '1,"'}, r"line 6 of .*nodes\.csv cannot be read: Value with unterminated quote found"),
        (
            {"meta": META.replace("nodes.csv", "none.csv")},
            r"node_data\[0\]\.file_name is 'none\.csv'; there is no such",
        ),
        (
            {"meta": META.replace("nodes.csv", "../nodes.csv")},
            r"node_data\[0\]\.file_name is '\.\./nodes\.csv'; it leads out",
        ),
        ({"meta": META + "version: 2.0.0\n"}, r"version is '2\.0\.0'; only '1\.0\.0' is known"),
        ({"meta": META + "separator: '::'\n"}, r"separator is '::'; one character is needed"),
        ({"meta": META.replace("edges.csv", "edges.csv\n  etype: [a, b, _V]")}, r"no nodes of type 'a'; these are _V"),
        (
            {"meta": META.replace("edges.csv", "edges.csv\n  etype: [a, b]")},
            r"a source type, a relation and a target type",
        ),
        ({"meta": META + "separator: ''\n"}, r"separator is ''; one character"),
        ({"meta": META + "separator: '\"'\n"}, r"separator is '\"'; one character is needed, no quote"),
        ({"meta": META + "  src_id_field: dst_id\n"}, r"src_id_field is 'dst_id'; both ends are read from 'dst_id'"),
        ({"meta": META + META}, r"meta\.yaml cannot be read: 'dataset_name' is there twice.*line 6"),
        (
            {"nodes": NODES.replace("7,1", "7,", 1)},
            r"'label' .* is '' in row 0\. Needed is one as '0'",
        ),
        (
            {"nodes": NODES.replace("7,1", ",1", 1)},
            r"'node_id' cannot be read; .* is '' in row 0\. Needed is an id",
        ),
        ({"nodes": NODES.replace("node_id", "Label")}, r"the header has 'label' more than once"),
        ({"nodes": ""}, r"nodes\.csv is empty"),
        (
            {"nodes": NODES.replace("32\n", "3_2\n")},
            r"'age' .* is '3_2' in row 2\. Needed is one as '30'",
        ),
        ({"nodes": NODES.replace("32\n", "1e39\n")}, r"column 'age'\[2\] is 1e\+39, as 1 are, but float32 holds"),
        ({"nodes": NODES.replace("32\n", "٣\n")}, r"'age' cannot be read; .* is '٣' in row 2"),
        ({"nodes": "node_id\n1\n  \n"}, r"'node_id' cannot be read; .* is '  ' in row 1\. Needed is an id"),
        ({"meta": META.replace("dataset_name: made", "")}, r"dataset_name is missing"),
        ({"meta": "- 1"}, r"meta\.yaml: it holds \[1\] \(list\), but fields by name"),
    ],
)
def test_a_broken_folder_is_named_with_file_row_and_value(tmp_path, change, message):
    (tmp_path / "nodes.csv").write_text(NODES)
    with pytest.raises(DatasetError, match=message):
        read(flat(tmp_path / "flat", **change))


def test_ids_that_python_alone_takes_for_numbers_are_texts(tmp_path):
    nodes, edges_ = "node_id,a\n1_0,1\n10,2\n", "src_id,dst_id\n10,1_0\n"
    assert edges(read(flat(tmp_path / "flat", nodes=nodes, edges=edges_))) == [(0, 1)]


def test_a_source_that_is_no_path_is_named(tmp_path):
    for given in ({"source": 5}, {"source": "a\0b"}, {"source": tmp_path, "root": 5}):
        with pytest.raises(DatasetError, match=r"DGLCSV: (source|root) is .*, but the path of a folder is needed"):
            DGLCSV(**given)


def test_files_in_another_encoding_are_named(tmp_path):
    folder = flat(tmp_path / "flat")
    (folder / "nodes.csv").write_bytes(b"node_id\n\xff\n")
    with pytest.raises(DatasetError, match=r"nodes\.csv cannot be read: .*utf-8"):
        read(folder)
    with pytest.raises(DatasetError, match=r"meta\.yaml is missing"):
        read(tmp_path / "nothing")


def test_columns_that_are_asked_for_must_be_there(tmp_path):
    folder = flat(tmp_path / "flat")
    for argument in ("edge_weight_name", "time_name"):
        with pytest.raises(DatasetError, match=f"{argument} is 'none', but there is no such column"):
            read(folder, **{argument: "none"})
    with pytest.raises(DatasetError, match="edge_weight_name is 'feat', but it holds lists"):
        read(folder, edge_weight_name="feat")


def test_its_former_place_says_where_it_is():
    with pytest.warns(DeprecationWarning, match="from lightning_gnnload import DGLCSV"):
        assert former.DGLCSV is DGLCSV


def test_files_may_have_names_that_mean_several_and_lines_may_be_of_windows(tmp_path):
    folder = flat(tmp_path / "flat", meta=META.replace("nodes.csv", "n*.csv"), edges=EDGES.replace("\n", "\r\n"))
    (folder / "nodes.csv").rename(folder / "n*.csv")
    (folder / "nn.csv").write_text("node_id\n1\n")  # which the name would mean, too
    assert edges(read(folder)) == sorted([(1, 3), (3, 0), (2, 1)])


def test_whole_numbers_of_19_digits_are_ids(tmp_path):
    large = 9_007_199_254_740_993_000
    nodes = f"node_id\n{large + 1}\n{large}\n+7\n007000\n"
    assert edges(read(flat(tmp_path / "ids", nodes=nodes, edges=f"src_id,dst_id\n7,{large}\n7000,{large + 1}\n"))) == [
        (0, 2),
        (1, 3),
    ]
