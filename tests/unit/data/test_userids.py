"""User ids: numbers and texts, taken by row and found again; what cannot be ids is refused by name."""

import numpy as np
import pytest
import torch

from lightning_gnnload import Graph, GraphData, SeedTable, Task, UserIds, load_graph_data, save_graph_data
from lightning_gnnload.errors import GraphDataError, StoreFormatError

NAMES = ["ann", "", "müller", "日本", "x" * 300]


def graph() -> Graph:
    return Graph.from_coo([0, 1, 2, 3], [1, 2, 3, 4], num_nodes=5)


@pytest.mark.parametrize("ids", [NAMES, [7, -3, 2**62, 0, 1]], ids=["texts", "numbers"])
def test_ids_are_taken_and_found_again(ids):
    held = UserIds.of(ids, column="who")
    rows = np.array([4, 0, 0, 2])
    assert held.take(rows).tolist() == [ids[row] for row in rows]
    assert held.rows_of([ids[row] for row in rows]).tolist() == rows.tolist()
    assert held.take([]).tolist() == []


@pytest.mark.parametrize(
    ("ids", "told"),
    [
        (["a", 1], "int, str"),
        (["a", "b", "a"], "'a' names several"),
        ([1.5], "float"),
        ("abc", "a str is given"),
        ([2**70], "64 bits"),
    ],
    ids=["mixed", "repeated", "floats", "one text", "too large"],
)
def test_what_cannot_be_ids_is_refused_by_name(ids, told):
    with pytest.raises(GraphDataError, match=told):
        UserIds.of(ids)


def test_rows_and_offsets_are_checked_before_they_index_memory():
    held = UserIds.of(NAMES)
    for rows in ([5], [-1]):
        with pytest.raises(GraphDataError, match=r"\[0, 5\)"):
            held.take(rows)
    for offsets in ([0, 9, 3], [0, -2, 3]):  # the ends are right, what lies between is not
        damaged = UserIds(np.zeros(3, np.uint8), offsets=np.array(offsets))
        with pytest.raises(GraphDataError, match="damaged"):
            damaged.take([0, 1])
    with pytest.raises(GraphDataError, match="2 of 3 ids are unknown, the first is 'zoe'"):
        held.rows_of(["ann", "zoe", "yan"])


def test_ids_of_another_number_or_type_are_refused():
    with pytest.raises(GraphDataError, match="2 ids for 5 nodes"):
        GraphData(graph(), user_ids=[1, 2])
    typed = Graph.from_hetero({"a": 1, "b": 2}, {("a", "to", "b"): ([0], [1])})
    with pytest.raises(GraphDataError, match="dict by node type"):
        GraphData(typed, user_ids=[1, 2, 3])
    with pytest.raises(GraphDataError, match="'c'"):
        GraphData(typed, user_ids={"c": [1]})
    assert GraphData(typed, user_ids={"b": ["x", "y"]}).user_ids["b"].take([1]).tolist() == ["y"]


def tasks() -> dict[str, Task]:
    return {
        "churn": Task({"train": SeedTable([1, 1], y=[0, 1]), "test": SeedTable([3], y=[1])}, 2, ("stays", "goes")),
        "spend": Task({"train": SeedTable([4], y=[2.5])}),
    }


@pytest.mark.parametrize("ids", [NAMES, [7, -3, 2**62, 0, 1]], ids=["texts", "numbers"])
def test_a_folder_keeps_ids_and_tasks(tmp_path, ids):
    data = GraphData(graph(), user_ids=UserIds.of(ids, column="who"), tasks=tasks())
    save_graph_data(data, tmp_path / "once")
    save_graph_data(
        load_graph_data(tmp_path / "once", task="spend"), tmp_path / "twice"
    )  # what was loaded is all there
    for folder, chosen in (("once", None), ("twice", "spend")):
        loaded = load_graph_data(tmp_path / folder, verify=True)
        assert loaded.task == chosen
        assert loaded.user_ids[""].take(range(5)).tolist() == ids
        assert loaded.user_ids[""].column == "who"
        churn = loaded.with_task("churn")
        assert (churn.class_names, churn.num_classes, churn.train.tolist()) == (("stays", "goes"), 2, [1])
        assert churn.table("train").y.tolist() == [0, 1]
        assert churn.val.tolist() == []
        assert loaded.with_task("spend").table("train").y.tolist() == [2.5]
        with pytest.raises(GraphDataError, match=r"no task 'chrn'; the tasks are churn, spend"):
            loaded.with_task("chrn")


def test_a_single_task_is_taken_by_itself(tmp_path):
    save_graph_data(GraphData(graph(), tasks={"churn": tasks()["churn"]}), tmp_path / "data")
    loaded = load_graph_data(tmp_path / "data")
    assert (loaded.task, loaded.test.tolist()) == ("churn", [3])
    assert "task='churn'" in repr(loaded)


def test_a_task_whose_rows_are_no_nodes_is_refused(tmp_path):
    data = GraphData(graph(), y=torch.zeros(5), tasks={"all": Task({"train": SeedTable([5])})})
    with pytest.raises(GraphDataError, match=r"nodes\[0\] is 5"):
        data.with_task("all")
    save_graph_data(data, tmp_path / "data")
    with pytest.raises(StoreFormatError, match="broken"):
        load_graph_data(tmp_path / "data")


def test_class_names_are_the_classes():
    data = GraphData(graph(), y=[0, 1, 0, 1, 0], train=[0, 1], class_names=["no", "yes", "maybe"])
    assert data.num_classes == 3
    with pytest.raises(GraphDataError, match="2 names for 3 classes"):
        GraphData(graph(), num_classes=3, class_names=["no", "yes"])
