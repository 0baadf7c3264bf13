"""Fits with one cache after the other, in one launch, and writes what each rank saw.

Arguments: how, num_devices, strategy ("ddp" or "factored", which has two samplers), names of caches (all, when there
are none). In the last but one fit of
"factored" the second sampler is killed; the last one is without it.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch

from lightning_gnnload import (
    CacheMonitor,
    FactoredStrategy,
    FeatureCache,
    FeatureStore,
    GraphData,
    GraphDataModule,
    NeighborSampler,
    NodeTable,
    Packing,
)
from lightning_gnnload.cache.packed import layout
from lightning_gnnload.cache.shared import is_mapped_file
from lightning_gnnload.data.graphdata import SPLITS
from lightning_gnnload.pipeline.loader import EpochLoader
from lightning_gnnload.plugin.compat import pl
from lightning_gnnload.plugin.module import caching
from tests.integration.scripts.toy import NUM_NODES, Recorder, toy_data

CACHES: dict[str, Any] = {
    "none": None,
    "presample": FeatureCache("presample", ratio=0.1),
    "replicated": FeatureCache("degree", ratio=0.1, share="replicated"),
    "clairvoyant": FeatureCache("clairvoyant", ratio=0.1),
    "fifo": FeatureCache("fifo", ratio=0.1),
    "s3fifo": FeatureCache("s3fifo", ratio=0.1),
    "belady": FeatureCache("belady", ratio=0.1),
    "packed": Packing("packed", memory=110_000, room="1GB", window=5, always=True),
    "levels": [FeatureCache("clock", ratio=0.02), FeatureCache("presample", ratio=0.2)],
    "auto": "auto",
    "tables": {"new": FeatureCache("clairvoyant", ratio=0.2), "all": FeatureCache("clock", ratio=0.1)},
}
BROKEN: dict[str, Any] = {
    "tiny": FeatureCache("degree", capacity_bytes=10),
    "differing": FeatureCache("degree", ratio=0.1),
}
"""What ends a fit. In the second, no two ranks have the same features."""
LOST, AFTER = "lost", "after"
FATAL_STEP, FATAL_RANK = 7, "2"


class Anywhere(FeatureStore):
    """A user's own store, of which nobody can tell that it is in memory."""

    def __init__(self, rows: torch.Tensor) -> None:
        self.rows = rows

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.rows), self.rows.shape[1]

    @property
    def dtype(self) -> torch.dtype:
        return self.rows.dtype

    def gather(self, ids: torch.Tensor, out: torch.Tensor) -> None:
        out[:] = self.rows[ids]


class Fatal(NeighborSampler):
    """Kills the second sampler in mid-epoch."""

    def draw(self, graph: Any, draw: Any, memory: Any) -> Any:
        if draw.key.epoch == 1 and draw.key.step >= FATAL_STEP and os.environ.get("LOCAL_RANK") == FATAL_RANK:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().draw(graph, draw, memory)


class Counting(pl.Callback):
    """Sums where this trainer's rows came from in the last epoch, by hand."""

    def __init__(self) -> None:
        self.reads: dict[str, list[int]] = {}

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self.reads = {}

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: Any, outputs: Any, batch: Any, idx: int) -> None:
        loader: Any = trainer.train_dataloader
        assert isinstance(loader, EpochLoader)
        assert loader.last is not None
        for tier, rows, num_bytes in loader.last.reads:
            before = self.reads.setdefault(tier, [0, 0])
            before[0] += rows
            before[1] += num_bytes


def rich_data() -> GraphData:
    """With a table of all nodes, and one of those that came last."""
    data, ids = toy_data(), torch.arange(NUM_NODES)[:, None]
    return GraphData(
        data.graph,
        data.x,
        data.y,
        *(data.split(split) for split in SPLITS),
        tables={"all": ids, "new": NodeTable(ids[NUM_NODES // 4 :].half(), NUM_NODES // 4)},
    )


def run(name: str, cache: Any, strategy: Any, num_devices: int) -> None:
    while gc.collect():  # a Trainer and its model know each other; freeing some rings closes others
        pass
    descriptors = len(os.listdir("/proc/self/fd"))
    pl.seed_everything(1, verbose=False)
    kind = Fatal if name == LOST else NeighborSampler
    graph_data = rich_data()
    if name == "differing":
        graph_data.x.rows.add_(int(os.environ.get("LOCAL_RANK", 0)))  # type: ignore[union-attr]
    if name == "auto":  # which gives a table in memory no cache
        graph_data.put("x", Anywhere(graph_data.x.rows))  # type: ignore[union-attr]
    settings = {"packing" if isinstance(cache, Packing) else "cache": cache}
    data = GraphDataModule(graph_data, kind([4, 3]), batch_size=16, seed=5, **settings)
    model, counting = Recorder(), Counting()
    quiet = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing"), False)
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=num_devices,
        strategy=strategy,
        max_epochs=2,
        num_sanity_val_steps=1,
        callbacks=[counting, CacheMonitor(similarity=0.1)],
        **quiet,  # type: ignore[arg-type]
    )
    trainer.fit(model, data)
    metrics = {key: value.item() for key, value in trainer.callback_metrics.items()}
    trainer.test(model, data, verbose=False)
    wrote = {
        "seen": model.seen,
        "reads": counting.reads,
        "metrics": metrics,
        "descriptors_before": descriptors,
        "is_one_copy": is_mapped_file(data.data.x.rows),
    }
    Path(f"{name}-{trainer.local_rank}.json").write_text(json.dumps(wrote))


if __name__ == "__main__":
    logging.getLogger(pl.__name__).setLevel(logging.ERROR)
    num_devices, kind = int(sys.argv[2]), sys.argv[3]
    caching._WORTH_SHARING_BYTES = 0  # so that even toy features are put together
    layout._LEAST_CHUNK, layout._LEAST_BUFFER = 4096, 4096  # and do not all fit in memory
    cases = {name: BROKEN[name] for name in sys.argv[4:] if name in BROKEN} or dict(CACHES)
    if kind == "factored":
        cases |= {LOST: CACHES["presample"], AFTER: CACHES["presample"]}
    for name in sys.argv[4:] or cases:
        strategy = FactoredStrategy(samplers=2) if kind == "factored" else kind
        run(name, cases[name], strategy, num_devices)
        print(os.environ.get("LOCAL_RANK"), name, flush=True)
