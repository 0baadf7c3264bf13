"""A Ray cluster of two nodes on this machine, and runs of Ray Train on it. Arguments: how, num_devices, names of runs.

Each run's ranks write what they come to below its folder, by rank; the driver prints how each run ended.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

from lightning_gnnload.ray import FactoredTorchConfig

RANKS = 3
"""Workers of each node: two trainers and a sampler."""


@contextmanager
def cluster(num_nodes: int) -> Iterator[None]:
    """Nodes on addresses of their own: Ray counts local ranks by address. 127.0.0.1 would stand for the host's name."""
    # Paths of sockets have 107 characters at most.
    os.environ["RAY_TMPDIR"] = folder = tempfile.mkdtemp(prefix="r", dir="/tmp")
    nodes = Cluster()
    try:
        for node in range(num_nodes):
            head = {"include_dashboard": False} if node == 0 else {}
            nodes.add_node(
                num_cpus=RANKS,
                resources={"rank": RANKS} | ({"storage": 1} if num_nodes > 1 else {}),  # else owners are anywhere
                object_store_memory=80 << 20,
                node_ip_address=f"127.0.0.{node + 2}",
                **head,
            )
        ray.init(nodes.address, _node_ip_address="127.0.0.2", logging_level="warning")
        yield
    finally:
        ray.shutdown()
        nodes.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


def train(config: dict[str, Any]) -> None:
    """What Ray Train runs in each worker."""
    import lightning.pytorch as pl
    import torch
    from ray.train.lightning import prepare_trainer

    from lightning_gnnload.ray import RayFactoredStrategy, RayReportCallback
    from tests.integration.scripts.toy import Recorder, digest, toy_module

    context = ray.train.get_context()
    torch.set_num_threads(1)
    pl.seed_everything(1, verbose=False)
    folder = Path(config["folder"])

    class Once(pl.Callback):
        """Does something once, in mid-epoch."""

        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            if trainer.global_step == 7 and trainer.global_rank == 1 and not (folder / "done").exists():
                (folder / "done").touch()
                action()

    def boom() -> None:
        raise ValueError("planted")

    actions = {"killed": lambda: os.kill(os.getpid(), 9), "raises": boom, "remote": kill_owner}
    action = actions.get(config["run"])
    callbacks = [] if config["run"] == "plain" else [RayReportCallback(3)]
    callbacks += [] if action is None else [Once()]
    checkpoint = ray.train.get_checkpoint()
    is_remote = config["run"] == "remote"
    strategy = RayFactoredStrategy(samplers=1, owners=2 if is_remote else 0)
    module = remote_module(config["parts"]) if is_remote else toy_module()
    trainer = pl.Trainer(
        accelerator="cpu",
        strategy=strategy,
        callbacks=callbacks,
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
        "resumed": path is not None,
        "steps": [seen[3] for seen in model.seen if seen[0] == "train"],
        "weights": digest(model.state_dict().values()),
    }
    (folder / f"rank-{context.get_world_rank()}.json").write_text(json.dumps(record))
    ray.train.report({"weights": record["weights"]})  # of all workers: samplers call it themselves


def remote_module(parts: str) -> Any:
    """The toy's mini-batches, drawn and filled by owners."""
    from lightning_gnnload import GraphDataModule, NeighborSampler, load_partition

    where = {"graph": "remote", "features": "remote"}
    return GraphDataModule(load_partition(parts), NeighborSampler([4, 3]), batch_size=16, seed=5, **where)


def kill_owner() -> None:
    import psutil

    owners = [process for process in psutil.process_iter() if process.name().startswith("ray::_OwnerActor")]
    assert len(owners) == 2, owners
    owners[0].kill()


def fit(name: str, num_nodes: int) -> None:
    folder = Path.cwd() / name
    folder.mkdir()
    began = time.monotonic()
    trainer = TorchTrainer(
        train,
        train_loop_config={"run": name, "folder": str(folder), "parts": str(Path.cwd() / "parts")},
        torch_config=FactoredTorchConfig(),
        scaling_config=ScalingConfig(
            num_workers=RANKS * num_nodes, resources_per_worker={"CPU": 1, "rank": 1}, placement_strategy="PACK"
        ),
        run_config=RunConfig(
            name=name,
            storage_path=str(Path.cwd() / "results"),
            failure_config=FailureConfig(max_failures=1 if name == "killed" else 0),
        ),
    )
    try:
        ended = str(trainer.fit().metrics)
    except ray.train.TrainingFailedError as error:
        ended = f"{type(error).__name__}: {error}"
    print(f"{name}: {ended}\n{name} took {time.monotonic() - began:.1f} s", flush=True)


if __name__ == "__main__":
    _, num_nodes, *runs = sys.argv[1:]
    with cluster(int(num_nodes)):
        for run in runs:
            fit(run, int(num_nodes))
