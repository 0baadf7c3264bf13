"""What a device has drawn lies in a slot as the CPU's samplers lay it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lightning_gnnload import Graph, MiniBatch, NeighborSampler
from lightning_gnnload.data.slab import view_of
from lightning_gnnload.ops import ArenaTooSmall, Draw, DrawKey, Queries
from lightning_gnnload.ops.cuda.sampling.sample import DeviceHop, DeviceSample
from lightning_gnnload.pipeline.packing import pack
from lightning_gnnload.pipeline.slots import Slot
from lightning_gnnload.sample.base import draw_here
from lightning_gnnload.sample.device.samplers import UploadingSampler
from tests.cuda.emulated import EmulatedDevice
from tests.unit.toy import content, toy_graph

SEEDS, KEY = np.array([7, 3, 250]), DrawKey(1, 2, 3)


def drawn(sampler) -> tuple[DeviceSample, MiniBatch]:
    """Of one mini-batch, what a device would leave, and what the CPU lays into an arena."""
    graph = toy_graph()
    arena, layout = draw_here(sampler, graph, Draw(SEEDS, KEY))
    sample = UploadingSampler(sampler, graph, EmulatedDevice()).sample(Draw(SEEDS, KEY))
    return sample, MiniBatch.view(arena, layout, len(SEEDS))


@pytest.mark.parametrize(
    "sampler", [NeighborSampler([3, 2], edge_ids=True), NeighborSampler([4, 3, 2], expand="new"), NeighborSampler([])]
)
@pytest.mark.parametrize("more_bytes", [None, 0, 63, 4096])
def test_a_packed_sample_is_the_cpus_mini_batch(sampler, more_bytes: int | None) -> None:
    sample, wanted = drawn(sampler)
    packing = pack(sample, room_bytes=100)
    needed = packing.layout.free_begin + sum(-(-tensor.nbytes // 64) * 64 for _, tensor in packing.pieces[1:]) + 128
    if more_bytes is not None:
        packing = pack(sample, needed + more_bytes, room_bytes=100)
    assert packing.layout.free_end - packing.layout.free_begin >= 100
    slot = Slot(needed + (more_bytes or 0))
    slot.array[:] = 0xA5
    for offset, tensor in packing.pieces:
        assert offset % 64 == 0
        slot.put(offset, tensor)
    assert content(MiniBatch.view(slot.array, packing.layout, len(SEEDS))) == content(wanted)


@pytest.mark.parametrize("expand", ["all", "new"])
def test_edge_types_and_queries_come_along(expand) -> None:
    toys, sampler = toy_graph(), NeighborSampler([2, 1], expand=expand, sharing="disjoint")
    ends = np.repeat(np.arange(300), toys.in_degrees), toys.indices
    graph = Graph.from_hetero({"a": 300}, {("a", "to", "a"): ends, ("a", "from", "a"): ends[::-1]})
    queries = Queries(np.arange(3, dtype=np.int32), np.arange(3, dtype=np.uint32), by_row=True)
    arena, layout = draw_here(sampler, graph, Draw(SEEDS, KEY, queries))
    wanted = MiniBatch.view(arena, layout, len(SEEDS)).clone()
    sample = UploadingSampler(sampler, graph, EmulatedDevice()).sample(Draw(SEEDS, KEY, queries))
    packed, pieces = pack(sample)
    slot = Slot(1 << 16)
    for offset, tensor in pieces:
        slot.put(offset, tensor)
    batch = MiniBatch.view(slot.array, packed, len(SEEDS))
    assert content(batch) == content(wanted)
    assert torch.equal(batch.rows, wanted.rows)
    for mine, theirs in zip(batch.blocks, wanted.blocks, strict=True):
        assert torch.equal(mine.edge_type, theirs.edge_type)


def test_a_slot_that_is_a_byte_too_small_is_told_what_it_takes() -> None:
    sample, _ = drawn(NeighborSampler([3, 2]))
    with pytest.raises(ArenaTooSmall) as small:
        pack(sample, 64)
    needed = small.value.needed_bytes
    pack(sample, needed)
    with pytest.raises(ArenaTooSmall):
        pack(sample, needed - 1)


def test_hops_that_share_an_array_share_it_in_the_slot() -> None:
    indptr, indices = torch.tensor([0, 1, 3], dtype=torch.int32), torch.tensor([1, 0, 2], dtype=torch.int32)
    hops = (DeviceHop(1, 2, indptr[:2], indices[:1]), DeviceHop(2, 3, indptr, indices))
    layout, pieces = pack(DeviceSample(torch.tensor([5, 6, 7]), hops))
    assert len(pieces) == 3
    assert layout.hops[0].indices_offset == layout.hops[1].indices_offset
    assert (layout.hops[0].num_edges, layout.hops[1].num_edges) == (1, 3)
    assert {tensor.numel() for _, tensor in pieces[1:]} == {3}


@pytest.mark.parametrize("offset", [-4, 1, 64, 61, 1 << 40])
def test_a_view_of_a_tensor_stays_within_it(offset: int) -> None:
    with pytest.raises(ValueError, match="do not lie in a buffer of 64 bytes"):
        view_of(torch.zeros(64, dtype=torch.uint8), offset, (1,), torch.int32)
