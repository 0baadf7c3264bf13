"""CacheProbe: opens caches when the first steps of a fit have shown how much memory they leave."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

from lightning_gnnload.cache.budget import Allowance
from lightning_gnnload.cache.builder import print_line
from lightning_gnnload.cache.device.memory_use import DeviceMemory, MemoryUse, allowance
from lightning_gnnload.cache.peers import Membership, PeerGroup
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.errors import CacheShareError, DeviceMemoryError
from lightning_gnnload.host.memory import free_bytes
from lightning_gnnload.host.pages import mapped_file

WARM_UP_STEPS = 4
"""Steps before memory is measured: the first one makes the optimizer's state, and mini-batches differ in size."""
_log = logging.getLogger(__name__)

OpenCache = Callable[[Allowance, PeerGroup | None], None]
"""Opens the cache in so much of each device; the ranks that share it do so at once, and raise alike."""


class MachineMemory:
    """The machine's memory, as the training process sees it. Its peak includes pages of files; what the graph's files
    take is not free, as sampling reads them again and again."""

    def __init__(self, graph: Graph) -> None:
        names = graph.ARRAYS if graph.has_lists else ()
        arrays = [array for name in names if (array := getattr(graph, name)) is not None]
        self._mapped_bytes = sum(array.nbytes for array in arrays if mapped_file(array.ctypes.data) is not None)

    def use(self) -> MemoryUse:
        status = Path("/proc/self/status").read_text()
        now, peak = (1024 * int(status.partition(f"{name}:")[2].split()[0]) for name in ("VmRSS", "VmHWM"))
        free = free_bytes()
        return MemoryUse("memory", total=free, free=max(free - self._mapped_bytes, 0), reserved=now, peak=peak)


class CacheProbe:
    """Opens a cache once the first ``num_steps`` optimizer steps of a fit have shown how much memory they leave. It
    changes no row. For the thread that trains.

    All ranks of ``membership``, which share the cache, call :meth:`begin_step` before each step, and meet before the
    same one: no step is under way then. ``open_cache`` raises DeviceMemoryError or CacheShareError, which is an error
    if ``required``, else a warning. ``where`` and ``advice`` are for messages.
    """

    def __init__(
        self,
        memory: DeviceMemory,
        open_cache: OpenCache,
        *,
        membership: Membership | None = None,
        num_steps: int = WARM_UP_STEPS,
        required: bool = False,
        progress: bool = True,
        where: str = "on the devices",
        advice: str = "Lower batch_size, or give FeatureCache(device='cpu').",
    ) -> None:
        self._memory, self._open_cache, self._membership = memory, open_cache, membership
        self._num_steps, self._required, self._progress = num_steps, required, progress
        self._where, self._advice = where, advice
        self._first: int | None = None
        self.is_over = False

    def begin_step(self, num_updates: int) -> None:
        """Opens the cache where the warm-up is over. ``num_updates``, optimizer steps so far with those of a resumed
        fit, is alike in all ranks. Raises DeviceMemoryError, CacheShareError: the cache is required, and cannot be
        opened."""
        if self._first is None:
            self._first = num_updates
        if self.is_over or num_updates - self._first < self._num_steps:
            return
        # Before the attempt: what failed once is not tried again before each step.
        self.is_over = True
        try:
            with nullcontext() if self._membership is None else self._membership.connect() as peers:
                self._open(peers)
        except (DeviceMemoryError, CacheShareError) as error:
            if self._required:
                raise
            _log.warning("There is no cache of features %s: %s", self._where, error)

    def _open(self, peers: PeerGroup | None) -> None:
        use = self._memory.use()
        # Each rank has had its peak before it comes here, and does nothing until all have reported.
        uses = [use]
        if peers is not None:
            uses = [MemoryUse.from_fields(answer.fields) for answer in peers.all_gather(use.fields())]
        allowed = allowance(uses)
        if self._progress:
            print_line(f"Feature cache {self._where}: {allowed}")
        if not allowed.num_bytes:
            raise DeviceMemoryError(f"training leaves no room ({allowed.reason}). {self._advice}")
        self._open_cache(allowed, peers)
