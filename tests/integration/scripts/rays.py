"""A run of Ray Train on the cluster that RAY_ADDRESS names. Arguments: how, num_devices (neither is used), its name.

Each rank writes what it comes to below the run's folder; the driver prints how the run ended.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import ray
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

from lightning_gnnload.ray import FactoredTorchConfig

MID_EPOCH, LATER = 7, 13  # of twice ten steps


@dataclass(frozen=True)
class Run:
    """The settings of a run. ``each`` is what Ray gives each worker, ``data`` the settings of the parts' module; None
    has the whole graph. ``troubles`` are the names of what comes in mid-epoch."""

    num_workers: int
    each: dict[str, float]
    strategy: dict[str, int]
    data: dict[str, str] | None = None
    max_failures: int = 0
    troubles: list[str] = field(default_factory=list)


RUNS = {
    # A trainer and a sampler on each of two nodes.
    "owned": Run(4, {"rank": 1}, {"samplers": 1, "owners": 2}, {"features": "remote"}, troubles=["owner_killed"]),
    # Two trainers on one node, and two samplers on the other.
    "apart": Run(
        4,
        {"rank": 1},
        {"samplers": 0, "sampler_nodes": 1, "owners": 2},
        {"features": "remote", "graph": "remote", "made_by": "owners"},
        max_failures=1,
        troubles=["rank_killed"],
    ),
    "lost": Run(
        3, {"spare": 1}, {"samplers": 1, "owners": 3}, {"features": "remote"}, max_failures=1, troubles=["nodes_lost"]
    ),
    "raises": Run(2, {"rank": 1}, {"samplers": 1}, troubles=["planted"]),
}


def train(config: dict[str, Any]) -> None:
    """What Ray Train runs in each worker."""
    import lightning.pytorch as pl
    import torch
    from ray.train.lightning import prepare_trainer

    from lightning_gnnload import GraphDataModule, NeighborSampler, load_partition
    from lightning_gnnload.ray import RayFactoredStrategy, RayReportCallback
    from tests.integration.scripts.toy import Recorder, digest, toy_module

    context, run, folder = ray.train.get_context(), Run(**config["run"]), Path(config["folder"])
    torch.set_num_threads(1)
    pl.seed_everything(1, verbose=False)

    class Trouble(pl.Callback):
        """Comes once at a step, in one trainer."""

        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            for name in run.troubles:
                TROUBLES[name](trainer, folder)

    checkpoint = ray.train.get_checkpoint()
    strategy = RayFactoredStrategy(**run.strategy)
    if run.data is None:
        module = toy_module()
    else:
        parts = load_partition(config["parts"])
        module = GraphDataModule(parts, NeighborSampler([4, 3]), batch_size=16, seed=5, **run.data)
    trainer = pl.Trainer(
        accelerator="cpu",
        strategy=strategy,
        callbacks=[RayReportCallback(3), Trouble()],
        max_epochs=2,
        num_sanity_val_steps=0,
        default_root_dir=folder,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model = Recorder()
    path = checkpoint and Path(checkpoint.path, RayReportCallback.CHECKPOINT_NAME)
    prepare_trainer(trainer).fit(model, module, ckpt_path=path)
    record = {
        "role": strategy.role.value,
        "node": context.get_node_rank(),
        "world_size": strategy.world_size,
        "steps": [seen[3] for seen in model.seen if seen[0] == "train"],
        "weights": digest(model.state_dict().values()),
        "numbers": [number for tensor in model.parameters() for number in tensor.flatten().tolist()],
    }
    (folder / f"rank-{context.get_world_rank()}.json").write_text(json.dumps(record))
    ray.train.report({"weights": record["weights"]})  # of all workers: samplers call it themselves


def is_time(trainer: Any, step: int, folder: Path, name: str) -> bool:
    """Whether it is this trainer's turn, and the first time that it is."""
    if trainer.global_step != step or trainer.global_rank != trainer.world_size - 1 or (folder / name).exists():
        return False
    (folder / name).touch()
    return True


def owner_killed(trainer: Any, folder: Path) -> None:
    import psutil

    if is_time(trainer, MID_EPOCH, folder, "killed"):
        owners = [process for process in psutil.process_iter() if process.name().startswith("ray::_OwnerActor")]
        assert len(owners) == 2, owners
        owners[0].kill()


def rank_killed(trainer: Any, folder: Path) -> None:
    if is_time(trainer, MID_EPOCH, folder, "killed"):
        os.kill(os.getpid(), 9)


def nodes_lost(trainer: Any, folder: Path) -> None:
    """Waits until the test has killed the node of an owner; later, until it kills this one."""
    if is_time(trainer, MID_EPOCH, folder, "wants_owner_killed"):
        while not (folder / "killed").exists():
            time.sleep(0.05)
    if is_time(trainer, LATER, folder, "wants_ranks_killed"):
        time.sleep(300)


def planted(trainer: Any, folder: Path) -> None:
    if is_time(trainer, MID_EPOCH, folder, "raised"):
        raise ValueError("planted")


TROUBLES: dict[str, Callable[[Any, Path], None]] = {
    each.__name__: each for each in (owner_killed, rank_killed, nodes_lost, planted)
}


def fit(name: str) -> None:
    run, folder, began = RUNS[name], Path.cwd(), time.monotonic()
    trainer = TorchTrainer(
        train,
        train_loop_config={"run": asdict(run), "folder": str(folder), "parts": str(folder / "parts")},
        torch_config=FactoredTorchConfig(),
        scaling_config=ScalingConfig(
            num_workers=run.num_workers, resources_per_worker={"CPU": 0.5, **run.each}, placement_strategy="PACK"
        ),
        run_config=RunConfig(
            name=name,
            storage_path=str(folder / "results"),
            failure_config=FailureConfig(max_failures=run.max_failures),
        ),
    )
    try:
        ended = str(trainer.fit().metrics)
    except ray.train.TrainingFailedError as error:
        ended = f"{type(error).__name__}: {error}"
    print(f"{name}: {ended}\n{name} took {time.monotonic() - began:.1f} s", flush=True)


if __name__ == "__main__":
    fit(sys.argv[3])
