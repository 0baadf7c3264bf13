"""Trains one model on one graph with one loader and strategy, as a job of its own: ``epochs.py`` starts it.

Argument: JSON with the contender's name, the graph's, epochs, steps of each (0: all), and the file that trainer 0
writes its times to.
"""

from __future__ import annotations

import json
import logging
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.profilers import SimpleProfiler
from torch import nn
from torch.nn import functional

from lightning_gnnload import FactoredStrategy, GraphDataModule, NeighborSampler, accelerate
from tests.benchmarks.graphs import GRAPHS
from tests.plain_sage import GraphSAGE

GLOBAL_BATCH, FANOUTS, HIDDEN = 1024, [15, 10], 256
NEXT, STEP = "[_TrainingEpochLoop].train_dataloader_next", "run_training_batch"
"""What Lightning's profiler calls waiting for a batch, and the training step with its reduction and update."""


class GraphSAGEOnDGL(GraphSAGE):
    """The same layers on DGL's blocks, with DGL's kernel for the mean and torch's dropout."""

    def __init__(self, *sizes: Any, **settings: Any) -> None:
        super().__init__(*sizes, **settings)
        self.dropout = nn.Sequential(nn.ReLU(), nn.Dropout(self.dropout.p))

    def forward(self, batch: Any) -> torch.Tensor:
        import dgl

        blocks = batch[2]
        x = blocks[0].srcdata["feat"]
        for index, (conv, block) in enumerate(zip(self.convs, blocks, strict=True)):
            x = self.dropout(x) if index else x
            x = conv.own(x[: block.num_dst_nodes()]) + conv.neighbors(dgl.ops.copy_u_mean(block, x))
        return x

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = functional.cross_entropy(self(batch), batch[2][-1].dstdata["label"])
        self.log("train_loss", loss, prog_bar=True, batch_size=len(batch[1]))
        return loss


class GraphSAGEOnDGLWithOurDropout(GraphSAGEOnDGL):
    def __init__(self, *sizes: Any, **settings: Any) -> None:
        super().__init__(*sizes, **settings)
        accelerate(self, fuse_relu=True)


class DGLModule(pl.LightningDataModule):
    """DGL's own loader, as its documentation has it under DistributedDataParallel."""

    def __init__(self, graph: str, batch_size: int, num_workers: int) -> None:
        super().__init__()
        self.graph, self.batch_size, self.num_workers = graph, batch_size, num_workers

    def train_dataloader(self) -> Any:
        """Made here, where the process group is there that ``use_ddp`` asks."""
        import dgl

        from tests.benchmarks.peer_dgl import PeerDGL

        peer = PeerDGL(self.graph)
        sampler = dgl.dataloading.NeighborSampler(
            FANOUTS[::-1], prefetch_node_feats=["feat"], prefetch_labels=["label"]
        )
        return dgl.dataloading.DataLoader(
            peer.graph,
            torch.from_numpy(peer.train),
            sampler,
            use_ddp=True,
            batch_size=self.batch_size,
            shuffle=True,
            num_workers=self.num_workers,
        )


class EpochTimes(pl.Callback):
    """Of each epoch in trainer 0: seconds in all, waiting for batches, and in training steps; and the mean loss.

    Args:
        file: to write them to, when the fit has ended.
        profiler: the Trainer's.
        num_threads: of torch; None leaves them as they are.
    """

    def __init__(self, file: Path, profiler: SimpleProfiler, num_threads: int | None) -> None:
        self.file, self.profiler, self.num_threads = file, profiler, num_threads
        self.epochs: list[dict[str, float]] = []

    def on_fit_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        if self.num_threads is not None:
            torch.set_num_threads(self.num_threads)

    def on_train_epoch_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        loader = trainer.train_dataloader
        if hasattr(loader, "set_epoch"):  # which nobody calls for DGL's
            loader.set_epoch(trainer.current_epoch)
        self.losses: list[torch.Tensor] = []
        self.before = self._spent()
        self.began = time.perf_counter()

    def on_train_batch_end(self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, *_: Any) -> None:
        self.losses.append(outputs["loss"].detach())

    def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        seconds = time.perf_counter() - self.began
        wait, step = (after - before for after, before in zip(self._spent(), self.before, strict=True))
        loss = float(torch.stack(self.losses).mean())
        self.epochs.append({"seconds": seconds, "wait": wait, "step": step, "steps": len(self.losses), "loss": loss})

    def on_fit_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        if trainer.is_global_zero:
            self.file.write_text(json.dumps({"epochs": self.epochs, "torch_threads": torch.get_num_threads()}))

    def _spent(self) -> tuple[float, float]:
        durations = self.profiler.recorded_durations
        return sum(durations[NEXT]), sum(durations[STEP])


@dataclass(frozen=True)
class Contender:
    """How one of them trains: by ``num_trainers`` of ``devices`` ranks.

    Args:
        data: makes the data module, of (graph, seeds per trainer).
        model: the class of the model.
        num_threads: torch's in each rank; None leaves them as the strategy sets them.
    """

    title: str
    devices: int
    num_trainers: int
    strategy: Callable[[], Any]
    data: Callable[[str, int], pl.LightningDataModule]
    model: type[GraphSAGE] = GraphSAGE
    num_threads: int | None = None


def ours(graph: str, batch_size: int) -> GraphDataModule:
    return GraphDataModule(GRAPHS[graph], NeighborSampler(FANOUTS), batch_size=batch_size)


CONTENDERS = {
    "factored": Contender("FactoredStrategy: 1 sampler, 1 trainer", 2, 1, lambda: FactoredStrategy(samplers=1), ours),
    "factored_one": Contender(
        "FactoredStrategy: 1 sampler, 1 trainer with one thread",
        *(2, 1, lambda: FactoredStrategy(samplers=1), ours, GraphSAGE, 1),
    ),
    "ddp": Contender("GraphDataModule, DDP: 2 ranks", 2, 2, lambda: "ddp", ours),
    "auto": Contender("GraphDataModule, 1 rank with all cores", 1, 1, lambda: "auto", ours),
    "dgl": Contender(
        "DGL DataLoader, DDP: 2 ranks",
        *(2, 2, lambda: "ddp", lambda graph, size: DGLModule(graph, size, num_workers=0), GraphSAGEOnDGL),
    ),
    "dgl_dropout": Contender(
        "DGL DataLoader, DDP: 2 ranks, our dropout",
        *(2, 2, lambda: "ddp", lambda graph, size: DGLModule(graph, size, 0), GraphSAGEOnDGLWithOurDropout),
    ),
    "dgl_workers": Contender(
        "DGL DataLoader, DDP: 2 ranks, a worker each",
        *(2, 2, lambda: "ddp", lambda graph, size: DGLModule(graph, size, num_workers=1), GraphSAGEOnDGL),
    ),
}


def main() -> None:
    name, graph, epochs, steps, file = json.loads(sys.argv[1])
    warnings.filterwarnings("ignore")
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    contender, profiler = CONTENDERS[name], SimpleProfiler()
    data = GRAPHS[graph].load()
    pl.seed_everything(0, verbose=False)
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=contender.devices,
        strategy=contender.strategy(),
        max_epochs=epochs,
        limit_train_batches=steps or 1.0,
        limit_val_batches=0,
        use_distributed_sampler=False,
        profiler=profiler,
        callbacks=[EpochTimes(Path(file), profiler, contender.num_threads)],
        **dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing"), False),
    )
    model = contender.model(data.num_features, data.num_classes, hidden=HIDDEN, num_layers=len(FANOUTS))
    trainer.fit(model, contender.data(graph, GLOBAL_BATCH // contender.num_trainers))


if __name__ == "__main__":
    main()
