"""Trains on several nodes, one launch of this script each, and writes what each trainer saw and listened on.

Arguments: how, num_devices, num_nodes, num_samplers, cases of loops.py. In the environment, STRATEGY has other
arguments of the strategy and DATA those of the data module, as JSON; DATA's ``data`` takes the graph's place.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from lightning_gnnload import FactoredStrategy, GraphDataModule, NeighborSampler
from lightning_gnnload.plugin.compat import pl
from tests.integration.scripts.loops import CASES, run
from tests.integration.scripts.toy import toy_data


class Listening(pl.Callback):
    """Writes down at which addresses the trainer's process listens, in mid-epoch."""

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        if trainer.global_step == 2:
            found = [c.laddr.ip for c in psutil.Process().net_connections("inet") if c.status == psutil.CONN_LISTEN]
            Path(f"listens-{trainer.global_rank}.json").write_text(json.dumps(found))


def module(data: Any = None, **settings: Any) -> GraphDataModule:
    data = toy_data() if data is None else data
    return GraphDataModule(data, NeighborSampler([4, 3]), batch_size=16, seed=5, predict="test", **settings)


if __name__ == "__main__":
    logging.getLogger(pl.__name__).setLevel(logging.ERROR)
    how, (devices, num_nodes, num_samplers) = sys.argv[1], map(int, sys.argv[2:5])
    for name in sys.argv[5:]:
        case = CASES[name]
        case.options["num_nodes"] = num_nodes
        case.callbacks = lambda given=case.callbacks: [*given(), Listening()]
        if data := json.loads(os.environ.get("DATA", "{}")):
            case.data = partial(module, **data)
        options = {"start_method": how if how in ("spawn", "fork") else "popen"}
        strategy = FactoredStrategy(num_samplers, **options | json.loads(os.environ.get("STRATEGY", "{}")))
        run(case, Path.cwd() / name, devices, strategy)
