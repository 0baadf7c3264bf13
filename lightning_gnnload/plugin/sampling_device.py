"""Where a data module's mini-batches are made: on the host or, where that can be, on the device that trains on them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import torch

from lightning_gnnload.data.block import MiniBatch
from lightning_gnnload.data.tables import NodeTable
from lightning_gnnload.errors import CudaUnavailableError, DeviceMemoryError, KernelCompileError, LoaderConfigError
from lightning_gnnload.pipeline.arrivals import Arrivals
from lightning_gnnload.pipeline.device_batches import DeviceBatches, Rows
from lightning_gnnload.pipeline.host_rows import HostRows
from lightning_gnnload.pipeline.source import BatchSource
from lightning_gnnload.plugin.settings import check_choice
from lightning_gnnload.sample.on_device import OnDevice, can_sample, draws_by_weight, heed_zero_weights

if TYPE_CHECKING:
    from lightning_gnnload.ops.cuda.device import Device
    from lightning_gnnload.ops.cuda.topology import Topology
    from lightning_gnnload.plugin.datamodule import GraphDataModule

Setting = Literal["auto", "cpu", "cuda"]
_log = logging.getLogger(__name__)


class SamplingDevice:
    """Makes a data module's mini-batches on its trainer's device, which is opened when the first one is needed.

    Args:
        setting: as ``GraphDataModule(sampling_device=...)`` takes it.

    Raises:
        LoaderConfigError: no such setting.
    """

    def __init__(self, setting: Setting) -> None:
        check_choice("sampling_device", setting, ("auto", "cpu", "cuda"))
        self.setting = setting
        self._opening = threading.Lock()
        self._topology: Topology | None = None
        self._rows: dict[str, Rows] = {}
        self._said: set[str] = set()

    def batches(
        self, module: GraphDataModule, source: BatchSource, convert: Callable[[MiniBatch], Any]
    ) -> DeviceBatches | None:
        """A phase's mini-batches on the device; None where the host makes them, for which ``"auto"`` says why, once.

        Raises:
            CudaUnavailableError, KernelCompileError, DeviceMemoryError: with ``"cuda"``.
            LoaderConfigError: with ``"cuda"``, mini-batches that no device can make.
        """
        computes_on = _root_device(module)
        if self.setting == "cpu" or (self.setting == "auto" and computes_on.type != "cuda"):
            return None
        if (reason := why_not(source, module.batch_format)) is not None:
            if self.setting == "cuda":
                raise LoaderConfigError(
                    f"sampling_device='cuda', but {reason}. Give sampling_device='auto', which samples on the device "
                    f"what it can, or 'cpu'."
                )
            self._say(f"{reason}.")
            return None
        try:
            with self._opening:
                return self._open(module, source, convert, computes_on)
        except (CudaUnavailableError, KernelCompileError, DeviceMemoryError) as error:
            if self.setting == "cuda" and computes_on.type != "cuda":
                raise CudaUnavailableError(
                    f"sampling_device='cuda', but the Trainer computes on {computes_on}. Give "
                    f"Trainer(accelerator='gpu'), or sampling_device='auto', which samples where it computes."
                ) from error
            if self.setting == "cuda":
                raise
            self._say(str(error))
            return None

    def arrivals(self, module: GraphDataModule, source: BatchSource) -> Arrivals | None:
        """What brings samplers' mini-batches to the device and gathers their features there; None where the samplers
        are to gather them.

        Raises:
            CudaUnavailableError, DeviceMemoryError: with ``"cuda"``.
        """
        computes_on = _root_device(module)
        if self.setting == "cpu" or (self.setting == "auto" and computes_on.type != "cuda"):
            return None
        reason = why_not_gathered(source, module.batch_format)
        try:
            if reason is None:
                from lightning_gnnload.ops.cuda.opening import open_device

                with self._opening:
                    device = open_device(computes_on)
                    return Arrivals(self._rows_of(source, device), device)
        except (CudaUnavailableError, DeviceMemoryError) as error:
            if self.setting == "cuda":
                raise
            reason = str(error)
        self._say(reason, what="Samplers gather the features")
        return None

    def close(self) -> None:
        """Gives back the device's memory. What it holds is put there again when it is next needed."""
        with self._opening:
            rows, self._rows, self._topology = self._rows, {}, None
        for each in rows.values():
            if (close := getattr(each, "close", None)) is not None:
                close()

    def __getstate__(self) -> dict[str, Any]:
        """Another process has a device of its own."""
        return {"setting": self.setting}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["setting"])  # type: ignore[misc]

    def _open(
        self,
        module: GraphDataModule,
        source: BatchSource,
        convert: Callable[[MiniBatch], Any],
        computes_on: torch.device,
    ) -> DeviceBatches:
        from lightning_gnnload.ops.cuda.opening import open_device
        from lightning_gnnload.sample.placement import place

        device = open_device(computes_on)
        sampler = source.workload.sampler
        if self._topology is None:
            weighted = any(map(draws_by_weight, (module.sampler, module.eval_sampler)))
            self._topology = place(source.data.graph, device, weighted=weighted)
        heed_zero_weights(sampler, source.data.graph)
        draws = OnDevice(sampler, self._topology, device)
        return DeviceBatches(source, draws, self._rows_of(source, device), device, convert=convert, max_threads=1)

    def _rows_of(self, source: BatchSource, device: Device) -> dict[str, Rows]:
        for name, store in source.features.items():
            if name not in self._rows:
                self._rows[name] = HostRows(store, device)
        return self._rows

    def _say(self, reason: str, what: str = "Mini-batches are sampled on the CPU") -> None:
        if reason not in self._said:
            self._said.add(reason)
            _log.warning("%s: %s", what, reason)


def _root_device(module: GraphDataModule) -> torch.device:
    """Where the trainer computes; without a trainer, where mini-batches by hand are made."""
    if module.trainer is not None:
        return module.trainer.strategy.root_device
    return torch.device("cuda" if module.sampling_device == "cuda" else "cpu")


def why_not(source: BatchSource, batch_format: str) -> str | None:
    """Why mini-batches of this source have to be made on the host; None where a device can make them."""
    return can_sample(source.workload.sampler) or why_not_gathered(source, batch_format)


def why_not_gathered(source: BatchSource, batch_format: str) -> str | None:
    """Why features of this source, wherever it is sampled, have to be gathered on the host."""
    sampler, data = source.workload.sampler, source.data
    if data.edge_x is not None:
        return "the data has edge features, which are gathered on the host"
    for name, table in data.tables.items():
        if isinstance(table, NodeTable):
            return f"table {name!r} has rows of one node type alone, which are found on the host"
    if batch_format != "blocks" and getattr(sampler, "edge_ids", False) and data.graph.edge_order is not None:
        return f"batch_format={batch_format!r} asks for edge ids of the graph as it was given, which the host looks up"
    return None
