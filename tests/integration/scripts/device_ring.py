"""Trains with sampling on the CPU, then on emulated devices, joined by either ring; at last the sampler is killed.

Arguments: how, num_devices: 3. Each trainer writes what it saw, by case, and by which memory its mini-batches came.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from pytorch_lightning import Callback, Trainer, seed_everything

from lightning_gnnload import FactoredStrategy, FeatureCache
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.ops.cuda.launch import open_device as opening
from lightning_gnnload.ops.cuda.launch import runtime
from lightning_gnnload.ops.cuda.launch.device import Device
from lightning_gnnload.ops.cuda.launch.runtime import Runtime
from lightning_gnnload.pipeline.source import DeviceSource
from lightning_gnnload.plugin.strategy import sampler_device
from tests.cuda.emulated import EmulatedDevice
from tests.cuda.fake_runtime import FakeRuntime
from tests.integration.scripts.toy import Recorder, toy_module

RANK = int(os.environ.get("LOCAL_RANK", 0))
DEVICES = ("gpu-0", "gpu-1", "gpu-2")
SAMPLER = 2


class ToldDevice(EmulatedDevice):
    """Tells what was launched, by operation and kernel."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.launched: set[str] = set()

    def launch(self, op: str, kernel: str, *settings: Any, **arguments: Any) -> None:
        self.launched.add(f"{op}/{kernel}")
        super().launch(op, kernel, *settings, **arguments)


_device = ToldDevice(seed=RANK)
_case = ""


def _open_device(of: Any) -> Device:
    return _device


def _runtime_of(device: Device) -> Runtime:
    apart = [frozenset((other, DEVICES[SAMPLER])) for other in DEVICES[:SAMPLER]] if _case == "host ring" else []
    return FakeRuntime(DEVICES, RANK, apart=apart)


class Watch(Callback):
    """Which slots there are in mid-epoch, and what the trainer's device has done."""

    def __init__(self) -> None:
        self.slots: set[str] = set()

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        self.slots |= {
            type(slot).__name__ for peer in trainer.strategy.queue._pool.peers for slot in peer._slots.values()
        }


class Doomed(DeviceSource):
    def make(self, request: BatchRequest, slot: Any) -> Any:
        if request.epoch == 0 and request.step == 8:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().make(request, slot)


if __name__ == "__main__":
    opening.open_device, runtime.runtime_of = _open_device, _runtime_of
    for _case in ("cpu", "device ring", "host ring", "killed"):
        if _case == "killed":
            sampler_device.DeviceSource = Doomed
        seed_everything(1, verbose=False)
        quiet = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing"), False)
        model, watch = Recorder(), Watch()
        trainer = Trainer(
            accelerator="cpu",
            devices=int(sys.argv[2]),
            strategy=FactoredStrategy(samplers=1),
            max_epochs=1,
            callbacks=[watch],
            **quiet,
        )
        settings = {} if _case == "cpu" else {"sampling_device": "cuda", "cache": FeatureCache(ratio=0.3)}
        trainer.fit(model, toy_module(**settings))
        if RANK != SAMPLER:
            Path(f"{_case}-{RANK}.json").write_text(
                json.dumps([model.seen, sorted(watch.slots), sorted(_device.launched)])
            )
