"""RelBench's own objects: its database, its tasks, and its graph, which ours must equal."""

import random
import warnings

import numpy as np
import pytest
import torch

from lightning_gnnload import RelBench
from lightning_gnnload.errors import DatasetError
from tests.unit.datasets.test_relbench import edges_of

pytest.importorskip("relbench", reason="relbench is not installed")


@pytest.fixture
def shop(tmp_path):
    from relbench.datasets.fake import FakeDataset

    random.seed(0)
    np.random.seed(0)
    dataset = FakeDataset()
    dataset.cache_dir = tmp_path  # else it makes another database for each question
    return dataset


def loaded(*args, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return RelBench(*args, **settings).load()


def test_the_graph_is_that_of_relbench(shop) -> None:
    pytest.importorskip("torch_frame", reason="pytorch-frame is not installed")
    from relbench.modeling.graph import make_pkey_fkey_graph
    from torch_frame import stype

    db = shop.get_db()
    theirs, _ = make_pkey_fkey_graph(
        db,
        {
            "product": {"price": stype.numerical},
            "customer": {"age": stype.numerical},
            "review": {"rating": stype.numerical, "review_time": stype.timestamp},
            "relations": {},
        },
    )
    ours = loaded(db)
    assert sorted(ours.graph.types.edge_types) == sorted(theirs.edge_types)
    for kind in theirs.edge_types:
        pairs = zip(*theirs[kind].edge_index.tolist(), strict=True)
        assert edges_of(ours.graph, kind) == sorted(pairs)
    reviews = ours.graph.types.range_of("review")
    # From pandas 3 on, whose dates count microseconds, RelBench's own seconds are a thousandth of what they should be.
    since = db.table_dict["review"].df["review_time"].to_numpy().astype("datetime64[s]").astype(np.int64)
    assert np.array_equal(ours.graph.node_time[reviews.start : reviews.stop], since)
    age = theirs["customer"].tf.feat_dict[stype.numerical][:, 0]
    assert torch.equal(ours.tables["age.customer"].store.rows.view(-1).float(), age)


def seconds(table) -> list[int]:
    return table.df[table.time_col].to_numpy().astype("datetime64[s]").astype(np.int64).tolist()


def test_an_entity_task_has_relbenchs_rows(shop, tmp_path) -> None:
    from relbench.modeling.graph import get_node_train_table_input
    from relbench.tasks.amazon import UserChurnTask

    task = UserChurnTask(shop, tmp_path / "tasks" / "churn")
    data = loaded(shop.get_db(), task)
    for split in ("train", "val"):
        table = task.get_table(split)
        theirs = get_node_train_table_input(table, task)
        ours = data.table(split)
        assert ours.node_type == theirs.nodes[0]
        assert ours.ends[:, 0].tolist() == theirs.nodes[1].tolist()
        assert ours.time.tolist() == seconds(table)
        assert ours.y.tolist() == theirs.target.tolist()
    assert len(data.table("test")) == len(task.get_table("test").df)


def test_a_recommendation_has_relbenchs_rows(shop, tmp_path) -> None:
    from relbench.modeling.graph import get_link_train_table_input
    from relbench.tasks.amazon import UserItemPurchaseTask

    task = UserItemPurchaseTask(shop, tmp_path / "tasks" / "purchase")
    ours = loaded(shop.get_db(), task).table("train")
    table = task.get_table("train")
    theirs = get_link_train_table_input(table, task)
    assert ours.edge_type == ("customer", "links", "product")
    assert ours.ends[:, 0].tolist() == theirs.src_nodes[1].tolist()
    assert ours.time.tolist() == seconds(table)
    assert ours.dst_ptr.tolist() == theirs.dst_nodes[1].crow_indices().tolist()
    columns = theirs.dst_nodes[1].col_indices().tolist()
    for row, (low, high) in enumerate(zip(ours.dst_ptr[:-1], ours.dst_ptr[1:], strict=True)):
        assert sorted(ours.targets[low:high].tolist()) == columns[low:high], row


def test_a_folder_that_relbench_wrote_gives_the_same_data(shop, tmp_path) -> None:
    from relbench.tasks.amazon import UserChurnTask

    task = UserChurnTask(shop, tmp_path / "tasks" / "user-churn")
    of_objects = loaded(shop.get_db(), task)
    dataset = RelBench(tmp_path, "user-churn", root=tmp_path / "converted")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dataset.prepare()
    of_files = dataset.load()
    assert of_files.graph.types == of_objects.graph.types
    assert np.array_equal(of_files.graph.indices, of_objects.graph.indices)
    assert sorted(of_files.tables) == sorted(of_objects.tables)
    for name, table in of_objects.tables.items():
        assert torch.equal(of_files.tables[name].store.rows, table.store.rows)
    for split in ("train", "val", "test"):
        assert np.array_equal(of_files.table(split).time, of_objects.table(split).time)
        assert torch.equal(of_files.table(split).y, of_objects.table(split).y)


def test_a_column_to_complete_keeps_all_rows(shop) -> None:
    from relbench.base import AutoCompleteTask, TaskType

    task = AutoCompleteTask(shop, TaskType.REGRESSION, entity_table="review", target_col="rating")
    data = loaded(shop.get_db(upto_test_timestamp=False), task)
    assert "rating.review" not in data.tables
    told = AutoCompleteTask(
        shop, TaskType.REGRESSION, "review", "rating", remove_columns=[("product", "price"), ("review", "review")]
    )
    shop.remove_columns = []  # as of a database that was made before the task
    shop.get_db.cache_clear()
    tables = loaded(shop.get_db(upto_test_timestamp=False), told).tables
    assert not {"review.review", "price.product"} & tables.keys()
    assert len(data.graph.types.range_of("review")) == 600


def test_a_task_by_name_needs_a_folder(shop) -> None:
    with pytest.raises(DatasetError, match=r"'user-churn' is a name, but a database has no tasks by name"):
        RelBench(shop.get_db(), "user-churn")
