"""A rank's device, whether it trains or samples: what is placed there, what draws from that, and whether all ranks of a
machine have theirs."""

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
from lightning_gnnload.sample.on_device import DevicePartSampler, DeviceSampler, check_device
from lightning_gnnload.sample.parts import PartSampler
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
    """The device of a sampler rank, which is opened with the first stream, hence after its process may have forked.

    Args:
        otherwise: what is done without it, for messages.
    """

    def __init__(self, otherwise: str) -> None:
        self._otherwise = otherwise
        self._placed: dict[int, tuple[Graph, Topology]] = {}
        self._said: set[str] = set()

    def allows(self, reason: str | None, setting: object) -> bool:
        """Whether there is no reason against the device; one that there is is logged.

        Raises:
            LoaderConfigError: with the setting ``"cuda"``.
        """
        if reason is not None and setting == "cuda":
            raise LoaderConfigError(
                f"sampling_device='cuda', but {reason}. Give sampling_device='auto', which samples on the device what "
                f"it can, or 'cpu'."
            )
        if reason is not None:
            self.say(f"{reason}.")
        return reason is None

    def say(self, reason: str, otherwise: str | None = None) -> None:
        if reason not in self._said:
            self._said.add(reason)
            _log.warning("%s: %s", otherwise or self._otherwise, reason)

    def draws(
        self, workload: Workload, request: BatchRequest, place: Callable[[Graph], Topology], device: Device
    ) -> DeviceSampler | DevicePartSampler:
        """Returns what draws a phase's mini-batches, after one of them was compared with the host's.

        Args:
            workload: what is drawn.
            request: the mini-batch to compare. Of a partition, its rank's part is placed now.
            place: :meth:`place`, with all that it needs besides a graph.
            device: this rank's.
        """
        sampler = workload.sampler
        drawing: DeviceSampler | DevicePartSampler
        if isinstance(sampler, PartSampler):
            drawing = DevicePartSampler(sampler, place, device)
            if request.num_ranks > 1:
                drawing.open(request.rank)  # each trainer trains on one part
        else:
            sampler.check_graph(workload.graph)
            drawing = DeviceSampler(sampler, place(workload.graph), device)
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
        """Places the graph on the device, on the first call, and returns it; see
        :func:`~lightning_gnnload.sample.placement.place`.

        Args:
            graph: whole, or a part.
            device: this rank's.
            samplers: all that may draw from it.
            budget_bytes: of the device's memory.
            about: what the line begins with that says what lies where.
            progress: show bars, and that line.
        """
        from lightning_gnnload.sample.placement import place

        if id(graph) not in self._placed:
            weighted = any(sampler.weighting == "always" for sampler in samplers)
            topology = place(graph, device, weighted=weighted, budget_bytes=budget_bytes, progress=progress)
            if progress:
                print_line(f"{about}{topology.about}")
            # The graph too: were it gone, another could get its id.
            self._placed[id(graph)] = graph, topology
        return self._placed[id(graph)][1]

    def clear(self) -> None:
        """Gives the graphs' memory back."""
        self._placed.clear()


def agreed(open_it: Callable[[], T], peers: PeerGroup | None) -> T:
    """Returns what this rank opens, if all ranks that meet can open theirs.

    Raises:
        CudaUnavailableError, KernelCompileError, DeviceMemoryError, CudaCallError: this rank cannot, or another one.
    """
    refusal: Exception | None = None
    try:
        opened = open_it()
    except UNAVAILABLE as error:
        refusal = error
    if peers is not None:
        # Also by a rank that has failed: the others wait for its word.
        told = peers.all_gather({"refusal": None if refusal is None else str(refusal)[:_MAX_TEXT]})
        for rank, given in enumerate(told):
            if refusal is None and (text := given.fields.get("refusal")) is not None:
                refusal = CudaUnavailableError(f"rank {rank} of this machine cannot use its device: {text}")
    if refusal is not None:
        raise refusal
    return opened
