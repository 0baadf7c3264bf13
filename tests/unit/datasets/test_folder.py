"""GraphFolder: a path stands for the graph folder that it names, and what is none is told with what would be one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lightning_gnnload import (
    GraphData,
    GraphDataModule,
    GraphFolder,
    NeighborSampler,
    SeedTable,
    partition_graph,
    save_features,
    save_graph_data,
)
from lightning_gnnload.data.task import Task
from lightning_gnnload.errors import DatasetError, GraphDataError, LoaderConfigError, SeedError
from tests.unit.toy import content, toy_data, toy_graph
from tests.unit.typed import NODES, typed_graph


def module(data: Any, **settings: Any) -> GraphDataModule:
    return GraphDataModule(data, NeighborSampler([3], expand="new"), batch_size=16, num_threads=0, **settings)


def two_tasks() -> GraphData:
    tasks = {
        "churn": Task({"train": SeedTable([3, 4], y=[0, 1])}, num_classes=2, class_names=("stays", "leaves")),
        "spend": Task({"train": SeedTable([5, 6, 7], y=[0.5, 1.0, 2.0])}),
    }
    return GraphData(toy_graph(), toy_data().x, tasks=tasks)


@pytest.mark.parametrize("kind", [str, Path, GraphFolder])
def test_a_path_gives_the_batches_of_the_data_that_it_was_written_of(tmp_path: Path, kind: Any) -> None:
    save_graph_data(toy_data(), tmp_path / "graph")
    made, wanted = module(kind(tmp_path / "graph")), module(toy_data())
    made.prepare_data()
    made.setup("fit")
    assert [content(batch) for batch in made.train_dataloader()] == [
        content(batch) for batch in wanted.train_dataloader()
    ]


def test_features_may_be_read_from_disk(tmp_path: Path) -> None:
    save_graph_data(toy_data(), tmp_path / "graph")
    assert type(GraphFolder(tmp_path / "graph", features="disk").load().x).__name__ == "DiskFeatureStore"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("nowhere", r"nowhere is no folder.*`gnnload build`.*save_graph_data"),
        ("Debain", "is no folder.*The data set Debian has a similar name"),
        ("my.own.Data", "is no folder.*cannot be imported"),
        ("file", "file is a file, not a folder"),
        ("empty", r"empty is not a graph folder: it has no manifest\.json.*gnnload build"),
        ("bolt", r"it has no manifest\.json.*GraphBolt\(folder\)"),
        ("parts", r'parts is a partition.*partition="parts" \(--data.partition parts\)'),
        ("features", "features holds features alone"),
    ],
)
def test_what_is_no_graph_folder_is_told_with_what_would_be_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    for folder in ("empty", "bolt"):
        Path(folder).mkdir()
    Path("bolt/metadata.yaml").touch()
    partition_graph(toy_data(), "parts", 2, "random", hops=1)
    save_features(torch.ones(3, 2), "features")
    for call in (module(name).prepare_data, module(name).setup, lambda: module(name).num_features):
        with pytest.raises(DatasetError, match=told):
            call()


@pytest.mark.parametrize("is_saved", [False, True])
def test_a_task_is_chosen_by_its_name(tmp_path: Path, is_saved: bool) -> None:
    data: Any = two_tasks()
    if is_saved:
        save_graph_data(data, tmp_path / "graph")
        data = tmp_path / "graph"
    churn = module(data, task="churn")
    churn.setup("fit")
    assert churn.graph_data.train.tolist() == [3, 4]
    assert churn.num_classes == 2
    assert module(data, task="spend").known_data().train.tolist() == [5, 6, 7]
    with pytest.raises(GraphDataError, match="there is no task 'chrun'; the tasks are churn, spend"):
        module(data, task="chrun").known_data()
    undecided = module(data)
    undecided.setup("fit")
    with pytest.raises(SeedError, match=r"a task is chosen, of churn, spend: give .*task=NAME \(--data.task NAME\)"):
        undecided.train_dataloader()


def test_sizes_are_known_before_the_setup(tmp_path: Path) -> None:
    save_graph_data(toy_data(), tmp_path / "plain")
    plain = module(tmp_path / "plain")
    assert (plain.num_features, plain.num_classes, plain.node_types, plain.edge_types) == (5, 7, (), ())
    graph = typed_graph()
    x = {"paper": np.ones((NODES["paper"], 3), np.float32), "author": np.ones((NODES["author"], 2), np.float32)}
    save_graph_data(GraphData(graph, x=x), tmp_path / "typed")
    typed = module(tmp_path / "typed")
    assert graph.types is not None
    assert typed.num_features == {"paper": 3, "author": 2}
    assert typed.node_types == graph.types.node_types
    assert typed.edge_types == graph.types.edge_types
    assert len(module(tmp_path / "typed", predict="author").known_data().graph.types.range_of("author")) == 20


def test_nodes_of_a_type_are_predicted_by_its_name() -> None:
    data = GraphData(typed_graph())
    assert module(data, predict="author").workload("predict").seeds.tolist() == list(range(30, 50))
    with pytest.raises(
        LoaderConfigError, match=r"predict='autor' is not known.*train, val, test, predict, paper, author"
    ):
        module(data, predict="autor").workload("predict")
