"""Fits over the whole graph, then over a partition's head, whose lists and rows lie with owners, and again in two
halves, the second of which resumes in mid-epoch.

Arguments: how, num_devices, strategy ("ddp", "ddp_spawn", or "factored", one of whose ranks samples), and the folder of
the head. GNNLOAD_OWNERS has the owners' addresses. Each trainer writes its losses and weights to ``<run>-<rank>.json``.
"""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Any

from lightning_gnnload import FactoredStrategy, GraphDataModule, NeighborSampler
from lightning_gnnload.plugin.compat import pl
from tests.integration.scripts.resume import CHECKPOINT, SaveIn
from tests.integration.scripts.toy import Recorder, digest, toy_module

RUNS = ("whole", "owned", "resumed")
MID_EPOCH = 13  # of twice ten steps


def run(name: str, head: Path, kind: str, num_devices: int) -> None:
    pl.seed_everything(1, verbose=False)
    if name == "whole":
        module = toy_module()
    else:
        settings: dict[str, Any] = {"batch_size": 16, "seed": 5, "predict": "test"}
        module = GraphDataModule(head, NeighborSampler([4, 3]), graph="remote", features="remote", **settings)
    strategy = FactoredStrategy(samplers=1) if kind == "factored" else kind
    options: dict[str, Any] = {"accelerator": "cpu", "devices": num_devices, "strategy": strategy, "logger": False}
    options |= {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    checkpoint = None
    if name == "resumed":
        checkpoint = Path(CHECKPOINT).absolute()
        saving = SaveIn("on_train_batch_end", batch=MID_EPOCH - 10 - 1, epoch=1)
        pl.Trainer(max_epochs=2, callbacks=[saving], **options).fit(Recorder(), module)
        if kind == "factored":
            strategy = options["strategy"] = FactoredStrategy(samplers=1)
    trainer, model = pl.Trainer(max_epochs=2, **options), Recorder()
    trainer.fit(model, module, ckpt_path=checkpoint)
    wrote = {"seen": model.seen, "weights": digest(model.state_dict().values())}
    Path(f"{name}-{trainer.global_rank}.json").write_text(json.dumps(wrote))


if __name__ == "__main__":
    logging.getLogger(pl.__name__).setLevel(logging.ERROR)
    num_devices, kind, head = int(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
    for name in RUNS:
        run(name, head, kind, num_devices)
