"""Rows of owners on the wire: rounded as NumPy rounds them, alike however they come, refused where they do not fit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from lightning_gnnload import (
    FeatureCache,
    GraphData,
    GraphDataModule,
    NeighborSampler,
    load_partition,
    partition_graph,
)
from lightning_gnnload.data.features import byte_rows
from lightning_gnnload.data.partition import Partition
from lightning_gnnload.errors import ExchangeError, LoaderConfigError
from lightning_gnnload.owners.rows import RemoteFeatureStore
from lightning_gnnload.owners.wire import WireRows
from lightning_gnnload.storage.tables import table_name
from tests.unit.owners.serving import SECRET, graph_data, served

ROUNDED = ("float16", "bfloat16", "int8")
WIDTH = 13


def by_float16(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float16).astype(np.float32)


def by_bfloat16(x: np.ndarray) -> np.ndarray:
    bits = x.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def by_int8(x: np.ndarray) -> np.ndarray:
    scale = np.maximum(np.abs(x).max(1, keepdims=True) / np.float32(127), np.finfo(np.float32).tiny)
    return np.rint(x / scale).astype(np.float32) * scale


BY_NUMPY: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "float16": by_float16,
    "bfloat16": by_bfloat16,
    "int8": by_int8,
}
ERROR = {"float16": 2**-11, "bfloat16": 2**-8}


def rows(num_rows: int = 60) -> torch.Tensor:
    """Of all sizes that float16 holds, ties of both roundings, and a row of zeros."""
    x = np.random.default_rng(0).standard_normal((num_rows, WIDTH)).astype(np.float32)
    x *= 10.0 ** np.linspace(-7, 3.5, num_rows, dtype=np.float32)[:, None]
    x[1, :4] = 1 + 2**-11, 1 + 3 * 2**-11, 1 + 2**-8, 1 + 3 * 2**-8
    x[2] = 0
    return torch.from_numpy(x)


def parted(x: torch.Tensor, folder: Path) -> Partition:
    made = graph_data()
    data = GraphData(made.graph, x, made.y, made.train, tables={"counts": torch.arange(60 * 9).view(60, 9)})
    partition_graph(data, folder / "parts", 3, "random", hops=0, progress=False)
    return load_partition(folder / "parts")


@pytest.fixture(scope="module")
def partition(tmp_path_factory: pytest.TempPathFactory) -> Partition:
    return parted(rows(), tmp_path_factory.mktemp("wire"))


@pytest.mark.parametrize("wire", ROUNDED)
def test_rows_are_rounded_as_numpy_does(wire: str, partition: Partition) -> None:
    ids = np.random.default_rng(1).permutation(60)
    whole, expected = rows().numpy(), BY_NUMPY[wire](rows().numpy())
    with served(partition, wire=wire) as (owners, _):
        out = torch.full((70, WIDTH), -1.0)
        at = np.random.default_rng(2).permutation(70)[:60]
        num_bytes = owners.gather("x", ids, byte_rows(out), at)
        counts = np.empty((60, 72), np.uint8)
        owners.gather(table_name("counts"), ids, counts)
    assert np.array_equal(out.numpy()[at], expected[ids])
    assert (np.delete(out.numpy(), at, 0) == -1).all()
    assert (counts.view(np.int64)[:, 0] == ids * 9).all()  # whole numbers come as they are
    assert num_bytes == 60 * {"float16": 26, "bfloat16": 26, "int8": 17}[wire]
    assert owners.traffic["rows"].bytes_received == num_bytes + counts.nbytes
    error = np.abs(expected - whole)
    bound = np.maximum(np.abs(whole) * ERROR[wire], 2**-25) if wire in ERROR else np.abs(whole).max(1)[:, None] / 253.99
    assert (error <= bound).all()
    assert error.max() > 0


@pytest.mark.parametrize("wire", ROUNDED)
def test_rows_that_come_with_mini_batches_are_those_that_are_asked_for(
    wire: str, partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GNNLOAD_SECRET", SECRET)
    expected = torch.from_numpy(BY_NUMPY[wire](rows().numpy()))
    settings = {"batch_size": 7, "num_threads": 1, "wire": wire}
    with served(partition, [[0, 2], [1]]) as (_, fronts):
        addresses = [str(front.address) for front in fronts]
        for more in ({"made_by": "owners"}, {"made_by": "ranks"}, {"cache": FeatureCache("degree", ratio=0.3)}):
            module = GraphDataModule(
                partition, NeighborSampler([3, 2]), graph=addresses, features=addresses, **settings, **more
            )
            module.setup()
            seen = 0
            for batch in module.train_dataloader():
                assert torch.equal(batch.x, expected[batch.nodes])
                seen += len(batch.nodes)
            assert seen > 30
            [client] = module.owners._clients.values()
            assert ("batch" in client.traffic) == (more.get("made_by") == "owners")
            module.teardown()


def test_a_store_counts_the_bytes_on_the_wire(partition: Partition) -> None:
    with served(partition, wire="int8") as (owners, _):
        store = RemoteFeatureStore("x", partition.parted["x"], lambda: owners)
        out = torch.empty(4, WIDTH)
        assert store.gather(torch.tensor([3, 59, 0, 3]), out)[0].num_bytes == 4 * 17
        assert np.array_equal(out.numpy(), by_int8(rows().numpy())[[3, 59, 0, 3]])


@pytest.mark.parametrize(
    ("wire", "value"), [("float16", 65520.0), ("bfloat16", 3.4e38), ("int8", float("nan")), ("int8", float("-inf"))]
)
def test_numbers_that_cannot_be_held_are_refused_by_name(
    wire: str, value: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GNNLOAD_SECRET", SECRET)
    x = rows()
    x[40, 5] = value
    words = rf"table 'x' has {str(np.float32(value).item()).replace('+', '.')}, which wire='{wire}' cannot hold"
    partition = parted(x, tmp_path)
    with served(partition, [[0, 2], [1]], wire=wire) as (owners, fronts):
        out = np.empty((60, WIDTH * 4), np.uint8)
        owners.gather("x", np.delete(np.arange(60), 40), out[:59])
        with pytest.raises(ExchangeError, match=words):
            owners.gather("x", np.arange(60), out)
        addresses = [str(front.address) for front in fronts]
        module = GraphDataModule(
            partition, NeighborSampler([-1]), 60, num_threads=0, graph=addresses, features=addresses, wire=wire
        )
        module.setup()
        with pytest.raises(ExchangeError, match=words):
            list(module.train_dataloader())
        module.teardown()


@pytest.mark.parametrize("wire", ROUNDED)
@pytest.mark.parametrize("num_rows", [0, 1, 2])
def test_few_rows_of_a_width_that_is_no_multiple(wire: str, num_rows: int) -> None:
    """Torch takes a slice of one row for contiguous, whatever its strides."""
    x = rows()[7 : 7 + num_rows]
    form, out = WireRows(wire, torch.float32, WIDTH), torch.empty(num_rows, WIDTH)
    form.unpack(form.pack(x, "x"), byte_rows(out))
    assert np.array_equal(out.numpy(), BY_NUMPY[wire](x.numpy()))


@pytest.mark.parametrize("wire", ["float16", "bfloat16"])
def test_what_is_not_finite_passes(wire: str) -> None:
    x = torch.tensor([[float("inf"), float("-inf"), float("nan"), 1.0]])
    form, out = WireRows(wire, torch.float32, 4), torch.empty(1, 4)
    form.unpack(form.pack(x, "x"), byte_rows(out))
    assert torch.equal(out.nan_to_num(7.0, 8.0, 9.0), x.nan_to_num(7.0, 8.0, 9.0))


@pytest.mark.parametrize(
    ("wire", "dtype", "width", "row_bytes"),
    [
        ("float16", torch.float64, 3, 6),
        ("float16", torch.bfloat16, 3, 6),
        ("int8", torch.float16, 4, 8),
        ("int8", torch.float16, 5, 9),
        ("int8", torch.float32, 1, 4),
        ("int8", torch.uint8, 9, 9),
        ("float16", torch.float32, 0, 0),
    ],
)
def test_rows_go_as_they_are_where_rounding_saves_nothing(
    wire: str, dtype: torch.dtype, width: int, row_bytes: int
) -> None:
    form = WireRows(wire, dtype, width)
    assert form.row_bytes == row_bytes
    x = torch.arange(2 * width).view(2, width).to(dtype)
    out = torch.empty(2, width, dtype=dtype)
    form.unpack(form.pack(x, "x"), byte_rows(out))
    assert torch.allclose(out, x, rtol=0, atol=2 * width / 254)
    assert torch.equal(out, x) or wire == "int8"


def test_the_setting_is_checked_and_compared_on_resume(partition: Partition) -> None:
    with pytest.raises(LoaderConfigError, match="wire='int4' is not known"):
        GraphDataModule(partition, NeighborSampler([1]), features="remote", wire="int4")
    with pytest.raises(LoaderConfigError, match="wire='int8' is about rows that come from owners"):
        GraphDataModule(partition, NeighborSampler([1]), graph="remote", wire="int8")

    data: GraphData = graph_data()
    points = []
    for wire in ("exact", "float16"):
        module = GraphDataModule(
            data, NeighborSampler([1]), 5, num_threads=0, features="remote", partition=partition, wire=wire
        )
        points.append(module.owners.workload(module.workload("train")).description["sampler"])
    assert points[0] + ", rows rounded to float16" == points[1]
