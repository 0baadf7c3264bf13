"""Trains on several nodes, one launch of this script each, and writes what each trainer saw and listened on.

Arguments: how, num_devices, num_nodes, num_samplers, cases of loops.py. The last SAMPLER_NODES machines only sample.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

import psutil

from lightning_gnnload import FactoredStrategy
from lightning_gnnload.plugin.compat import pl
from tests.integration.scripts.loops import CASES, run


class Listening(pl.Callback):
    """Writes down at which addresses the trainer's process listens, in mid-epoch."""

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        if trainer.global_step == 2:
            found = [c.laddr.ip for c in psutil.Process().net_connections("inet") if c.status == psutil.CONN_LISTEN]
            Path(f"listens-{trainer.global_rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    logging.getLogger(pl.__name__).setLevel(logging.ERROR)
    how, (devices, num_nodes, num_samplers) = sys.argv[1], map(int, sys.argv[2:5])
    for name in sys.argv[5:]:
        case = CASES[name]
        case.options["num_nodes"] = num_nodes
        case.callbacks = lambda given=case.callbacks: [*given(), Listening()]
        sampler_nodes = int(os.environ.get("SAMPLER_NODES", "0"))
        strategy = FactoredStrategy(
            num_samplers, sampler_nodes=sampler_nodes, start_method=how if how in ("spawn", "fork") else "popen"
        )
        run(case, Path.cwd() / name, devices, strategy)
