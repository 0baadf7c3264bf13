"""Rows between layers: on disk, in blocks, and gone afterwards."""

from __future__ import annotations

import importlib
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from lightning_gnnload import Block, Graph, GraphData, UserIds, infer
from lightning_gnnload.errors import InferenceError, OutputError
from lightning_gnnload.inference import rows as stored
from lightning_gnnload.inference.compare import difference
from lightning_gnnload.inference.passes import parts
from lightning_gnnload.inference.rows import StoredRows, rows_at
from tests.plain_sage import GraphSAGE
from tests.unit.inference.models import HIDDEN, NUM_NODES, WIDTH, flat_data

SETTINGS: dict[str, Any] = {"method": "forward", "progress": False}


def model() -> GraphSAGE:
    torch.manual_seed(0)
    return GraphSAGE(WIDTH, 4, hidden=HIDDEN, num_layers=3)


def test_parts_hold_every_node_once_and_a_hub_stands_alone() -> None:
    degrees = np.array([1, 0, 3, 50, 0, 2, 2, 2])
    indptr = np.concatenate([[0], np.cumsum(degrees)])
    found = [range(part.start, part.stop) for part in parts(indptr, np.arange(8), max_edges=4, max_nodes=3)]
    assert found == [range(3), range(3, 4), range(4, 7), range(7, 8)]


def test_blocks_of_any_size_give_the_same() -> None:
    data = flat_data()
    whole = infer(model(), data, **SETTINGS)
    for settings in ({"max_edges": 40}, {"memory": 20_000}):
        torch.testing.assert_close(infer(model(), data, **SETTINGS, **settings), whole, rtol=1e-5, atol=1e-5)


def test_half_precision_between_layers_is_nearly_the_same() -> None:
    data = flat_data()
    half = infer(model(), data, dtype=torch.float16, **SETTINGS)
    whole = infer(model(), data, **SETTINGS)
    assert half.dtype == torch.float32, "what the model gives last is not halved"
    assert not torch.equal(half, whole)
    torch.testing.assert_close(half, whole, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("memory_bytes", [1, 1 << 30])
def test_rows_are_scanned_or_read_at_random(memory_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "_CHUNK_BYTES", 4096)
    scans = []
    scan = stored._scan
    monkeypatch.setattr(stored, "_scan", lambda *given: scans.append(1) or scan(*given))
    rows = StoredRows(tmp_path / "0.npy", 5000, (6,), torch.float32, memory_bytes=memory_bytes)
    wanted = torch.randn(5000, 6)
    rows.write(np.arange(5000), wanted)
    ids = np.random.default_rng(0).permutation(5000)[:3000]
    assert torch.equal(rows.take(ids), wanted[ids])
    assert torch.equal(rows_at(rows.rows, torch.tensor([4999, 0, 4999]), memory_bytes), wanted[[4999, 0, 4999]])
    assert bool(scans) == (memory_bytes == 1)


def test_rows_written_in_any_order(tmp_path: Path) -> None:
    rows = StoredRows(tmp_path / "0.npy", 10, (), torch.int64, memory_bytes=1)
    rows.write(np.array([7, 2, 9]), torch.tensor([70, 20, 90]))
    assert rows.take(np.array([2, 7, 9, 0])).tolist() == [20, 70, 90, 0]


def test_rows_take_room_before_they_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = StoredRows(tmp_path / "0.npy", 5000, (100,), torch.float32, memory_bytes=1)
    size_bytes, room = (tmp_path / "0.npy").stat().st_size, []
    monkeypatch.setattr(os, "posix_fallocate", lambda _, at, length: room.append((at, length)))
    rows.write(np.array([0, 10, 11]), torch.ones(3, 100))
    rows.write(np.array([11, 4999]), torch.ones(2, 100))
    assert room == [(0, 2 * 4096), (488 * 4096, size_bytes - 488 * 4096)]  # whole pages, but not beyond the end
    rows.write(np.array([0, 11]), torch.ones(2, 100))  # whose room is there
    assert len(room) == 2

    def full(*_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OutputError, match=r"0\.npy cannot be written: .*No space left on device.*disk with room"):
        rows.write(np.array([2000]), torch.ones(1, 100))


def test_nothing_is_left_over_even_after_a_failure(tmp_path: Path) -> None:
    class Failing(GraphSAGE):
        def forward(self, batch: Any) -> Tensor:
            rows = super().forward(batch)
            if len(rows) == NUM_NODES:  # all nodes, in the last pass
                raise RuntimeError("of the model")
            return rows

    infer(model(), flat_data(), scratch=tmp_path, **SETTINGS)
    assert not list(tmp_path.iterdir())
    with pytest.raises(RuntimeError, match="of the model"):
        infer(Failing(WIDTH, 4, hidden=HIDDEN, num_layers=3), flat_data(), scratch=tmp_path, num_layers=3, **SETTINGS)
    assert not list(tmp_path.iterdir())


KILLED = """
import sys, os, signal
from tests.unit.inference.test_streaming import *
class Killed(GraphSAGE):
    def forward(self, batch):
        rows = super().forward(batch)
        if len(rows) == NUM_NODES:
            os.kill(os.getpid(), signal.SIGKILL)
        return rows
infer(Killed(WIDTH, 4, hidden=HIDDEN, num_layers=3), flat_data(), scratch=sys.argv[1], num_layers=3, **SETTINGS)
"""


@pytest.mark.matrix
def test_the_next_run_clears_what_a_killed_one_left(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], cwd=Path(__file__).parents[3], check=False)
    assert done.returncode == -signal.SIGKILL
    assert [*tmp_path.rglob("*.npy")], "it was killed before it wrote anything"
    infer(model(), flat_data(), scratch=tmp_path, **SETTINGS)
    assert not list(tmp_path.iterdir())


def test_files_hold_rows_and_ids(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    plain = flat_data()
    names = [f"node {number:03}" for number in range(NUM_NODES)]
    data = GraphData(plain.graph, x=plain.x, user_ids=names)
    wanted = infer(model(), data, **SETTINGS)
    infer(model(), data, out=tmp_path / "all.parquet", **SETTINGS)
    table = parquet.read_table(tmp_path / "all.parquet")
    assert table.column_names == [data.user_ids[""].column, "prediction"]
    assert table.column(0).to_pylist() == names
    np.testing.assert_allclose(np.array(table.column(1).to_pylist()), wanted.numpy(), rtol=1e-6)
    some = infer(model(), plain, out=tmp_path / "some.npy", nodes=[250, 3], **SETTINGS)
    assert np.load(tmp_path / "some.npy").tolist() == some.tolist()
    assert np.load(tmp_path / "some.node.npy").tolist() == [250, 3]
    torch.testing.assert_close(some, wanted[[250, 3]], rtol=1e-5, atol=1e-5)
    infer(model(), plain, out=tmp_path / "whole.npy", **SETTINGS)
    assert np.load(tmp_path / "whole.npy").shape == (NUM_NODES, 4)
    assert {path.name for path in tmp_path.iterdir()} == {"all.parquet", "some.npy", "some.node.npy", "whole.npy"}
    assert (tmp_path / "whole.npy").stat().st_mode & 0o077 == 0
    with pytest.raises(OutputError, match=r"\.npy, \.parquet, \.csv or \.csv\.gz"):
        infer(model(), plain, out=tmp_path / "rows.npz", **SETTINGS)


def test_rows_are_named_by_what_they_are(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    names = ("oak", "elm", "yew", "ash")
    data = flat_data(class_names=names, user_ids=UserIds.of([f"t{n}" for n in range(NUM_NODES)], column="class"))
    rows = infer(model(), data, out=tmp_path / "all.parquet", **SETTINGS)
    table = parquet.read_table(tmp_path / "all.parquet")
    named = [f"p_{name}" for name in names]
    assert table.column_names == ["node", *named, "class"]  # the user's ids do not take the name of results
    np.testing.assert_array_equal(np.stack([table[name] for name in named], axis=1), rows)
    largest = [names[each] for each in rows.argmax(1)]
    assert table["class"].to_pylist() == largest
    infer(model(), data, out=tmp_path / "all.npy", nodes=[7, 3], **SETTINGS)
    assert np.load(tmp_path / "all.class.npy").tolist() == [largest[7], largest[3]]
    assert np.load(tmp_path / "all.node.npy").tolist() == ["t7", "t3"]
    given = model()
    given.embed = given.forward
    infer(given, data, out=tmp_path / "embed.parquet", **SETTINGS | {"method": "embed"})
    assert parquet.read_table(tmp_path / "embed.parquet").column_names == ["node", "embedding"]


def test_how_many_nodes_were_compared_is_told_and_large_neighbourhoods_are_left_out(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with caplog.at_level(logging.INFO, logger="lightning_gnnload"):
        infer(model(), flat_data(), num_compared=5, **SETTINGS)
        monkeypatch.setattr(importlib.import_module("lightning_gnnload.inference.compare"), "_MOST_EDGES", -1)
        infer(model(), flat_data(), num_compared=5, **SETTINGS)
    assert [record.message for record in caplog.records] == [
        "infer: 5 nodes were compared with their whole neighbourhoods.",
        "infer: no node's whole neighbourhood is small enough to compare with; parts of some were compared.",
    ]


class Drifting(nn.Module):
    """Goes wrong for nodes of large ids alone, which the small comparison may not meet."""

    num_layers = 1

    def layer(self, number: int, block: Block, rows: Tensor) -> Tensor:
        return rows[: block.num_dst] + (block.num_dst > 50)


def test_what_goes_wrong_in_large_blocks_alone_is_found_in_the_end() -> None:
    with pytest.raises(InferenceError, match="differ by"):
        infer(Drifting(), flat_data(), progress=False)


def test_differences_see_nan_and_signs_of_infinity() -> None:
    nan, inf = float("nan"), float("inf")
    row = torch.tensor([[1.0, nan, inf]])
    assert difference(row, row).share == 0
    assert difference(row, torch.tensor([[1.0, nan, -inf]])).share == inf
    assert difference(torch.tensor([nan]), torch.tensor([0.0])).share == inf
    assert difference(torch.tensor([0.0]), torch.tensor([nan])).share == inf
    assert difference(torch.zeros(2), torch.zeros(3)).share == inf
    assert 0 < difference(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0 + 1e-6])).share < 1e-5


def test_a_graph_without_edges_and_one_without_nodes_of_interest() -> None:
    data = GraphData(Graph.from_coo([], [], 7), x=torch.randn(7, WIDTH))
    assert infer(model(), data, num_layers=3, **SETTINGS).shape == (7, 4)
    assert infer(model(), flat_data(), nodes=[], **SETTINGS).shape[0] == 0


def test_rows_that_float16_does_not_hold(tmp_path: Path) -> None:
    rows = StoredRows(tmp_path / "half", 3, (2,), torch.float32, half=True, memory_bytes=1 << 20)
    rows.write(np.array([0]), torch.tensor([[65504.0, float("-inf")]]))
    with pytest.raises(InferenceError, match=r"rows between layers go up to 1e\+05, but float16 .* --dtype float32"):
        rows.write(np.array([1, 2]), torch.tensor([[1.0, -1e5], [2.0, 3.0]]))
