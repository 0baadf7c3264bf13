"""Features of one byte a number: what they cost stays within what they promise, and what cannot be kept is refused."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch

from lightning_gnnload import (
    FeatureStore,
    Graph,
    GraphData,
    MemoryFeatureStore,
    NodeTable,
    QuantizedFeatureStore,
    load_graph_data,
    quantization_error,
    quantize,
    save_graph_data,
)
from lightning_gnnload.data import quantize as quantize_module
from lightning_gnnload.errors import GraphDataError, SeedError, StoreFormatError


def features(seed: int = 0) -> torch.Tensor:
    """Columns of many sizes, of which one is far from zero, one constant, one zero, and one has two values."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((500, 9)) * np.ldexp(1.0, [0, -20, 9, 3, 0, 0, 0, 0, -140])
    x[:, 3] += 1000
    x[:, 4], x[:, 5], x[:, 6] = 0.1, 0, rng.integers(0, 2, 500)
    return torch.from_numpy(x).float()


def gathered(store: FeatureStore, ids: torch.Tensor) -> torch.Tensor:
    out = torch.empty(len(ids), store.shape[1], dtype=store.dtype)
    store.gather(ids, out)
    return out


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_every_value_is_within_the_bound(dtype):
    x = features()
    store = quantize(x, dtype=dtype, progress=False)
    error = quantization_error(x, store, progress=False)
    assert bool((error.max <= store.error_bound).all())
    assert bool((error.rms <= error.max).all())
    if dtype is torch.float32:  # half a step, and next to nothing besides, where the offset is no larger than the step
        small = x.abs().amax(0) < 300 * store.scale
        assert small.sum() >= 5
        assert bool((error.max <= store.scale.double() / 2 * 1.001)[small].all())


def test_the_bound_is_not_generous():
    """A step twice as wide, or codes that are cut off instead of rounded, would be within a bound twice as large."""
    x = torch.linspace(-1, 1, 10_001)[:, None]
    store = quantize(x, progress=False)
    assert store.scale.item() == pytest.approx(2 / 255)
    error = quantization_error(x, store, progress=False)
    assert error.max.item() == pytest.approx(1 / 255, rel=0.01)
    assert error.rms.item() == pytest.approx(2 / 255 / 12**0.5, rel=0.01)


def test_constant_columns_are_exact():
    x = torch.tensor([[0.1, -3e38, 0.0, 1e-40]]).repeat(7, 1)
    assert torch.equal(gathered(quantize(x, progress=False), torch.arange(7)), x)


@pytest.mark.parametrize("rows", [0, 1, 2])
@pytest.mark.parametrize("width", [0, 1, 3])
def test_small_tables(rows, width):
    x = torch.arange(rows * width).view(rows, width)
    assert torch.allclose(gathered(quantize(x, progress=False), torch.arange(rows)), x.float(), atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool])
def test_any_real_dtype_is_quantised(dtype):
    x = torch.arange(40).view(20, 2).remainder(7).to(dtype)
    assert torch.allclose(gathered(quantize(x, progress=False), torch.arange(20)), x.float(), atol=0.02)


def test_tables_are_read_a_chunk_at_a_time(monkeypatch):
    x, asked = features(), []

    class Watched(MemoryFeatureStore):
        def gather(self, ids, out):
            asked.append(len(ids))
            return super().gather(ids, out)

    whole = quantize(x, progress=False)
    monkeypatch.setattr(quantize_module, "_CHUNK_NUMBERS", 64 * x.shape[1])
    out = np.empty(x.shape, np.int8)
    parts = quantize(Watched(x), out=out, progress=False)
    assert max(asked) == 64
    assert sum(asked) == 2 * len(x)
    assert np.array_equal(out, whole.codes.rows)
    assert torch.equal(parts.scale, whole.scale)
    assert torch.equal(parts.offset, whole.offset)


def test_bytes_come_from_any_store():
    x, ids, positions = features(), torch.tensor([499, 0, 0, 7]), torch.tensor([3, 0, 5, 1])
    store = quantize(x, progress=False)

    class Elsewhere(FeatureStore):
        shape, dtype, closed = store.shape, torch.int8, False

        def gather(self, ids, out):
            out.copy_(store.codes.rows[ids])

        def close(self):
            Elsewhere.closed = True

    behind = store.over(Elsewhere())
    assert torch.equal(gathered(behind, ids), gathered(store, ids))
    for each in (store, behind):
        out = torch.full((6, x.shape[1]), 9.0)
        each.gather_at(ids, positions, out)
        assert torch.equal(out[positions], gathered(store, ids))
        assert out[[2, 4]].eq(9).all()
    behind.close()
    assert Elsewhere.closed


def test_bytes_read_are_counted():
    store = quantize(features(), progress=False)
    (reads,) = store.gather(torch.tensor([1, 2]), torch.empty(2, 9))
    assert reads == ("memory", 2, 18)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("row", [0, 77, 499])
def test_values_that_are_not_finite_are_named(bad, row, monkeypatch):
    monkeypatch.setattr(quantize_module, "_CHUNK_NUMBERS", 64 * 9)
    x = features()
    x[row, 6] = bad
    with pytest.raises(GraphDataError, match=f"row {row} has {bad} in column 6; only finite"):
        quantize(x, progress=False)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: quantize(torch.tensor([[0.0], [7e4]]), dtype=torch.float16, progress=False), "float16 cannot hold"),
        (lambda: quantize(torch.tensor([[0.0], [1e300]], dtype=torch.float64), progress=False), "scale is inf"),
        (lambda: quantize(torch.zeros(3), progress=False), r"must be \[rows, F\]"),
        (lambda: quantize(torch.zeros(3, 2, dtype=torch.complex64), progress=False), "only real numbers"),
        (lambda: quantize(torch.zeros(3, 2), out=np.zeros((3, 1), np.int8), progress=False), "out is int8"),
        (lambda: quantize(torch.zeros(3, 2), dtype=torch.int32, progress=False), "dtype is torch.int32"),
        (lambda: QuantizedFeatureStore(np.zeros((3, 2), np.uint8), [1, 1]), "codes are torch.uint8"),
        (lambda: QuantizedFeatureStore(np.zeros((3, 2), np.int8), [1]), r"scale has shape \[1\]"),
        (lambda: QuantizedFeatureStore(np.zeros((3, 2), np.int8), [1, -1]), "scale is negative for column 1"),
        (lambda: QuantizedFeatureStore(np.zeros((3, 2), np.int8), [1, 1], [0, np.nan]), "offset is nan"),
        (lambda: quantization_error(torch.zeros(3, 2), MemoryFeatureStore(torch.zeros(3, 1))), "features are"),
    ],
)
def test_what_cannot_be_is_refused(call, message):
    with pytest.raises(GraphDataError, match=message):
        call()


def test_an_id_outside_the_table_is_refused():
    with pytest.raises(SeedError, match="500"):
        gathered(quantize(features(), progress=False), torch.tensor([0, 500]))


@pytest.fixture
def saved(tmp_path) -> tuple[GraphData, Any]:
    x = features()
    store = quantize(x, dtype=torch.bfloat16, progress=False)
    table = NodeTable(quantize(x[:3], progress=False), first=7)
    graph = Graph.from_coo([0, 1], [1, 2], num_nodes=500)
    data = GraphData(graph, x=store, tables={"more": table})
    save_graph_data(data, tmp_path / "g")
    return data, tmp_path / "g"


@pytest.mark.parametrize("features", ["mapped", "disk"])
def test_quantised_features_are_saved_as_they_are(saved, features):
    data, folder = saved
    loaded = load_graph_data(folder, verify=True, features=features)
    assert (folder / "x.bin").stat().st_size == 500 * 9
    assert loaded.x.dtype is torch.bfloat16
    ids = torch.arange(500)
    assert torch.equal(gathered(loaded.x, ids), gathered(data.x, ids))
    assert torch.equal(gathered(loaded.tables["more"].store, ids[:3]), gathered(data.tables["more"].store, ids[:3]))


@pytest.mark.parametrize(
    "damage",
    [
        lambda manifest: manifest["arrays"].pop("x.scale"),
        lambda manifest: manifest.update(quantized={"x": "int8"}),
        lambda manifest: manifest.update(quantized=["x"]),
        lambda manifest: manifest.update(quantized={"indptr": "float32"}),
        lambda manifest: manifest["arrays"]["x"].update(dtype="uint8"),
    ],
)
def test_a_damaged_manifest_is_a_format_error(saved, damage):
    path = saved[1] / "manifest.json"
    manifest = json.loads(path.read_text())
    damage(manifest)
    del manifest["checksum"]
    path.write_text(json.dumps(manifest))
    with pytest.raises(StoreFormatError):
        load_graph_data(saved[1])
