"""The device of a rank that trains or samples: places graphs on it, draws there, and checks that all ranks have
theirs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

from lightning_gnnload.cache.builder import print_line
from lightning_gnnload.cache.peers import PeerGroup
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.errors import (
    CacheDisagreementError,
    CacheShareError,
    CudaCallError,
    CudaUnavailableError,
    DeviceMemoryError,
    KernelCompileError,
    LoaderConfigError,
)
from lightning_gnnload.plugin.module.gather_group import GatherGroup
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
    from lightning_gnnload.ops.cuda.launch.device import Device
    from lightning_gnnload.ops.cuda.sampling.topology import Topology

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
        self._met: dict[int, Graph] = {}
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

    def meeting(self, workload: Workload, group: GatherGroup) -> AbstractContextManager[PeerGroup | None]:
        """Connects the machine's ranks that are to place the graph together; None where there is nothing to place
        together: it lies there, this rank is alone, or each has another part; or they met over it before, and this
        rank's device failed: the others have it, and would not come again."""
        graph = workload.graph
        if isinstance(workload.sampler, PartSampler) or id(graph) in self._placed or id(graph) in self._met:
            return nullcontext()
        if (membership := group.membership("devices")) is None:
            return nullcontext()
        self._met[id(graph)] = graph
        return membership.connect()

    def place(
        self,
        graph: Graph,
        *,
        device: Device,
        samplers: Iterable[Sampler],
        budget_bytes: int | None = None,
        about: str = "",
        progress: bool = False,
        peers: PeerGroup | None = None,
    ) -> Topology:
        """Places the graph, or a part, on the device at the first call, and returns it; see
        :func:`~lightning_gnnload.sample.device.placement.place`, and with ``peers``, which all come then,
        :func:`~lightning_gnnload.cache.device.shared_lists.place_together`. ``samplers`` are all that may draw from it;
        ``about`` begins the line that ``progress`` prints."""
        from lightning_gnnload.cache.device.shared_lists import place_together
        from lightning_gnnload.ops.cuda.launch.runtime import runtime_of
        from lightning_gnnload.sample.device.placement import place

        if id(graph) not in self._placed:
            weighted = any(draws_by_tables(sampler, graph) for sampler in samplers)
            settings: Any = {"weighted": weighted, "budget_bytes": budget_bytes, "progress": progress}
            if peers is None:
                topology = place(graph, device, **settings)
            else:
                topology = place_together(graph, device, peers, runtime_of(device), **settings)
            if progress:
                print_line(f"{about}{topology.about}")
            # The graph too: were it gone, another could get its id.
            self._placed[id(graph)] = graph, topology
        return self._placed[id(graph)][1]

    def clear(self) -> None:
        """Frees the graphs; of what other ranks read, once they are done with it."""
        self._met.clear()
        placed, self._placed = self._placed, {}
        for _, topology in placed.values():
            if topology.memory is not None:
                topology.memory.close()


def open_each(open_it: Callable[[], T], peers: PeerGroup | None) -> tuple[T, PeerGroup | None]:
    """Returns what this rank opens, and the ranks that meet if each could open its own; None where one could not, and
    the others go on without it."""
    refusal: Exception | None = None
    try:
        opened = open_it()
    except UNAVAILABLE as error:
        refusal = error
    if peers is not None and not all(value.fields["has"] for value in peers.all_gather({"has": refusal is None})):
        peers = None
    if refusal is not None:
        raise refusal
    return opened, peers


@contextmanager
def sharing_errors(*, is_required: bool) -> Iterator[None]:
    """Makes the failure of another rank, with which this one shares memory of devices, one of :data:`UNAVAILABLE`,
    unless the device is required."""
    try:
        yield
    except CacheDisagreementError:
        raise
    except CacheShareError as error:
        if is_required:
            raise
        raise CudaUnavailableError(f"ranks cannot share the memory of their devices: {error}") from error


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
        try:
            answers = peers.all_gather({"refusal": None if refusal is None else str(refusal)[:_MAX_TEXT]})
        except CacheShareError as error:
            # A failure of this rank that has ended the group says more.
            raise refusal or error from None
        for rank, answer in enumerate(answers):
            if refusal is None and (text := answer.fields.get("refusal")) is not None:
                refusal = CudaUnavailableError(f"rank {rank} of this machine cannot use its device: {text}")
    if refusal is not None:
        raise refusal
    return opened
