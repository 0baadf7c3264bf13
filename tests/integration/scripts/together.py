"""Fits over the whole graph, then over parts that lie with the ranks that sample, by all of these together.

Arguments: how, num_devices, strategy ("ddp", or "factored", two of whose ranks sample), the folder of a partition with
each list at its owner, and optionally how a rank is to end: "raises" or "killed". Each rank writes what it saw to
``<run>-<local rank>.json``.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np

from lightning_gnnload import FactoredStrategy, load_partition
from lightning_gnnload.data.orders.local import LocalOrder
from lightning_gnnload.ops import Draw
from lightning_gnnload.plugin.compat import pl
from lightning_gnnload.sample.parts.collective import CollectiveSampler
from tests.integration.scripts.toy import Recorder, digest, toy_data, toy_module

ENDS_AFTER = 8  # mini-batches that a rank samples
RUNS = ("whole", "together")


def watch(how: str | None) -> list[int]:
    """Counts the mini-batches that this rank samples together with others, and of their seeds to train on those that
    it does not hold; ends rank 1 of them in time."""
    sampled: list[int] = [0, 0]
    draw_one, train = CollectiveSampler.draw, toy_data().train

    def watched(self: CollectiveSampler, graph: Any, draw: Draw, memory: np.ndarray) -> Any:
        sampled[0] += 1
        foreign = self.colleagues.partition.part_of(draw.seeds) != self.colleagues.rank
        sampled[1] += int(np.count_nonzero(foreign & np.isin(draw.seeds, train)))
        if sampled[0] == ENDS_AFTER and self.colleagues.rank == 1:
            if how == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if how == "raises":
                raise MemoryError("no room for a mini-batch")
        return draw_one(self, graph, draw, memory)

    CollectiveSampler.draw = watched  # type: ignore[method-assign]
    return sampled


def run(name: str, folder: Path, kind: str, num_devices: int, sampled: list[int]) -> None:
    pl.seed_everything(1, verbose=False)
    settings: dict[str, Any] = {"partition": folder} if name == "together" else {}
    num_trainers = num_devices if kind == "ddp" else num_devices - 2
    if name == "whole":
        parts = [part.seeds["train"] for part in load_partition(folder).parts]
        settings["order"] = LocalOrder(parts, num_ranks=num_trainers)
    module = toy_module(**settings)
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=num_devices,
        strategy=FactoredStrategy(samplers=2) if kind == "factored" else kind,
        max_epochs=2,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
    )
    model = Recorder()
    trainer.fit(model, module)
    wrote = {"seen": model.seen, "weights": digest(model.state_dict().values()), "sampled": sampled}
    Path(f"{name}-{trainer.local_rank}.json").write_text(json.dumps(wrote))


if __name__ == "__main__":
    logging.getLogger(pl.__name__).setLevel(logging.ERROR)
    num_devices, kind, folder = int(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
    how = sys.argv[5] if len(sys.argv) > 5 else None
    sampled = watch(how)
    for name in ("together",) if how else RUNS:
        run(name, folder, kind, num_devices, sampled)
