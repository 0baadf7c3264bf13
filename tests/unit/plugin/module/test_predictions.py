"""PredictionWriter: each row is that of its seed, whatever the order, the format, the ids and the number of ranks."""

from __future__ import annotations

import os
import signal
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from pytorch_lightning import LightningModule
from torch.utils.data import DataLoader

from lightning_gnnload import (
    Graph,
    GraphData,
    GraphDataModule,
    NeighborSampler,
    PredictionWriter,
    SeedTable,
    UserIds,
    load_graph_data,
    save_graph_data,
)
from lightning_gnnload.data.task import Task
from lightning_gnnload.errors import LoaderConfigError, OutputError, StoreFormatError
from lightning_gnnload.pipeline.loader import SampledLoader
from lightning_gnnload.plugin.module.predictions import _write_rows
from lightning_gnnload.storage.output import private_file
from tests.integration.learnable import quiet_trainer
from tests.unit.toy import toy_data, toy_graph
from tests.unit.typed import NODES, typed_graph

NAMES = UserIds.of([f"user {n}" for n in range(300)], column="user_id")


class Predicts(LightningModule):
    def __init__(self, predict: Any) -> None:
        super().__init__()
        self.predict = predict

    def predict_step(self, batch: Any) -> Any:
        return self.predict(batch)


def predicted(path: Path, step: Any, data: GraphData | None = None, **settings: Any) -> dict[str, np.ndarray]:
    sampler = settings.pop("sampler", NeighborSampler([3], expand="new"))
    module = GraphDataModule(data or toy_data(), sampler, batch_size=7, **settings)
    quiet_trainer(callbacks=[PredictionWriter(path)]).predict(Predicts(step), module, return_predictions=False)
    return read(path)


def read(path: Path) -> dict[str, np.ndarray]:
    if path.suffix == ".npz":
        return dict(np.load(path, allow_pickle=False))
    import pyarrow.parquet as parquet

    table = parquet.read_table(path)
    return {name: np.array(table[name].to_pylist()) for name in table.column_names}


@pytest.mark.parametrize(("place", "told"), [("folder.npz", "is a folder"), ("file/it.npz", "is no folder")])
def test_a_place_that_cannot_be_written_is_told_before_the_work(tmp_path: Path, place: str, told: str) -> None:
    (tmp_path / "folder.npz").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises((OutputError, StoreFormatError), match=told):
        predicted(tmp_path / place, lambda batch: pytest.fail("a batch was predicted"))


@pytest.mark.parametrize("ids", ["all", "train", [7, 3, 299, 12, 0, 5, 80, 2]])
def test_rows_are_those_of_the_nodes_in_the_order_asked_for(tmp_path: Path, ids: Any) -> None:
    def predict(batch: Any) -> dict[str, torch.Tensor]:
        own = batch.seeds
        return {"twice": 2 * own[:, None].bfloat16(), "label": batch.y, "view": batch.x[: len(own)]}

    found = predicted(tmp_path / "new" / "out.npz", predict, predict=ids)
    wanted = {"all": np.arange(300), "train": np.arange(300)[::-1][:100]}.get(ids if isinstance(ids, str) else "", ids)
    assert found["node"].tolist() == list(wanted)
    assert np.array_equal(found["twice"][:, 0], (2 * torch.as_tensor(found["node"])).bfloat16().float())
    assert np.array_equal(found["label"], found["node"] % 7)
    assert np.array_equal(found["view"][:, 0], found["node"])  # not of a slot that was used again
    assert [file.name for file in (tmp_path / "new").iterdir()] == ["out.npz"]


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
@pytest.mark.parametrize("ids", [NAMES, UserIds.of(range(10**12, 10**12 + 300), column="user_id")])
def test_the_users_ids_stand_beside_predictions_in_a_column_of_their_name(
    tmp_path: Path, suffix: str, ids: UserIds
) -> None:
    data = GraphData(toy_graph(), toy_data().x, user_ids=ids, class_names=list("abcdefg"), num_classes=7)
    asked = [7, 3, 299, 12, 0, 5, 80, 2]

    def predict(batch: Any) -> torch.Tensor:
        return torch.nn.functional.one_hot(batch.seeds % 7, 7).float()

    found = predicted(tmp_path / f"out{suffix}", predict, data, predict=asked)
    named = [f"p_{name}" for name in "abcdefg"]
    assert list(found) == ["user_id", *(["prediction"] if suffix == ".npz" else named), "class"]
    assert found["user_id"].tolist() == ids.take(asked).tolist()
    scores = found["prediction"] if suffix == ".npz" else np.stack([found[name] for name in named], axis=1)
    assert scores.argmax(1).tolist() == [node % 7 for node in asked]
    assert found["class"].tolist() == ["abcdefg"[node % 7] for node in asked]


def test_classes_are_named_only_where_each_has_a_number(tmp_path: Path) -> None:
    data = GraphData(toy_graph(), toy_data().x, class_names=["a", "b"], num_classes=2)
    assert "class" not in predicted(tmp_path / "out.npz", lambda batch: batch.x[: batch.num_seeds], data)
    assert "class" not in predicted(tmp_path / "out.npz", lambda batch: batch.seeds, data)
    logits = predicted(tmp_path / "out.npz", lambda batch: {"logit": torch.zeros(batch.num_seeds, 2)}, data)
    assert list(logits) == ["node", "logit"]


def typed_data(**settings: Any) -> GraphData:
    return GraphData(typed_graph(), x={name: torch.ones(size, 2) for name, size in NODES.items()}, **settings)


def count(batch: Any) -> Any:
    if isinstance(batch.num_seeds, int):
        return torch.arange(batch.num_seeds)
    return {name: 100 * k + ids for k, (name, ids) in enumerate(batch.seeds.items())}


def test_nodes_of_several_types_have_their_type_beside_them(tmp_path: Path) -> None:
    papers = UserIds.of([f"p{n}" for n in range(NODES["paper"])], column="doi")
    data = typed_data(user_ids={"paper": papers})
    one = predicted(tmp_path / "out.npz", count, data, predict={"paper": [4, 2]})
    assert {name: rows.tolist() for name, rows in one.items()} == {"doi": ["p4", "p2"], "prediction": [4, 2]}
    both = predicted(tmp_path / "out.parquet", count, data, predict=[4, 31, 2])
    assert list(both) == ["node_type", "node", "prediction"]
    assert both["node_type"].tolist() == ["paper", "author", "paper"]
    assert both["node"].tolist() == ["p4", "1", "p2"]  # within the type, as no ids of authors are known
    assert both["prediction"].tolist() == [4, 101, 2]  # though the model gave papers first
    joined = predicted(
        tmp_path / "out.npz", lambda batch: torch.cat([*count(batch).values()]), data, predict=[4, 31, 2]
    )
    assert joined["prediction"].tolist() == [4, 101, 2]
    plain = predicted(tmp_path / "out.npz", count, typed_data(), predict={"paper": [4], "author": [1]})
    assert plain["node"].tolist() == [4, 1]


def test_rows_by_node_type_are_those_of_the_seeds(tmp_path: Path) -> None:
    with pytest.raises(
        LoaderConfigError, match=r"by node type, \{'paper': \[2\]\}.*seeds are \{'paper': 2, 'author': 1\}"
    ):
        predicted(tmp_path / "out.npz", lambda batch: {"paper": torch.ones(2)}, typed_data(), predict=[4, 31, 2])


def test_rows_of_a_table_have_their_number_node_and_time(tmp_path: Path) -> None:
    data = GraphData(toy_graph(), toy_data().x, user_ids=NAMES)
    table = SeedTable([7, 7, 3], time=[30, 20, 40], y=[0, 1, 0])
    sampler = NeighborSampler([3], sharing="disjoint", before=None)
    found = predicted(tmp_path / "out.parquet", lambda batch: batch.y.double(), data, predict=table, sampler=sampler)
    assert {name: rows.tolist() for name, rows in found.items()} == {
        "row": [0, 1, 2],
        "user_id": ["user 7", "user 7", "user 3"],
        "time": [30, 20, 40],
        "prediction": [0.0, 1.0, 0.0],
    }


@pytest.mark.parametrize(
    ("times", "kind"),
    [
        (np.array(["2024-07-01", "2024-07-02"], "M8[D]"), "date32[day]"),
        ([datetime(2024, 7, 1, 12), datetime(2024, 7, 2)], "timestamp[us]"),
        (np.array(["2024-07-01T12", "2024-07-02"], "M8[ns]"), "timestamp[ns]"),
        (
            pd.Series(pd.to_datetime(["2024-07-01 12:00", "2024-07-02 00:00"]).tz_localize("Europe/Berlin")),
            ", tz=Europe/Berlin]",
        ),
        ([1_719_000_000, 1_719_000_001], "int64"),
    ],
)
def test_times_come_back_as_they_were_given(tmp_path: Path, times: Any, kind: str) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    data = GraphData(toy_graph(), train=SeedTable([5, 9], time=times))
    save_graph_data(data, tmp_path / "graph")
    data = load_graph_data(tmp_path / "graph")
    wanted = [each.to_pydatetime() for each in times] if isinstance(times, pd.Series) else np.array(times).tolist()
    path = tmp_path / "rows.parquet"
    predicted(path, lambda batch: torch.zeros(len(batch.seeds)), data, predict="train")
    column = parquet.read_table(path)["time"]
    assert str(column.type).endswith(kind)
    found = column.to_pylist()
    assert [getattr(each, "value", each) for each in found] == wanted  # of nanoseconds, pandas' and NumPy's numbers
    path = tmp_path / "rows.npz"
    column = predicted(path, lambda batch: torch.zeros(len(batch.seeds)), data, predict="train")["time"]
    assert column.dtype.kind == ("i" if kind == "int64" else "M")
    assert np.array_equal(
        column.astype("M8[ns]").view(np.int64) if column.dtype.kind == "M" else column, data.table("train").time
    )


def test_links_have_the_ids_of_both_ends(tmp_path: Path) -> None:
    papers = UserIds.of([f"p{n}" for n in range(NODES["paper"])], column="doi")
    table = SeedTable(src=[1, 5], dst=[9, 2], edge_type=("author", "writes", "paper"), y=[0, 1])
    data = typed_data(user_ids={"paper": papers}, train=table)
    found = predicted(tmp_path / "out.npz", lambda batch: torch.ones(2), data, predict="train")
    assert {name: rows.tolist() for name, rows in found.items()} == {
        "row": [0, 1],
        "src": [1, 5],
        "dst": ["p9", "p2"],
        "prediction": [1.0, 1.0],
    }


def test_links_of_several_types_are_told_apart(tmp_path: Path) -> None:
    tables = {
        ("author", "writes", "paper"): SeedTable(src=[1, 5], dst=[9, 2]),
        ("author", "knows", "author"): SeedTable(src=[3], dst=[4]),
    }
    found = predicted(tmp_path / "out.npz", lambda batch: torch.ones(3), typed_data(), predict=tables)
    assert found["row"].tolist() == [0, 1, 2]
    assert found["edge_type"].tolist() == ["author__writes__paper"] * 2 + ["author__knows__author"]
    assert (found["src"].tolist(), found["dst"].tolist()) == ([1, 5, 3], [9, 2, 4])


def test_of_several_targets_the_one_is_named_that_was_predicted(tmp_path: Path) -> None:
    table = SeedTable(src=np.arange(40), dst=np.arange(80) + 100, dst_ptr=np.arange(41) * 2)
    drawn: list[torch.Tensor] = []

    def predict(batch: Any) -> torch.Tensor:
        drawn.append(batch.seeds[batch.seed_columns["dst"].long()].clone())
        return torch.ones(len(batch.seed_columns["input_id"]))

    found = predicted(tmp_path / "out.npz", predict, GraphData(toy_graph(), toy_data().x), predict=table)
    assert found["dst"].tolist() == torch.cat(drawn).tolist()
    assert set((found["dst"] - 100) % 2) == {0, 1}  # not the first of each alone


@pytest.mark.parametrize("column", ["row", "prediction", "node_type"])
def test_a_column_of_results_is_not_taken_by_ids_of_its_name(tmp_path: Path, column: str) -> None:
    ids = UserIds.of(range(300), column=column)
    assert list(predicted(tmp_path / "out.npz", count, GraphData(toy_graph(), user_ids=ids))) == ["node", "prediction"]


@pytest.mark.parametrize("suffix", [".npz", ".npy", ".parquet"])
def test_ranks_are_joined_in_the_order_of_one(tmp_path: Path, suffix: str) -> None:
    data = GraphDataModule(
        GraphData(toy_graph(), user_ids=UserIds.of(range(1000, 1300), column="key")), NeighborSampler([3]), batch_size=7
    )
    source, path = data.source("predict"), tmp_path / f"out{suffix}"
    writers = [PredictionWriter(path) for _ in range(3)]
    for rank in (2, 1, 0):  # rank 0 joins what the others have written
        loader = SampledLoader(source, num_ranks=3, rank=rank, num_threads=0)
        trainer: Any = SimpleNamespace(
            predict_dataloaders=loader,
            global_rank=rank,
            world_size=3,
            is_global_zero=rank == 0,
            received_sigterm=False,
            strategy=SimpleNamespace(barrier=lambda name: None),
        )
        writers[rank].on_predict_epoch_start(trainer, None)
        for step, batch in enumerate(loader):
            writers[rank].on_predict_batch_end(trainer, None, batch.seeds * 10, batch, step)
        writers[rank].on_predict_epoch_end(trainer, None)
    found = {"key": np.load(tmp_path / "out.key.npy"), "prediction": np.load(path)} if suffix == ".npy" else read(path)
    assert found["key"].tolist() == list(range(1000, 1300))
    assert np.array_equal(found["prediction"], (found["key"] - 1000) * 10)
    assert all(file.suffix == suffix for file in tmp_path.iterdir())
    # Told to end while it joins them, it removes those of ranks that are done, too.
    for rank in range(3):
        writers[0]._part_path(rank).touch()
    trainer.received_sigterm = True
    _write_rows(whole := private_file(writers[0]._part_path(1)), 0, {"prediction": np.zeros(2)})
    whole.close()
    before = path.read_bytes()
    with pytest.raises(SystemExit) as ended:
        writers[0].on_predict_epoch_end(trainer, None)
    assert ended.value.code == 143
    assert path.read_bytes() == before
    assert all(file.suffix == suffix for file in tmp_path.iterdir())
    trainer.world_size, trainer.global_rank = 4, 3
    with pytest.raises(LoaderConfigError, match=r"\.rank0 is not there.*folder that all machines share"):
        writers[0].on_predict_epoch_end(trainer, None)


@pytest.mark.parametrize(
    ("predict", "message"),
    [
        (lambda batch: batch.x, r"predict_step returned \[\d+, 5\] as 'prediction' for 7 seeds.*a row for each seed"),
        (lambda batch: [1] * 7, r"predict_step returned list as 'prediction'"),
        (lambda batch: {"node": batch.seeds}, r"none of which is named 'node'"),
        (lambda batch: None, r"predict_step returned NoneType"),
    ],
)
def test_what_has_no_row_a_seed_is_refused_and_leaves_no_file(tmp_path: Path, predict: Any, message: str) -> None:
    with pytest.raises(LoaderConfigError, match=message):
        predicted(tmp_path / "out.npz", predict)
    assert not list(tmp_path.iterdir())


def test_sigterm_ends_it_and_leaves_no_file(tmp_path: Path) -> None:
    """Lightning looks for the signal in no loop that predicts."""
    steps = []

    def predict(batch: Any) -> torch.Tensor:
        steps.append(batch)
        os.kill(os.getpid(), signal.SIGTERM)
        return batch.seeds

    with pytest.raises(SystemExit) as ended:
        predicted(tmp_path / "out.npz", predict)
    assert ended.value.code == 143
    assert len(steps) == 1
    assert not list(tmp_path.iterdir())


def test_other_loaders_are_refused(tmp_path: Path) -> None:
    trainer = quiet_trainer(callbacks=[PredictionWriter(tmp_path / "out.npz")])
    with pytest.raises(LoaderConfigError, match="predict loader 0 is a DataLoader"):
        trainer.predict(Predicts(lambda batch: batch), DataLoader(torch.arange(4)))


def test_numbers_of_a_graph_need_no_ids(tmp_path: Path) -> None:
    graph = Graph.from_coo([0, 1], [1, 2])
    found = predicted(tmp_path / "out.npz", count, GraphData(graph), predict=[2])
    assert found["node"].tolist() == [2]


def test_a_full_disk_is_told_with_the_name_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError("512 requested and 0 written")  # as NumPy has it

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(OutputError, match=r"out\.npz\.rank0 cannot be written: 512 requested.*disk with room"):
        predicted(tmp_path / "out.npz", lambda batch: batch.x[: len(batch.seeds)])
    assert not list(tmp_path.iterdir())


def test_numbers_are_named_by_their_labels_and_a_name_that_is_taken_is_not_taken_again(tmp_path: Path) -> None:
    def rows(label_names: Any, width: int) -> list[str]:
        ids = UserIds.of(range(300), column="spend")
        task = Task({"train": SeedTable([3, 4], y=np.zeros((2, width)))}, label_names=label_names)
        data = GraphData(toy_graph(), toy_data().x, user_ids=ids, tasks={"t": task}).with_task("t")
        step = lambda batch: batch.x[: batch.num_seeds, :width] if width > 1 else batch.x[: batch.num_seeds, 0]  # noqa: E731
        return list(predicted(tmp_path / "out.parquet", step, data, predict=[7, 3]))

    assert rows(("visits", "orders"), 2) == ["spend", "visits", "orders"]
    assert rows(("visits",), 1) == ["spend", "visits"]
    assert rows(("spend",), 1) == ["spend", "predicted_spend"]
    assert rows(None, 2) == ["spend", "prediction"]
