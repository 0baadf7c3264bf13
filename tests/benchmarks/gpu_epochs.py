"""``python -m tests.benchmarks.gpu_epochs [--quick]``: epochs of training on a GPU, and what their stages take.

The first table takes the stages one after the other, waiting for each, as GNNLab's Table 5 does: sampling (S),
extracting features (E) and training (T), for samplers on the host and on the GPU and caches of several sizes. The
second has whole epochs by Lightning, where the stages overlap. A graph without features and labels, such as
``--graph growth`` of papers100M's size, is given some, of its widths: 57 GB.

Source: GNNLab (EuroSys'22), section 7.3 and Table 5.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from itertools import pairwise, product
from typing import Any, Protocol

import numpy as np
import pytorch_lightning as pl
import torch
from torch import nn
from torch.nn import functional

from lightning_gnnload import FeatureCache, GraphData, GraphDataModule, NeighborSampler
from lightning_gnnload.cache.device.device_builder import open_on_device
from lightning_gnnload.data.block import Block, MiniBatch
from lightning_gnnload.data.orders.seeds import Shuffled
from lightning_gnnload.errors import DeviceMemoryError
from lightning_gnnload.ops import Draw, DrawKey
from lightning_gnnload.ops.cuda.launch.device import Device
from lightning_gnnload.ops.cuda.launch.timing import Moment
from lightning_gnnload.ops.cuda.sampling.sample import DeviceSample
from lightning_gnnload.sample.device.placement import place
from lightning_gnnload.sample.device.samplers import DeviceSampler, UploadingSampler
from lightning_gnnload.sample.workload import Workload
from tests.benchmarks import gpu_device, machine
from tests.benchmarks.graphs import GRAPHS
from tests.plain_sage import GraphSAGE

HIDDEN, NUM_SEEDS, FANOUTS = 256, 8000, [15, 10, 5]
WIDTH, NUM_CLASSES = 128, 172
PERCENTS = (0, 1, 5, 10, 25, 50, 100)


class GCNConv(nn.Module):
    """``W mean(x_dst, x_src)``: a destination counts as one of its neighbours."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.all = nn.Linear(in_features, out_features)

    def forward(self, block: Block, x: torch.Tensor) -> torch.Tensor:
        summed = functional.embedding_bag(block.indices, x, block.indptr, mode="sum", include_last_offset=True)
        return self.all((x[: block.num_dst] + summed) / (block.in_degrees + 1).unsqueeze(1))


class PlainGCN(GraphSAGE):
    """The same model with one weight a layer."""

    def __init__(self, in_features: int, num_classes: int, **settings: Any) -> None:
        super().__init__(in_features, num_classes, **settings)
        self.convs = nn.ModuleList(GCNConv(conv.own.in_features, conv.own.out_features) for conv in self.convs)


MODELS: dict[str, type[GraphSAGE]] = {"GraphSAGE": GraphSAGE, "GCN": PlainGCN}


class Draws(Protocol):
    def sample(self, seeds: np.ndarray, key: DrawKey) -> DeviceSample: ...


def new_model(name: str, data: GraphData) -> GraphSAGE:
    pl.seed_everything(0, verbose=False)
    return MODELS[name](data.num_features, data.num_classes, hidden=HIDDEN, num_layers=len(FANOUTS))


def with_rows(data: GraphData) -> GraphData:
    """With features and labels; those that are missing mean nothing, which takes as long."""
    if data.x is not None and data.y is not None:
        return data
    x = torch.empty(data.num_nodes, WIDTH).fill_(1)
    y = torch.arange(data.num_nodes) % NUM_CLASSES
    return GraphData(data.graph, x=x, y=y, train=data.train, num_classes=NUM_CLASSES)


def cache_of(percent: int, policy: str) -> FeatureCache | None:
    return FeatureCache(ratio=percent / 100, device="cuda", policy=policy) if percent else None


def stages(
    device: Device, data: GraphData, name: str, draws: Draws, cache: FeatureCache | None, num_steps: int
) -> list[float]:
    """Median milliseconds of sampling, extracting and training, each waited for; two steps are not counted.

    Raises:
        DeviceMemoryError: the device has no room for the cache.
    """
    sampler = NeighborSampler(FANOUTS)
    seeds = np.asarray(data.train)
    order = Shuffled()
    workload = Workload(data.graph, sampler, seeds, batch_size=min(NUM_SEEDS, len(seeds)), order=order)
    rows = open_on_device(cache, data.x, workload, device, progress=False)
    model = new_model(name, data).to(device.torch_device)
    optimizer = torch.optim.Adam(model.parameters())
    shuffled, took = np.random.default_rng(0), []
    for step in range(num_steps + 2):
        batch = shuffled.permutation(seeds)[:NUM_SEEDS]
        moments = [_moment(device)]
        sample = draws.sample(Draw(batch, DrawKey(seed=0, epoch=0, step=step)))
        moments.append(_moment(device))
        x = rows.gather(sample.nodes)
        moments.append(_moment(device))
        blocks = [Block(hop.indptr, hop.indices, hop.num_dst, hop.num_src) for hop in reversed(sample.hops)]
        y = data.y[torch.from_numpy(batch)].to(device.torch_device)
        loss = functional.cross_entropy(model(MiniBatch(sample.nodes, len(batch), blocks, x)), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        moments.append(_moment(device))
        took.append([(after - before) * 1e3 for before, after in pairwise(moments)])
    rows.close()
    return [statistics.median(column) for column in zip(*took[2:], strict=True)]


class EpochSeconds(pl.Callback):
    """How long each epoch's steps took, until the device was done."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def on_train_epoch_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self._began = _seconds(module.device)

    def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self.seconds.append(_seconds(module.device) - self._began)


def epoch_s(
    data: GraphData, name: str, place: str, cache: FeatureCache | None, num_epochs: int, accelerator: str = "gpu"
) -> float:
    """Median seconds of an epoch by Lightning; the first is not counted.

    Raises:
        DeviceMemoryError: the device has no room for the cache.
    """
    module = GraphDataModule(
        data,
        NeighborSampler(FANOUTS),
        batch_size=min(NUM_SEEDS, len(data.train)),
        sampling_device=place,
        cache=cache,
    )
    took = EpochSeconds()
    trainer = pl.Trainer(
        accelerator=accelerator,
        devices=1,
        max_epochs=num_epochs + 1,
        limit_val_batches=0,
        callbacks=[took],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(new_model(name, data), module)
    return statistics.median(took.seconds[1:])


def _moment(device: Device) -> float:
    """On the host, after the device is done."""
    Moment(device).ms_since(Moment(device))
    return time.perf_counter()


def _seconds(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def print_stages(device: Device, data: GraphData, options: argparse.Namespace) -> None:
    print("Milliseconds a step of each stage, one after the other:\n")
    print("| model | sampled on | rows cached | S | E | T |\n| --- | --- | ---: | ---: | ---: | ---: |")
    sampler = NeighborSampler(FANOUTS)
    ways: dict[str, Draws] = {
        "host": UploadingSampler(sampler, data.graph, device),
        "GPU": DeviceSampler(sampler, place(data.graph, device), device),
    }
    for name, (where, draws), percent in product(options.models, ways.items(), options.percents):
        try:
            took = stages(device, data, name, draws, cache_of(percent, options.policy), options.steps)
            cells = " | ".join(f"{ms:.2f}" for ms in took)
        except DeviceMemoryError:
            cells = "no room | |"
        print(f"| {name} | {where} | {percent} % | {cells} |", flush=True)


def print_epochs(data: GraphData, options: argparse.Namespace) -> None:
    print("\nSeconds an epoch, stages overlapping:\n")
    print("| model | sampled on | rows cached | s |\n| --- | --- | ---: | ---: |")
    ways = {"host": "cpu", "GPU": "cuda"}
    for name, (where, sampled_on), percent in product(options.models, ways.items(), options.percents):
        try:
            seconds = epoch_s(data, name, sampled_on, cache_of(percent, options.policy), options.epochs)
            cell = f"{seconds:.2f}"
        except DeviceMemoryError:
            cell = "no room"
        print(f"| {name} | {where} | {percent} % | {cell} |", flush=True)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.gpu_epochs", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke test: a small graph, few steps")
    parser.add_argument("--graph", choices=sorted(GRAPHS), default="g1")
    parser.add_argument("--models", nargs="+", choices=sorted(MODELS), default=sorted(MODELS))
    parser.add_argument("--percents", nargs="+", type=int, default=list(PERCENTS), help="of rows that are cached")
    parser.add_argument(
        "--policy", choices=("presample", "degree"), default="presample", help="which rows; degree opens sooner"
    )
    parser.add_argument("--steps", type=int, default=20, help="timed stage by stage")
    parser.add_argument("--epochs", type=int, default=3)
    options = parser.parse_args(arguments)
    if options.quick:
        options.graph, options.percents, options.steps, options.epochs = "debian", [0, 10, 100], 3, 1
    device = gpu_device.opened()
    if device is None:
        return 0
    others = machine.Neighbours()
    GRAPHS[options.graph].prepare()
    data = with_rows(GRAPHS[options.graph].load())
    print(
        f"Graph {options.graph}: {data.num_nodes:,} nodes, {data.graph.num_edges:,} edges, {data.num_features} "
        f"features; mini-batches of {min(NUM_SEEDS, len(data.train)):,} of {len(data.train):,} seeds, fanouts "
        f"{FANOUTS}; rows cached by {options.policy!r}.\n"
    )
    print_stages(device, data, options)
    print_epochs(data, options)
    print("\n" + "\n".join(f"- {line}" for line in [*gpu_device.describe(device), others.describe()]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
