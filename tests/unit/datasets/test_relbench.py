import json
import warnings

import numpy as np
import pytest

from lightning_gnnload import GraphDataModule, NeighborSampler, RelBench
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.errors import DatasetError, MissingExtraError
from lightning_gnnload.pipeline.slots import Slot

arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")

DAY = 86_400


def date(day: int) -> np.datetime64:
    return np.datetime64("1970-01-01", "ns") + np.timedelta64(day, "D")


def write(file, columns, primary=None, foreign=None, time=None) -> None:
    """Writes a table as RelBench does, with its keys in the file's metadata."""
    facts = {"pkey_col": primary, "fkey_col_to_pkey_table": foreign or {}, "time_col": time}
    table = arrow.table(columns).replace_schema_metadata({key: json.dumps(value) for key, value in facts.items()})
    file.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(table, file)


@pytest.fixture
def shop(tmp_path):
    """Three customers, two products, and five reviews on days 1 to 5, of which two name nobody."""
    customers = {"id": [0, 1, 2], "age": [30, None, 50], "name": ["Ann", "Bob", "Eve"]}
    products = {"sku": ["a", "b"], "price": np.array([1.5, 2.5], np.float32), "size": [[1, 2], [3, 4]]}
    reviews = {
        "customer": [0, None, 1, 0, 7],
        "product": ["b", "a", "a", "b", "a"],
        "at": [date(day) for day in (1, 2, 3, 4, 5)],
        "stars": np.array([5, 1, 2, 4, 3], np.uint8),
        "mood": ["good", "bad", "bad", "good", None],
    }
    write(tmp_path / "db" / "customer.parquet", customers, "id")
    write(tmp_path / "db" / "product.parquet", products, "sku")
    write(tmp_path / "db" / "review.parquet", reviews, None, {"customer": "customer", "product": "product"}, "at")
    for split, day, rows in (("train", 2, [0, 1, 0]), ("val", 3, [2]), ("test", 4, [1, 2])):
        churn = {"when": [date(day)] * len(rows), "who": rows, "churn": [row % 2 for row in rows]}
        write(tmp_path / "tasks" / "churn" / f"{split}.parquet", churn, None, {"who": "customer"}, "when")
        buys = {"when": [date(day)] * len(rows), "who": rows, "what": [["b", "a"], ["a"], ["b"]][: len(rows)]}
        keys = {"who": "customer", "what": "product"}
        write(tmp_path / "tasks" / "buys" / f"{split}.parquet", buys, None, keys, "when")
    return tmp_path


def made(root, **settings):
    dataset = RelBench(root, root=root / "converted", **settings)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        dataset.prepare()
    told = [str(each.message) for each in said if "RelBench" in str(each.message)]
    assert len(told) <= 1
    return dataset.load(), told[0] if told else ""


def edges_of(graph, edge_type) -> list[tuple[int, int]]:
    """Pairs (source, target) of one edge type, ids within their types."""
    types, number = graph.types, graph.types.edge_type_number(edge_type)
    src, dst = types.range_of(types.edge_types[number][0]), types.range_of(types.edge_types[number][2])
    kinds = graph.edge_types_of(np.arange(graph.num_edges))
    ends = np.repeat(np.arange(graph.num_nodes), graph.in_degrees)
    pairs = ((graph.indices[at] - src.start, ends[at] - dst.start) for at in np.flatnonzero(kinds == number))
    return sorted((int(a), int(b)) for a, b in pairs)


def test_tables_become_nodes_and_foreign_keys_edges_both_ways(shop):
    data, _ = made(shop)
    types = data.graph.types
    assert dict(zip(types.node_types, types.num_nodes, strict=True)) == {"customer": 3, "product": 2, "review": 5}
    assert edges_of(data.graph, ("review", "f2p_customer", "customer")) == [(0, 0), (2, 1), (3, 0)]
    assert edges_of(data.graph, ("customer", "rev_f2p_customer", "review")) == [(0, 0), (0, 3), (1, 2)]
    # Keys that are texts are looked up: "b" is product 1.
    assert edges_of(data.graph, ("review", "f2p_product", "product")) == [(0, 1), (1, 0), (2, 0), (3, 1), (4, 0)]
    times = data.graph.node_time[list(types.range_of("review"))]
    assert times.tolist() == [day * DAY for day in (1, 2, 3, 4, 5)]


def test_columns_become_tables_and_the_rest_is_said_in_one_warning(shop):
    data, told = made(shop)
    rows = {name: table.store.rows for name, table in data.tables.items()}
    assert sorted(rows) == ["age.customer", "mood.review", "price.product", "size.product", "stars.review"]
    age = rows["age.customer"].view(-1).tolist()
    assert age[::2] == [30.0, 50.0]
    assert np.isnan(age[1])
    assert rows["mood.review"].view(-1).tolist() == [1, 0, 0, 1, -1]  # bad, good, none
    assert rows["size.product"].tolist() == [[1, 2], [3, 4]]
    assert rows["stars.review"].numpy().dtype == np.int16
    assert rows["price.product"].numpy().dtype == np.float32
    assert "customer.name, which is text, with 3 different values" in told
    assert "1 of 5 keys review.customer, empty" in told
    assert "1 of 5 keys review.customer, of no row of 'customer'" in told


def test_rows_of_an_entity_task_have_times_and_targets(shop):
    data, told = made(shop, task="churn")
    train = data.table("train")
    assert train.node_type == "customer"
    assert train.ends[:, 0].tolist() == [0, 1, 0]
    assert train.time.tolist() == [2 * DAY] * 3
    assert train.y.tolist() == [0, 1, 0]
    assert data.num_classes == 2
    assert (len(data.table("val")), len(data.table("test"))) == (1, 2)
    # The test is asked about on day 4: the review of day 5 is left out, as RelBench does.
    assert len(data.graph.types.range_of("review")) == 4
    assert f"1 of 5 rows of 'review' later than {4 * DAY}" in told


def test_rows_of_a_recommendation_have_all_their_targets(shop):
    data, _ = made(shop, task="buys")
    train = data.table("train")
    assert train.edge_type == ("customer", "links", "product")
    assert train.ends[:, 0].tolist() == [0, 1, 0]
    assert train.targets.tolist() == [1, 0, 0, 1]
    assert train.dst_ptr.tolist() == [0, 2, 3, 4]
    assert train.nodes_in(data.graph).tolist() == [[0, 4], [1, 3], [0, 4]]  # the type of links is one of the graph's
    assert edges_of(data.graph, "links") == []


def test_a_hidden_target_leaves_nodes_with_a_time(shop):
    for task, key in (("churn", "churn"), ("buys", "what")):
        table = parquet.read_table(shop / "tasks" / task / "test.parquet")
        parquet.write_table(
            table.drop_columns([key]).replace_schema_metadata(
                {b"pkey_col": b"null", b"time_col": b'"when"', b"fkey_col_to_pkey_table": b'{"who": "customer"}'}
            ),
            shop / "tasks" / task / "test.parquet",
        )
        test = made(shop, task=task)[0].table("test")
        assert test.kind == "nodes"
        assert test.y is None
        assert (test.ends[:, 0].tolist(), test.time.tolist()) == ([1, 2], [4 * DAY] * 2)


def test_rows_without_entity_time_or_target_are_counted(shop):
    columns = {"when": [date(1), None, date(1), date(1)], "who": [0, 1, 9, 2], "churn": [0.5, 1.0, 1.0, None]}
    write(shop / "tasks" / "churn" / "train.parquet", columns, None, {"who": "customer"}, "when")
    links = {"when": [date(1)] * 3, "who": [0, 1, 2], "what": [["a", "z"], ["z"], []]}
    keys = {"who": "customer", "what": "product"}
    write(shop / "tasks" / "buys" / "train.parquet", links, None, keys, "when")
    data, told = made(shop, task="churn")
    assert data.table("train").y.tolist() == [0.5]
    assert "3 of 4 train rows without an entity, a time or a target" in told
    data, told = made(shop, task="buys")
    assert (data.table("train").targets.tolist(), data.table("train").dst_ptr.tolist()) == ([0], [0, 1])
    assert "2 of 3 targets of train rows, which name no row of 'product'" in told
    assert "2 of 3 train rows without" in told


def test_a_column_to_complete_is_not_in_the_graph(shop):
    # Rows are asked about at their own time: nothing is cut off, but what is asked is hidden.
    for split, day in (("train", 1), ("val", 3), ("test", 5)):
        rows = {"row": [day - 1], "at": [date(day)], "stars": [5]}
        write(shop / "tasks" / "stars" / f"{split}.parquet", rows, None, {"row": "review"}, "at")
    data, told = made(shop, task="stars")
    assert "stars.review" not in data.tables
    assert "review.stars, which is the target" in told
    assert data.table("test").ends[:, 0].tolist() == [4]


def test_rows_without_a_key_keep_their_numbers_when_others_are_cut(shop):
    """Reviews have no primary key: rows of the task name them by their numbers, of all reviews."""
    reviews = {"customer": [0, 1, 2, 0], "at": [None, date(1), date(2), date(3)], "stars": [1, 2, 3, 4]}
    write(shop / "db" / "review.parquet", reviews, None, {"customer": "customer"}, "at")
    write(shop / "db" / "answer.parquet", {"review": [0, 1, 2, 3]}, None, {"review": "review"})
    rows = {"row": [1, 3, 0], "at": [date(9)] * 3, "liked": [1, 3, 0]}
    write(shop / "tasks" / "liked" / "train.parquet", rows, None, {"row": "review"}, "at")
    data, told = made(shop, task="liked")
    assert edges_of(data.graph, ("answer", "f2p_review", "review")) == [(1, 0), (2, 1), (3, 2)]
    assert data.table("train").ends[:, 0].tolist() == [0, 2]
    assert data.table("train").y.tolist() == [1, 3]
    assert "1 of 4 keys answer.review, of no row of 'review'" in told


def test_hidden_columns_are_not_in_the_graph(shop):
    data, _ = made(shop, hidden=["review.stars", "customer.age"])
    assert not {"stars.review", "age.customer"} & data.tables.keys()
    assert "price.product" in data.tables
    for name in ("review.star", "stars", "nobody.x", "review.at", "review.customer"):
        with pytest.raises(DatasetError, match=rf"hidden has '{name}', but 'table\.column' is needed"):
            made(shop, hidden=[name])


def test_gaps_in_keys_may_be_nan(shop):
    write(shop / "db" / "review.parquet", {"customer": np.array([2, np.nan, 0])}, None, {"customer": "customer"})
    assert edges_of(made(shop)[0].graph, ("review", "f2p_customer", "customer")) == [(0, 2), (2, 0)]


def test_nothing_is_written_into_the_folder(shop):
    before = sorted(shop.rglob("*"))
    dataset = RelBench(shop, root=shop.parent / "elsewhere")
    with pytest.warns(UserWarning, match="Left out"):
        dataset.prepare()
    assert sorted(shop.rglob("*")) == before
    with pytest.raises(DatasetError, match=r"has no Parquet files"):
        RelBench(shop / "typo", root=shop.parent / "elsewhere").prepare()
    assert not (shop / "typo").exists()


def test_until_cuts_the_graph(shop):
    for until in (3 * DAY, np.int64(3 * DAY), np.datetime64("1970-01-04")):
        assert len(made(shop, until=until)[0].graph.types.range_of("review")) == 3, until


def test_until_may_be_a_date_as_text(shop):
    data, told = made(shop, until="1970-01-03")
    assert len(data.graph.types.range_of("review")) == 2
    assert "3 of 5 rows of 'review' later than" in told
    others = [{}, {"until": "1970-01-03"}, {"task": "churn"}, {"target": "churn"}, {"max_categories": 9}]
    assert len({RelBench(shop, **each).folder for each in others}) == len(others)


def test_files_that_changed_are_converted_anew(shop):
    made(shop)
    write(shop / "db" / "customer.parquet", {"id": [0, 1, 2, 3]}, "id")
    with pytest.raises(DatasetError, match=r"is not ready"):
        RelBench(shop, root=shop / "converted").load()
    assert made(shop)[0].graph.types.num_nodes[0] == 4


def test_mini_batches_reach_no_later_row(shop):
    data, _ = made(shop, task="churn")
    module = GraphDataModule(data, NeighborSampler([-1, -1], sharing="disjoint"), batch_size=3, num_threads=0)
    slot = Slot()
    batch = module.source("train").make(BatchRequest(0, 0, 0, 1), slot).view(slot.buffer())
    reviews = data.graph.types.range_of("review")
    nodes = batch.nodes.numpy()
    reached = nodes[(nodes >= reviews.start) & (nodes < reviews.stop)] - reviews.start
    # On day 2 customer 0 has the review of day 1; those of days 3 and 4 are not there yet.
    assert sorted(set(reached.tolist())) == [0]
    assert batch.y.tolist() == [[0, 1, 0][row] for row in batch.seed_columns["input_id"].tolist()]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"source": 5}, r"source is a int; give the path"),
        ({"task": 5}, r"task is a int; give its name"),
        ({"max_categories": -1}, r"max_categories is -1"),
        ({"hidden": "review.stars"}, r"hidden is 'review\.stars'; give a list"),
        ({"root": 5}, r"root is 5, but the path of a folder is needed"),
    ],
)
def test_settings_that_cannot_be_are_named(tmp_path, settings, message):
    with pytest.raises(DatasetError, match=message):
        RelBench(**{"source": tmp_path, **settings})


def spoil_key(shop):
    write(shop / "db" / "customer.parquet", {"id": [0, 1, 1]}, "id")


def spoil_metadata(shop):
    parquet.write_table(arrow.table({"id": [1]}), shop / "db" / "customer.parquet")


def spoil_table(shop):
    write(shop / "db" / "review.parquet", {"customer": [0]}, None, {"customer": "nobody"})


def spoil_names(shop):
    write(shop / "db" / "customer.parquet", {"id": [0]}, ["id"])


def spoil_type(shop):
    write(shop / "db" / "customer.parquet", {"id": [[0], [1]]}, "id")


def spoil_link(shop):
    (shop / "db" / "gone.parquet").symlink_to(shop / "nowhere")


def spoil_bytes(shop):
    (shop / "db" / "customer.parquet").write_bytes(b"PAR1 no PAR1")


def spoil_time(shop):
    write(shop / "db" / "customer.parquet", {"id": [0]}, "id", None, "since")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (spoil_key, r"'customer': the primary key 'id' has 0 empty entries and 2 different ones in 3 rows"),
        (spoil_metadata, r"customer\.parquet: the Parquet metadata does not say"),
        (spoil_table, r"names rows of 'nobody'; the tables are customer, product, review"),
        (spoil_names, r"'customer': its keys are \['id'\] and \{\}, its time None; names of columns"),
        (spoil_type, r"'customer': the primary key 'id' cannot be converted"),
        (spoil_link, r"gone\.parquet is missing"),
        (spoil_bytes, r"customer\.parquet cannot be read"),
        (spoil_time, r"'customer' has no column 'since'"),
    ],
)
def test_tables_that_cannot_be_are_named(shop, spoil, message):
    spoil(shop)
    with pytest.raises(DatasetError, match=message):
        RelBench(shop, root=shop / "converted").prepare()


@pytest.mark.parametrize(
    ("columns", "keys", "message"),
    [
        ({"who": [0], "a": [1], "b": [2]}, {"who": "customer"}, r"columns a, b beside its key and time"),
        ({"who": [0], "a": ["x"]}, {"who": "customer"}, r"target 'a' of the train table is text"),
        ({"who": [99], "a": [1]}, {"who": "customer"}, r"no row of the task's train table has an entity"),
        ({"who": [0], "what": ["a"]}, {"who": "customer", "what": "product"}, r"of which none hold lists"),
    ],
)
def test_tasks_that_cannot_be_are_named(shop, columns, keys, message):
    write(shop / "tasks" / "odd" / "train.parquet", columns, None, keys)
    with pytest.raises(DatasetError, match=message):
        RelBench(shop, "odd", root=shop / "converted").prepare()


def test_a_damaged_text_is_named(shop):
    ends, letters = np.array([0, 1, 2, 3], np.int32), b"a\xffb"
    texts = arrow.Array.from_buffers(arrow.string(), 3, [None, arrow.py_buffer(ends), arrow.py_buffer(letters)])
    write(shop / "db" / "customer.parquet", {"id": [0, 1, 2], "name": texts}, "id")
    with pytest.raises(DatasetError, match=r"customer\.parquet.*[Ii]nvalid UTF8"):
        made(shop)


def test_splits_of_other_columns_are_named(shop):
    write(shop / "tasks" / "churn" / "val.parquet", {"whom": [0], "churn": [1]}, None, {"whom": "customer"})
    with pytest.raises(DatasetError, match=r"the task's val table has no 'who'"):
        made(shop, task="churn")


def test_an_unknown_task_is_told_with_those_that_are_there(shop):
    with pytest.raises(DatasetError, match=r"The tasks there are: buys, churn\."):
        RelBench(shop, "chrun", root=shop / "converted").prepare()


def test_without_pyarrow_the_extra_is_named(shop, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    with pytest.raises(MissingExtraError, match=r"lightning-gnnload\[relbench\]"):
        RelBench(shop, root=shop / "converted").prepare()
