"""The device of a rank that trains or samples: places graphs on it, draws there, and checks that all ranks have
theirs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from lightning_gnnload.cache.builder import print_line
from lightning_gnnload.cache.peers import PeerGroup
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.errors import (
    CudaCallError,
    CudaUnavailableError,
    DeviceMemoryError,
    KernelCompileError,
    LoaderConfigError,
)
from lightning_gnnload.sample.base import Sampler
from lightning_gnnload.sample.device.samplers import (
    DevicePartSampler,
    DeviceSampler,
    check_device,
    draws_by_tables,
)
from lightning_gnnload.sample.parts.sampler import PartSampler
from lightning_gnnload.sample.workload import Workload

if TYPE_CHECKING:
    from lightning_gnnload.ops.cuda.device import Device
    from lightning_gnnload.ops.cuda.topology import Topology

UNAVAILABLE = (CudaUnavailableError, KernelCompileError, DeviceMemoryError, CudaCallError)
"""The errors that keep a rank from its device; with ``"auto"``, it then works on the host."""
_MAX_TEXT = 4000  # of a reason, as it travels in one message
T = TypeVar("T")
_log = logging.getLogger(__name__)


class RankDevice:
    """A rank's device, opened at its first use, hence after its process may have forked. ``otherwise`` says in messages
    what happens without it."""

    def __init__(self, otherwise: str) -> None:
        self._otherwise = otherwise
        self._placed: dict[int, tuple[Graph, Topology]] = {}
        self._logged: set[str] = set()

    def allows(self, reason: str | None, setting: object) -> bool:
        """Whether there is no reason against the device; a reason is logged, or raised with the setting ``"cuda"``."""
        if reason is not None and setting == "cuda":
            raise LoaderConfigError(
                f"sampling_device='cuda', but {reason}. Give sampling_device='auto', which samples on the device what "
                f"it can, or 'cpu'."
            )
        if reason is not None:
            self.say(f"{reason}.")
        return reason is None

    def say(self, reason: str, otherwise: str | None = None) -> None:
        if reason not in self._logged:
            self._logged.add(reason)
            _log.warning("%s: %s", otherwise or self._otherwise, reason)

    def draws(
        self, workload: Workload, request: BatchRequest, place_graph: Callable[[Graph], Topology], device: Device
    ) -> DeviceSampler | DevicePartSampler:
        """Returns the sampler of a phase's mini-batches on the device, after it drew ``request`` as the host does.
        ``place`` is :meth:`place` without its graph. Of a partition, the part of the request's rank is placed at
        once."""
        sampler = workload.sampler
        drawing: DeviceSampler | DevicePartSampler
        if isinstance(sampler, PartSampler):
            drawing = DevicePartSampler(sampler, place_graph, device)
            if request.num_ranks > 1:
                drawing.open(request.rank)  # each trainer trains on one part
        else:
            sampler.check_graph(workload.graph)
            drawing = DeviceSampler(sampler, place_graph(workload.graph), device)
        check_device(drawing, workload, request)
        return drawing

    def place(
        self,
        graph: Graph,
        *,
        device: Device,
        samplers: Iterable[Sampler],
        budget_bytes: int | None = None,
        about: str = "",
        progress: bool = False,
    ) -> Topology:
        """Places the graph, or a part, on the device at the first call, and returns it; see
        :func:`~lightning_gnnload.sample.device.placement.place`. ``samplers`` are all that may draw from it; ``about``
        begins
        the line that ``progress`` prints."""
        from lightning_gnnload.sample.device.placement import place

        if id(graph) not in self._placed:
            weighted = any(draws_by_tables(sampler, graph) for sampler in samplers)
            topology = place(graph, device, weighted=weighted, budget_bytes=budget_bytes, progress=progress)
            if progress:
                print_line(f"{about}{topology.about}")
            # The graph too: were it gone, another could get its id.
            self._placed[id(graph)] = graph, topology
        return self._placed[id(graph)][1]

    def clear(self) -> None:
        self._placed.clear()


def open_together(open_it: Callable[[], T], peers: PeerGroup | None) -> T:
    """Returns what this rank opens, if all ranks that meet can open theirs; else all raise one of
    :data:`UNAVAILABLE`."""
    refusal: Exception | None = None
    try:
        opened = open_it()
    except UNAVAILABLE as error:
        refusal = error
    if peers is not None:
        # Also by a rank that has failed: the others wait for its word.
        answers = peers.all_gather({"refusal": None if refusal is None else str(refusal)[:_MAX_TEXT]})
        for rank, answer in enumerate(answers):
            if refusal is None and (text := answer.fields.get("refusal")) is not None:
                refusal = CudaUnavailableError(f"rank {rank} of this machine cannot use its device: {text}")
    if refusal is not None:
        raise refusal
    return opened
