"""A fit that a PipelineMonitor watches, and the same one unwatched: under FactoredStrategy and under plain DDP."""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

from pytorch_lightning import Trainer, seed_everything
from pytorch_lightning.loggers import CSVLogger

from lightning_gnnload import FactoredStrategy, PipelineMonitor
from tests.integration.scripts.toy import Recorder, digest, toy_module


def fit(strategy: Any, num_devices: int, monitor: PipelineMonitor | None) -> str:
    """Trains, and tells the weights."""
    seed_everything(1, verbose=False)
    model = Recorder()
    trainer = Trainer(
        accelerator="cpu",
        devices=num_devices,
        strategy=strategy,
        max_epochs=2,
        limit_train_batches=8,
        limit_val_batches=2,
        log_every_n_steps=4,
        logger=CSVLogger(".", version=0) if monitor is not None else False,
        callbacks=[] if monitor is None else [monitor],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, toy_module(batch_size=8))
    if monitor is not None and monitor.report is not None and trainer.is_global_zero:
        Path("report.json").write_text(json.dumps({"batches": monitor.report.loader.num_batches}))
    return digest(model.state_dict().values())


if __name__ == "__main__":
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    num_devices, kind = int(sys.argv[2]), sys.argv[3]
    weights = []
    for monitor in (PipelineMonitor(timeline=(2, 6)), None):
        strategy: Any = FactoredStrategy(samplers=1, sampler_threads=2) if kind == "factored" else kind
        weights.append(fit(strategy, num_devices, monitor))
    Path(f"weights-{os.environ.get('LOCAL_RANK', 0)}.json").write_text(json.dumps(weights))
