"""What is allowed but seldom meant is said, with an example; and what is in order is passed over."""

import warnings

import numpy as np
import pytest
import torch

from lightning_gnnload import Graph, GraphData, GraphDataModule, NeighborSampler, SeedTable
from lightning_gnnload.data import sanity as module
from lightning_gnnload.data.sanity import check_training_labels, sanity_issues
from lightning_gnnload.errors import GraphDataError

RING = Graph.from_coo(src=np.arange(10), dst=np.roll(np.arange(10), 1))


def texts(data: GraphData, mapped: bool = False) -> list[str]:
    return [oddity.text for oddity in sanity_issues(data, mapped=mapped)]


def test_nothing_is_said_of_data_in_order() -> None:
    y = torch.tensor([0.0, 1.0, float("nan")] + [0.0] * 7)  # a node without a label, which no split names
    assert texts(GraphData(RING, torch.zeros(10, 3), y, [0], [1], [9])) == []
    assert texts(GraphData(RING, torch.zeros(10, 3, dtype=torch.int8))) == []


def test_seeds_that_are_no_nodes_are_left_to_the_sampler() -> None:
    data = GraphData(RING, y=torch.zeros(10), train=[1, 2])
    data.train[:] = 10, -1
    assert texts(data) == []


def test_splits_that_overlap() -> None:
    assert texts(GraphData(RING, train=[5, 3, 1], val=[3, 1, 0], test=[2])) == [
        "the splits train and val share nodes, 2 in all, such as 1: what is measured on val was seen in train."
    ]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_features_that_are_no_numbers(value: float) -> None:
    x = torch.zeros(10, 2, 3)
    x[7, 1, 0] = x[9, 0, 0] = value
    (text,) = texts(GraphData(RING, x))
    assert text.startswith(
        f"features x[7, 3] is {value}, one of 2 such entries among those looked at: the loss will be NaN"
    )


def test_every_column_with_gaps_is_named_with_its_first_row() -> None:
    buys = ("user", "buys", "item")
    graph = Graph.from_hetero({"user": 2, "item": 3}, {buys: ([0, 1], [2, 0])}, keep_order=True)
    gaps = torch.tensor([[0.0, 1.0], [2.0, float("nan")], [float("inf"), 3.0]])
    data = GraphData(
        graph,
        {"user": torch.zeros(2, 4), "item": gaps},
        tables={"item": {"age": gaps[:, 1]}, "user": {"name": torch.zeros(2, dtype=torch.int8)}},
        edge_tables={buys: {"price": gaps[:2]}},
    )
    found = texts(data)
    assert [text.partition(":")[0].partition(",")[0] for text in found] == [
        "features x.item[1",
        "features age.item[1",
        "features edge.price.user__buys__item[1",
    ]
    assert found[0].startswith("features x.item[1, 1] is nan, one of 2 such entries")


def test_of_large_features_a_part_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.zeros(10, 4)
    x[8, 2] = float("nan")
    monkeypatch.setattr(module, "_MOST_BYTES", 5 * x[0].nbytes)
    assert texts(GraphData(RING, x))[0].startswith("features x[8, 2] is nan:")  # every second row
    monkeypatch.setattr(module, "_MOST_ROWS", 3)
    assert texts(GraphData(RING, x), mapped=True)[0].startswith("features x[8, 2] is nan:")  # every fourth
    x[8, 2], x[7, 0] = 0, float("nan")
    assert texts(GraphData(RING, x)) == []


def test_labels_that_are_no_numbers() -> None:
    y = torch.zeros(10, 2)
    y[4, 1] = float("nan")
    assert texts(GraphData(RING, y=y, train=[1], val=[2, 4])) == [
        "of 2 nodes to val on, 1 have no number as label, such as 4. Leave them out of the split, or of the loss."
    ]


def test_seeds_without_in_neighbours_and_lists_the_wrong_way_round() -> None:
    # Papers 1 to 9 cite paper 0: as CSC, nobody but 0 has neighbours; read as CSR, all have one.
    indptr, indices = np.array([0, 9, *[9] * 9]), np.arange(1, 10)
    (most,) = sanity_issues(GraphData(Graph.from_csc(indptr, indices), train=np.arange(10)), mapped=False)
    assert most.is_suspicious
    assert "alone, are 9 of 10 nodes to train on, though most of them have out-neighbours" in most.text
    assert most.text.endswith("take Graph.from_csr.")
    (few,) = sanity_issues(GraphData(Graph.from_csr(indptr, indices), train=np.arange(9), test=[9]), mapped=False)
    assert few == ("without in-neighbours, by their own features alone, are 1 of 9 nodes to train on.", False)


def test_edges_that_were_given_the_wrong_way_round() -> None:
    # Seeds 0 to 4 lead to 5 to 9; whoever meant that they hear of these has swapped the ends.
    seeds, others = np.repeat(np.arange(5), 2), np.tile(np.arange(5, 10), 2)
    (told,) = sanity_issues(GraphData(Graph.from_coo(seeds, others, 10), train=np.arange(5)), mapped=False)
    assert told.is_suspicious
    assert "An edge src -> dst carries features from src into dst" in told.text
    assert "Graph.from_coo(dst, src)" in told.text
    assert sanity_issues(GraphData(Graph.from_coo(others, seeds, 10), train=np.arange(5)), mapped=False) == []
    (lone,) = sanity_issues(GraphData(Graph.from_coo(seeds, others, 13), train=np.arange(10, 13)), mapped=False)
    assert "3 of 3 nodes to train on; if the graph was made of lists of out-neighbours" in lone.text


def test_features_wider_than_the_models_are_told_unless_it_is_as_wide() -> None:
    data = GraphData(RING, np.zeros((10, 2)))
    (told,) = sanity_issues(data, mapped=False, double=False)
    assert told.text.startswith("features x are float64, which a model in float32 does not take")
    assert sanity_issues(data, mapped=False, double=True) == []
    assert sanity_issues(GraphData(RING, np.zeros((10, 2), np.float32)), mapped=False, double=False) == []


def test_features_beyond_float32_are_told_where_the_model_computes_in_it() -> None:
    x = np.zeros((10, 2))
    x[4, 1] = -1e39
    issues = sanity_issues(GraphData(RING, x), mapped=False, double=False)
    assert any(issue.text.startswith("features x[4, 1] is -1e+39: the loss will be NaN") for issue in issues)
    assert sanity_issues(GraphData(RING, x), mapped=False, double=True) == []


def test_a_label_to_train_on_that_is_infinite() -> None:
    data = GraphData(RING, y=torch.tensor([0.0, float("inf")] + [0.0] * 8), train=[0, 1])
    with pytest.raises(GraphDataError, match="of 2 seeds to train on, 1 have a label that is none, first node 1 with"):
        check_training_labels(data)


def test_a_data_module_says_it_once() -> None:
    data = GraphDataModule(GraphData(RING, train=[0, 1], val=[1]), NeighborSampler([2]))
    with pytest.warns(UserWarning, match="GraphDataModule: the splits train and val share nodes, 1 in all") as said:
        data.train_dataloader(), data.val_dataloader(), data.train_dataloader()
    assert len(said) == 1


JOINED = 10 * np.arange(12)
"""When users came, each of whom buys from then on."""


def timed_users() -> Graph:
    buys, back = ("user", "buys", "item"), ("item", "rev_buys", "user")
    ends, times = (np.repeat(np.arange(12), 5), np.tile(np.arange(5), 12)), np.repeat(JOINED, 5) + 1
    return Graph.from_hetero(
        {"user": 12, "item": 5},
        {buys: ends, back: ends[::-1]},
        edge_time={buys: times, back: times},
        node_time={"user": JOINED},
    )


@pytest.mark.parametrize("train", [{"user": np.arange(8)}, SeedTable(np.arange(8), node_type="user")])
def test_seeds_as_of_their_nodes_times_are_told_with_the_remedy(train) -> None:
    module = GraphDataModule(GraphData(timed_users(), train=train, val={"user": [9]}), NeighborSampler([2]))
    with pytest.warns(
        UserWarning, match=r"8 of 8 see no edge that has a time, and 0 of 40.*time: COLUMN.*before: null"
    ):
        module.train_dataloader()
    with pytest.warns(UserWarning, match=r"the seeds to val on have no times of their own.* 1 of 1 see no edge"):
        module.val_dataloader()


def test_seeds_that_are_predicted_are_told_as_well() -> None:
    table = SeedTable(np.arange(8), node_type="user", time=[200] * 8)
    module = GraphDataModule(GraphData(timed_users(), train=table), NeighborSampler([2]), predict={"user": [3, 4]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        module.train_dataloader()
    with pytest.warns(UserWarning, match="the seeds to predict on have no times of their own"):
        module.predict_dataloader()


def test_a_row_before_the_earliest_edge_has_a_batch_and_a_warning() -> None:
    graph = Graph.from_coo([1], [0], edge_time=[26])
    data = GraphData(graph, train=SeedTable([0], time=[30]), val=SeedTable([0], time=[25]))
    module = GraphDataModule(data, NeighborSampler([2]), batch_size=1)
    with pytest.warns(UserWarning, match="the seeds to val on: 1 of 1 see no edge that has a time: all come before 26"):
        (batch,) = module.val_dataloader()
    assert batch.nodes.tolist() == [0]
    assert [batch.nodes.tolist() for batch in module.train_dataloader()] == [[0, 1]]


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32, np.uint64])
def test_labels_without_a_sign_are_classes(dtype: type) -> None:
    # Torch compares none of them.
    graph = Graph.from_coo([0, 1], [1, 2])
    table = SeedTable(src=[0, 1], dst=[1, 2], y=np.array([0, 1], dtype), weight=np.array([1, 2], dtype))
    for train, y in ((table, None), ([0, 1], np.array([0, 1, 7], dtype))):
        data = GraphData(graph, y=y, train=train)
        check_training_labels(data)
        assert data.num_classes == 2
