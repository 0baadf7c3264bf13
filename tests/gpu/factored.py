"""Trains with a sampler rank and a trainer rank on one GPU, drawn on the CPU, then on it. Arguments: how, num_devices.

The trainer writes what it saw, by where it was drawn, and in what memory its mini-batches came.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from pytorch_lightning import Callback, Trainer, seed_everything

from lightning_gnnload import FactoredStrategy
from tests.gpu.test_fit import DeviceRecorder
from tests.integration.scripts.toy import toy_module


class Watch(Callback):
    def __init__(self) -> None:
        self.slots: set[str] = set()

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        peers = trainer.strategy.queue._pool.peers
        self.slots |= {type(slot).__name__ for peer in peers for slot in peer._slots.values()}


if __name__ == "__main__":
    for place in ("cpu", "cuda"):
        seed_everything(3, verbose=False)
        model, watch = DeviceRecorder(), Watch()
        quiet = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing"), False)
        strategy = FactoredStrategy(samplers=1, trainers=1)
        trainer = Trainer(
            accelerator="gpu",
            devices=1,
            strategy=strategy,
            max_epochs=2,
            deterministic="warn",
            callbacks=[watch],
            **quiet,
        )
        trainer.fit(model, toy_module(sampling_device=place))
        if int(os.environ.get("LOCAL_RANK", 0)) == 0:
            Path(f"{place}.json").write_text(json.dumps([model.seen, sorted(watch.slots)]))
