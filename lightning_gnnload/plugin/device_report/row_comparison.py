"""Comparisons of the kernels that move rows, or change them, with the CPU's.

Each yields "" for a case whose results are equal, else what differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import numpy as np
import torch

from lightning_gnnload import ops
from lightning_gnnload.ops.cuda import dropout as device_dropout
from lightning_gnnload.ops.cuda.aggregate import DeviceEdges
from lightning_gnnload.ops.cuda.launch.device import Device
from lightning_gnnload.ops.cuda.tables.bus_order import AS_THEY_COME
from lightning_gnnload.ops.cuda.tables.dynamic_cache import EvictingSlots
from lightning_gnnload.ops.cuda.tables.gather import gather_rows
from lightning_gnnload.ops.cuda.tables.rows import RowCodes, Table
from lightning_gnnload.ops.cuda.tables.tiers import TieredTable, gather_tiered, list_missed, order_missed
from lightning_gnnload.ops.dropout import DropoutKey, drop, drop_by_bits, num_bit_bytes, scale_of, threshold_of
from lightning_gnnload.ops.host_edges import HostEdges
from lightning_gnnload.ops.quantized import gather_quantized

_DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8)
_WIDTHS = (1, 3, 16, 100, 128)
_NUM_ROWS, _NUM_IDS = 200, 333


def compare_gathers(device: Device) -> Iterator[str]:
    """Rows of all dtypes and several widths, from the device's memory and the host's."""
    for dtype, width in product(_DTYPES, _WIDTHS):
        table, ids = _rows(width, dtype), _ids(width)
        tables: dict[str, Table] = {"device": device.put(_bits(table)), "host": device.map_host(_bits(table))}
        for where, rows in tables.items():
            out, error = _empty_like(device, table[ids]), device.zeros(1, torch.int64)
            gather_rows(device, rows, device.put(ids), out, error)
            is_equal = np.array_equal(device.read(out), _bits(table[ids])) and not device.read(error)[0]
            yield "" if is_equal else f"rows of {width} {dtype} from the {where}"


def compare_tiers(device: Device) -> Iterator[str]:
    """Rows that shards hold in part, the others from the host's memory, and the list of those."""
    for width, share in product((1, 25, 128), (0.0, 0.5, 1.0)):
        table, ids, location, shards = _sharded(width, share)
        shards_there = [device.put(_bits(shard)) for shard in shards]
        tiers = TieredTable.of(
            device,
            device.put(location),
            [shard.data_ptr() for shard in shards_there],
            [len(shard) for shard in shards],
            width * 4,
            device.map_host(_bits(table)),
        )
        ids_there, missed = device.put(ids), np.flatnonzero(location[ids] < 0)
        num_taken = np.bincount(location[ids][location[ids] >= 0] >> ops.SLOT_BITS, minlength=ops.MAX_SHARDS)
        for far in (AS_THEY_COME, order_missed(device, tiers, ids_there)):
            out, error = _empty_like(device, table[ids]), device.zeros(1, torch.int64)
            counts = device.zeros(ops.MAX_SHARDS + 1, torch.int64)
            gather_tiered(device, tiers, ids_there, out, counts, error, far)
            is_equal = np.array_equal(device.read(out), _bits(table[ids])) and not device.read(error)[0]
            yield "" if is_equal else f"rows of {width} floats, {share:.0%} of them in shards"
            is_equal = np.array_equal(device.read(counts), [*num_taken, len(missed)])
            yield "" if is_equal else f"rows counted by shard, {share:.0%} of them in shards"
        missed_ids, missed_at = (device.empty(len(ids), torch.int64) for _ in range(2))
        num_missed = int(device.read(list_missed(device, tiers.location, ids_there, missed_ids, missed_at))[0])
        listed = device.read(missed_ids)[:num_missed], device.read(missed_at)[:num_missed]
        is_equal = np.array_equal(listed, (ids[missed], missed))
        yield "" if is_equal else f"the list of missed rows, {share:.0%} of rows in shards"


def compare_codes(device: Device) -> Iterator[str]:
    """Rows of 8-bit codes, decoded as they are gathered, from the device's memory and the host's."""
    rng = np.random.default_rng(0)
    for width in _WIDTHS:
        codes = rng.integers(-128, 128, (_NUM_ROWS, width), dtype=np.int8)
        scale, offset = rng.random((2, width), dtype=np.float32)
        ids = _ids(width)
        expected = np.empty((len(ids), width), np.float32)
        gather_quantized(codes, scale, offset, ids, expected)
        columns = RowCodes(device.put(scale), device.put(offset), torch.float32)
        tables: dict[str, Table] = {"device": device.put(codes), "host": device.map_host(codes)}
        for where, rows in tables.items():
            out, error = device.empty(len(ids) * width, torch.float32).view(-1, width), device.zeros(1, torch.int64)
            gather_rows(device, rows, device.put(ids), out, error, codes=columns)
            is_equal = np.array_equal(device.read(out).view(np.uint8), expected.view(np.uint8))
            yield "" if is_equal else f"codes of {width} columns from the {where}"


def compare_dynamic_caches(device: Device) -> Iterator[str]:
    """What a cache that evicts holds after each of several mini-batches."""
    rng = np.random.default_rng(0)
    for num_slots, row_bytes in ((1, 1), (40, 16), (100, 400)):
        rows = rng.integers(0, 256, (_NUM_ROWS, row_bytes), dtype=np.uint8)
        here = ops.EvictingSlots(_NUM_ROWS, num_slots, row_bytes, "fifo")
        there = EvictingSlots(device, _NUM_ROWS, num_slots, row_bytes)
        for batch in range(6):
            ids = rng.permutation(_NUM_ROWS)[: 30 * batch]
            missed = np.empty((2, len(ids)), np.int64)
            num_hits = here.read(ids, out := np.empty((len(ids), row_bytes), np.uint8), missed[0], missed[1])
            missed = missed[:, : len(ids) - num_hits]
            here.admit(missed[0], np.where(np.isin(np.arange(len(ids)), missed[1])[:, None], rows[ids], out), missed[1])
            there.admit(device.put(ids), device.put(rows[ids]))
            holds = device.read(there.slot_of) >= 0
            is_equal = np.array_equal(holds, here.contains(np.arange(_NUM_ROWS)))
            rows_there = device.read(there.rows).reshape(num_slots, row_bytes)[device.read(there.slot_of)[holds]]
            yield "" if is_equal and np.array_equal(rows_there, rows[holds]) else f"batch {batch} of {num_slots} slots"


def compare_dropout(device: Device) -> Iterator[str]:
    """Masks and roundings of dropout with relu and without, and of its gradient."""
    key, threshold = DropoutKey.of(seed=1, epoch=2, step=3, rank=0, layer=1, call=0), threshold_of(0.3)
    for dtype, relu in product((torch.float32, torch.float64, torch.float16, torch.bfloat16), (False, True)):
        x = torch.randn(5000, generator=torch.Generator().manual_seed(0)).to(dtype)
        expected, expected_grad = torch.empty_like(x), torch.empty_like(x)
        expected_bits = drop(x, expected, threshold, key, relu, with_bits=True)
        assert expected_bits is not None
        drop_by_bits(x, expected_grad, threshold, expected_bits)
        there, out = x.to(device.torch_device), device.empty(len(x), dtype)
        bits, out_grad = device.empty(num_bit_bytes(x), torch.uint8), device.empty(len(x), dtype)
        device_dropout.drop(device, there, out, threshold, scale_of(threshold), key, relu, bits)
        device_dropout.drop_by_bits(device, there, out_grad, scale_of(threshold), bits)
        for name, mine, hosts in (("output", out, expected), ("gradient", out_grad, expected_grad)):
            is_equal = np.array_equal(_bits(mine.cpu()), _bits(hosts))
            yield "" if is_equal else f"{name} of {dtype}{', with relu' if relu else ''}"


def compare_aggregates(device: Device) -> Iterator[str]:
    """Sums, means and maxima of neighbours' rows, and their gradients; products of ends, of numbers whose are exact."""
    rng, num_dst = np.random.default_rng(0), 60
    indptr = torch.from_numpy(np.concatenate([[0], rng.integers(0, 9, num_dst).cumsum()])).int()
    indices = torch.from_numpy(rng.integers(0, _NUM_ROWS, int(indptr[-1]))).int()
    there = DeviceEdges(device, indptr.to(device.torch_device), indices.to(device.torch_device), _NUM_ROWS)
    here = HostEdges(indptr, indices, _NUM_ROWS)
    for dtype, width in product((torch.float32, torch.float64, torch.bfloat16), (1, 7, 100)):
        x, grad = (torch.from_numpy(rng.standard_normal((rows, width))).to(dtype) for rows in (_NUM_ROWS, num_dst))
        x_there, grad_there = x.to(device.torch_device), grad.to(device.torch_device)
        (most, source), (most_there, source_there) = here.max_neighbors(x), there.max_neighbors(x_there)
        whole, whole_grad = (tensor.mul(4).round() for tensor in (x, grad))
        endpoints = np.repeat(np.arange(num_dst), np.diff(indptr)), indices.long()
        products = (whole_grad[endpoints[0]].double() * whole[endpoints[1]].double()).sum(1)
        dots = there.dot_ends(whole_grad.to(device.torch_device), whole.to(device.torch_device))
        for name, mine, hosts in (
            ("sums", there.sum_neighbors(x_there), here.sum_neighbors(x, None, False)),
            ("means", there.sum_neighbors(x_there, is_mean=True), here.sum_neighbors(x, None, True)),
            ("gradients of sums", there.sum_destinations(grad_there), here.sum_destinations(grad, None, False)),
            (
                "gradients of means",
                there.sum_destinations(grad_there, is_mean=True),
                here.sum_destinations(grad, None, True),
            ),
            ("maxima", most_there, most),
            ("sources of maxima", source_there, source),
            ("gradients of maxima", there.add_to_sources(source_there, grad_there), here.add_to_sources(source, grad)),
            ("products of ends", dots.double(), products),
        ):
            is_equal = np.array_equal(_bits(mine.cpu()), _bits(hosts))
            yield "" if is_equal else f"{name} of {width} {dtype}"


ROW_COMPARISONS: dict[str, Callable[[Device], Iterator[str]]] = {
    "rows of all dtypes": compare_gathers,
    "rows that are cached in part": compare_tiers,
    "rows of 8-bit codes": compare_codes,
    "a cache that evicts": compare_dynamic_caches,
    "dropout": compare_dropout,
    "sums and maxima of neighbours": compare_aggregates,
}
"""What each compares, by the words of reports."""


def _rows(width: int, dtype: torch.dtype) -> torch.Tensor:
    values = np.random.default_rng(width).integers(0, 256, (_NUM_ROWS, width * dtype.itemsize), dtype=np.uint8)
    return torch.from_numpy(values).view(dtype)


def _ids(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, _NUM_ROWS, _NUM_IDS)


def _sharded(width: int, share: float) -> tuple[torch.Tensor, np.ndarray, np.ndarray, list[torch.Tensor]]:
    """Returns a table, ids, where each row is, and two shards that hold this share of the rows."""
    table, rng = _rows(width, torch.float32), np.random.default_rng(width)
    shard_of = np.where(rng.random(_NUM_ROWS) < share, rng.integers(0, 2, _NUM_ROWS), -1)
    location, shards = np.full(_NUM_ROWS, -1, np.int32), []
    for shard in range(2):
        nodes = np.flatnonzero(shard_of == shard)
        location[nodes] = shard << ops.SLOT_BITS | np.arange(len(nodes))
        shards.append(table[nodes])
    return table, _ids(width), location, shards


def _bits(rows: torch.Tensor) -> np.ndarray:
    """Views rows as bytes, since NumPy has no bfloat16, and no NaN equals another."""
    return rows.contiguous().view(torch.uint8).numpy()


def _empty_like(device: Device, rows: torch.Tensor) -> torch.Tensor:
    return device.empty(rows.nbytes, torch.uint8).view(len(rows), -1)
