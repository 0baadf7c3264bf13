"""PlannedBatches: draws a thread's mini-batches on a device, by one native call each where that is possible."""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import accumulate
from typing import Literal

import numpy as np
import torch

from ....errors import CudaCallError, DeviceMemoryError, KernelCompileError, SeedError
from ...checks import check_array
from ...dispatch import DrawKey
from ...queries import Draw
from ..launch.device import Device
from ..launch.state import decode_error
from ..sampling.failures import fail
from ..sampling.queries import HostQueries
from ..sampling.sample import DeviceSample
from ..sampling.topology import Topology
from ..sampling.varying import most_of
from ..sampling.workspace import DeviceWorkspace
from .plan import BatchPlan, CannotPlanError
from .recorder import Recorder, rounded_up

_MOST_PLANS = 16  # of a thread: last batches, links and queries have sizes of their own
_TRIES = 2  # to record a form: the first batch of a sampler may put on the device what all later ones use
_SIZES = 16  # batches whose largest size is that of the next one's memory, and an eighth more
_log = logging.getLogger(__name__)

Eager = Callable[[DeviceWorkspace, Topology, Draw], DeviceSample]
"""Draws a batch by launches from Python, as :meth:`.Sampler.draw_on` does."""


class PlannedBatches:
    """The mini-batches of one thread at a time from one topology.

    The first batch of a form (how many seeds, about, and what their queries have) is drawn by ``eager`` and recorded;
    it is made again by the recorded plan and compared; others of the form are then made by one native call, without the
    interpreter. What cannot be recorded, and what differs, which a warning says, is drawn by ``eager`` each time.
    Where memory for a plan runs out, so is that batch. ``table`` is the workspace's. Raises DeviceMemoryError where the
    device has no room for that either.
    """

    def __init__(
        self, device: Device, topology: Topology, eager: Eager, table: Literal["auto", "stamp", "hash"] = "auto"
    ) -> None:
        self._recorder = Recorder(device)
        self.workspace = DeviceWorkspace(self._recorder, topology.num_nodes, table)
        self._device, self._topology, self._eager = device, topology, eager
        self._plans: OrderedDict[Hashable, BatchPlan | None] = OrderedDict()  # None: there can be no plan
        self._refusals: Counter[Hashable] = Counter()
        self._num_growths = 0
        self._scratch = self._pinned = torch.empty(0, dtype=torch.uint8)
        self._sizes: deque[int] = deque([0], maxlen=_SIZES)

    def draw(self, draw: Draw, rows: Sequence[torch.Tensor] = ()) -> DeviceSample:
        """Draws a mini-batch in the current stream, for which the host waits; ``rows``, contiguous tensors of the host
        of whatever belongs to its seeds, come along. Raises what ``eager`` raises."""
        with suppress(DeviceMemoryError):
            return self._draw(draw, rows)
        # Out of the handler, whose error keeps the memory of what failed. Scratch is as large as everything that one
        # batch takes, beside which there may be no room for another form's.
        self._scratch = torch.empty(0, dtype=torch.uint8)
        return with_rows(self._device, self._launch(draw)[0], rows)

    def _draw(self, draw: Draw, rows: Sequence[torch.Tensor]) -> DeviceSample:
        if self._device.driver is None or not len(draw.seeds):
            return with_rows(self._device, self._launch(draw)[0], rows)
        check_array("seeds", draw.seeds, (np.int64,), 1, SeedError)
        queries = None if draw.queries is None else HostQueries.of(draw.queries, len(draw.seeds), self._topology)
        form = most_of(len(draw.seeds)), draw.key.hop, None if queries is None else queries.form
        if form not in self._plans:
            return with_rows(self._device, self._record(form, draw, queries), rows)
        self._plans.move_to_end(form)
        plan = self._plans[form]
        if plan is None:
            return with_rows(self._device, self._launch(draw)[0], rows)
        return self._make(plan, draw, queries, rows)

    def _launch(self, draw: Draw) -> tuple[DeviceSample, bool]:
        """Draws a batch launch by launch; also tells whether a table has grown."""
        try:
            sample = self._eager(self.workspace, self._topology, draw)
        finally:  # whatever has failed after that
            spaces = [self.workspace, *(space for name, space in self.workspace.cached.items() if name == "paths")]
            num_growths = sum(space.num_growths for space in spaces)
            has_grown, self._num_growths = num_growths > self._num_growths, num_growths
            if has_grown:  # plans have the addresses of what is no more
                self._plans.clear()
        return sample, has_grown

    def _record(self, form: Hashable, draw: Draw, queries: HostQueries | None) -> DeviceSample:
        with self._recorder.recording() as recording:
            sample, has_grown = self._launch(draw)
        if has_grown:
            return sample  # and record the next batch
        plan = None
        try:
            plan = BatchPlan(self._device, recording, sample)
            if differing := self._differing(sample, self._make(plan, draw, queries, ())):
                plan = None
                _log.warning(
                    "%s made %s of a batch otherwise by one call than launch by launch, so launches go on one by one, "
                    "which takes longer. Please report this with what 'gnnload doctor' prints.",
                    self._device.torch_device,
                    differing,
                )
        except (CannotPlanError, CudaCallError, DeviceMemoryError, KernelCompileError) as why:
            _log.debug("A batch on %s is launched kernel by kernel: %s.", self._device.torch_device, why)
            plan = None  # it may have been made, and failed then
            self._refusals[form] += 1
            if self._refusals[form] < _TRIES:
                return sample
        self._plans[form] = plan
        if len(self._plans) > _MOST_PLANS:
            self._plans.popitem(last=False)
        return sample

    def _make(
        self, plan: BatchPlan, draw: Draw, queries: HostQueries | None, rows: Sequence[torch.Tensor]
    ) -> DeviceSample:
        """Makes a batch by its plan."""
        seeds, num_nodes = draw.seeds, self._topology.num_nodes
        arrays = [seeds] if queries is None else [*queries.arrays.values(), queries.ids(seeds, num_nodes)]
        if len(arrays) != len(plan.inputs):
            raise CannotPlanError(f"it takes {len(plan.inputs)} arrays from the host, not the {len(arrays)} expected")
        offsets = list(accumulate((rounded_up(tensor.nbytes) for tensor in rows), initial=0))
        placed, begin = list(zip(rows, offsets, strict=False)), offsets[-1]
        self._make_room(plan, begin + sum(rounded_up(array.nbytes) for array in arrays))
        spaces = self._workspaces(queries)
        tables = [table for space in spaces if space.next_batch() for table in space.tables]
        slab = self._device.empty(begin + self._slab_bytes, torch.uint8)
        fields = [*_fields(draw.key, len(seeds), queries, spaces), slab.data_ptr(), begin, slab.nbytes]
        counters = plan.make(fields, tables, arrays, placed, self._pinned)
        self._device.num_reads += 1
        if (error := decode_error(counters.words[0])) is not None:
            fail(*error, seeds, num_nodes, queries)
        self._sizes.append(counters.needed_bytes - begin)
        if counters.needed_bytes > slab.nbytes:  # once in a while
            larger = self._device.empty(begin + self._slab_bytes, torch.uint8)
            larger[:begin] = slab[:begin]
            plan.copy_pieces([*fields[:-3], larger.data_ptr(), begin, larger.nbytes])
            slab = larger
        return plan.sample(slab, counters, placed)

    @property
    def _slab_bytes(self) -> int:
        """The bytes that the next batch most likely needs: sizes that come again, for torch to find freed memory."""
        return rounded_up(most_of(max(self._sizes) * 9 // 8))

    def _make_room(self, plan: BatchPlan, staged_bytes: int) -> None:
        """Gives a plan its scratch, and memory for what it copies from the host and back."""
        # Stream order protects scratch: the host has waited for the batch that used it last.
        if len(self._scratch) < plan.scratch_bytes:
            self._scratch = torch.empty(0, dtype=torch.uint8)  # freed before there is more
            self._scratch = self._device.empty(plan.scratch_bytes, torch.uint8)
        plan.bind(self._scratch)
        needed = rounded_up(8 * plan.num_words) + staged_bytes
        if len(self._pinned) < needed:
            is_cuda = self._device.torch_device.type == "cuda"
            self._pinned = torch.empty(rounded_up(2 * needed), dtype=torch.uint8, pin_memory=is_cuda)

    def _workspaces(self, queries: HostQueries | None) -> list[DeviceWorkspace]:
        """Lists the tables by which a batch is numbered."""
        has_paths = queries is not None and queries.path_end is not None
        return [self.workspace, self.workspace.cached["paths"]] if has_paths else [self.workspace]

    def _differing(self, sample: DeviceSample, made_again: DeviceSample) -> str:
        """Names the first array in which two samples differ; "" where they are equal. The host waits."""
        for (name, array), (_, array_again) in zip(_arrays(sample), _arrays(made_again), strict=True):
            if not np.array_equal(self._device.read(array), self._device.read(array_again)):
                return name
        return ""


def with_rows(device: Device, sample: DeviceSample, rows: Sequence[torch.Tensor]) -> DeviceSample:
    """Returns the sample with copies of ``rows``, contiguous tensors of the host, for which it does not wait."""
    copied = tuple(
        device.put(row.reshape(-1).view(torch.uint8).numpy()).view(row.dtype).view(row.shape)
        if row.numel()
        else row.to(device.torch_device)
        for row in rows
    )
    return replace(sample, rows=copied) if rows else sample


def _fields(key: DrawKey, num_seeds: int, queries: HostQueries | None, spaces: list[DeviceWorkspace]) -> list[int]:
    """Lists what differs from batch to batch, as of :data:`.FIELDS`, but the slab."""
    excluded = None if queries is None else queries.arrays.get("values")
    numbers = [key.seed, key.epoch, key.step, num_seeds, 0 if excluded is None else len(excluded)]
    return [*numbers, spaces[0].batch, spaces[1].batch if len(spaces) > 1 else 0]


def _arrays(sample: DeviceSample) -> Iterator[tuple[str, torch.Tensor]]:
    yield "the nodes", sample.nodes
    if sample.queries is not None:
        yield "the queries", sample.queries
    for number, hop in enumerate(sample.hops):
        for name in ("indptr", "indices", "edge_ids", "edge_weights", "edge_types"):
            if (array := getattr(hop, name)) is not None:
                yield f"{name} of hop {number}", array
