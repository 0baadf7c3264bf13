"""Trains on PyG's data modules, many Trainers in one launch, and writes what each trainer saw.

Arguments: how, num_devices, strategy ("auto", "ddp" or "factored", with one sampler), names of cases. Writes
``<case>/trainer-<rank>.json``. Of a script of PyG's, nothing but the
import is another, and the strategy.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from torch_geometric.data import Data, HeteroData

from lightning_gnnload import FactoredStrategy, FeatureCache
from lightning_gnnload.pyg import LightningLinkData, LightningNodeData
from tests.integration.scripts.toy import digest

N, E = 300, 2000
RATES, LIKES = ("user", "rates", "item"), ("item", "rev_rates", "user")


def papers() -> Data:
    generator = torch.Generator().manual_seed(1)
    data = Data(
        x=torch.randn(N, 8, generator=generator),
        y=torch.randint(4, (N,), generator=generator),
        edge_index=torch.randint(N, (2, E), generator=generator),
        edge_attr=torch.randn(E, 3, generator=generator),
        time=torch.randint(100, (N,), generator=generator),
        transposed=torch.randn(2, N, generator=generator).t(),  # no table: PyG itself indexes it
        name="papers",
    )
    order = torch.randperm(N, generator=generator)
    for name, ids in {"train": order[:163], "val": order[163:210], "test": order[210:240]}.items():
        data[f"{name}_mask"] = torch.zeros(N, dtype=torch.bool).index_fill(0, ids, True)
    return data


def shop() -> HeteroData:
    generator = torch.Generator().manual_seed(2)
    data = HeteroData()
    data["user"].x = torch.randn(N, 4, generator=generator)
    data["item"].x = torch.randn(80, 6, generator=generator)
    data["user"].y = torch.randint(3, (N,), generator=generator)
    data["user"].train_mask = torch.rand(N, generator=generator) < 0.5
    data["user"].val_mask = ~data["user"].train_mask
    ends = torch.stack([torch.randint(N, (E,), generator=generator), torch.randint(80, (E,), generator=generator)])
    data[RATES].edge_index, data[LIKES].edge_index = ends, ends.flip(0)
    data[RATES].time = torch.randint(100, (E,), generator=generator)
    data[LIKES].time = data[RATES].time
    return data


def doubled(batch: Any) -> Any:
    batch.x = batch.x * 2
    return batch


def without_hops(output: Any) -> Any:
    output.num_sampled_nodes = output.num_sampled_edges = None
    return output


SETTINGS: dict[str, Any] = {"num_neighbors": [4, 3], "batch_size": 16, "num_workers": 2}


def shop_links() -> LightningLinkData:
    data = shop()
    return LightningLinkData(
        data,
        input_train_edges=(RATES, data[RATES].edge_index[:, :170]),
        input_train_time=torch.arange(170),
        input_val_edges=(RATES, data[RATES].edge_index[:, 170:200]),
        input_val_time=torch.arange(30) + 50,
        time_attr="time",
        neg_sampling={"mode": "triplet", "amount": 2},
        **SETTINGS,
    )


CASES: dict[str, Callable[[], Any]] = {
    "nodes": lambda: LightningNodeData(papers(), **SETTINGS, eval_loader_kwargs={"num_neighbors": [-1]}),
    "cached": lambda: LightningNodeData(papers(), **SETTINGS, cache=FeatureCache(policy="presample", ratio=0.3)),
    "times": lambda: LightningNodeData(papers(), time_attr="time", temporal_strategy="last", **SETTINGS),
    "types": lambda: LightningNodeData(shop(), **SETTINGS),
    "negatives": lambda: LightningLinkData(papers(), neg_sampling="binary", **SETTINGS | {"batch_size": 150}),
    "triplets": shop_links,
    "transformed": lambda: LightningNodeData(papers(), transform=doubled, **SETTINGS),
    "filtered": lambda: LightningNodeData(papers(), transform_sampler_output=without_hops, **SETTINGS),
    "resumed": lambda: LightningNodeData(papers(), **SETTINGS),
}


def told(value: Any) -> Any:
    return digest([value]) if isinstance(value, torch.Tensor) else str(value)


class Writer(pl.LightningModule):
    """Writes down each mini-batch that it is given, in ranks that train."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.folder = folder
        self.layer = torch.nn.Linear(1, 1)
        self.seen: list[Any] = []

    def look(self, phase: str, batch: Any) -> torch.Tensor:
        stores = batch.stores  # of a Data, one
        fields = [[str(store._key), name, told(store[name])] for store in stores for name in store.keys()]  # noqa: SIM118
        phase = "sanity" if self.trainer.sanity_checking else phase
        store = next(each for each in stores if "input_id" in each)
        self.seen.append([phase, self.trainer.current_epoch, store["input_id"].tolist(), sorted(fields)])
        return self.layer(torch.ones(1, 1)).sum()

    def training_step(self, batch: Any) -> torch.Tensor:
        return self.look("train", batch)

    def validation_step(self, batch: Any) -> None:
        self.look("val", batch)

    def on_fit_end(self) -> None:
        Path(self.folder).mkdir(exist_ok=True)
        Path(self.folder, f"trainer-{self.trainer.global_rank}.json").write_text(json.dumps(self.seen))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.1)


class Save(pl.Callback):
    """Makes a checkpoint in mid-epoch and ends the fit."""

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        if trainer.global_step == 14:
            trainer.save_checkpoint("cut.ckpt")
            trainer.should_stop = True


def trainer(kind: str, devices: int, **options: Any) -> pl.Trainer:
    strategy = FactoredStrategy(1) if kind == "factored" else kind
    quiet = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing"), False)
    options = {"max_epochs": 2, **quiet, **options}
    return pl.Trainer(accelerator="cpu", devices=devices, strategy=strategy, **options)


def main(kind: str, devices: int, names: list[str]) -> None:
    for name in names:
        pl.seed_everything(7, verbose=False)
        module, path = CASES[name](), None
        if name == "resumed":
            trainer(kind, devices, callbacks=[Save()], min_epochs=0).fit(Writer("cut"), module)
            path = "cut.ckpt"
        trainer(kind, devices).fit(Writer(name), module, ckpt_path=path)


if __name__ == "__main__":
    logging.getLogger(pl.__name__).setLevel(logging.ERROR)
    main(sys.argv[3], int(sys.argv[2]), sys.argv[4:])
