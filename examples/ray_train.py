"""GraphSAGE on Debian's packages, where Ray Train starts two ranks that train and one that samples.

    pip install 'lightning-gnnload[ray]' lightning
    python examples/ray_train.py

On a cluster, run it on one of its machines with RAY_ADDRESS=auto. Lines marked * differ from Ray's own guide to
Lightning.
"""

from pathlib import Path
from typing import Any

import ray
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

from lightning_gnnload.ray import FactoredTorchConfig  # *


def train_function(config: dict[str, Any]) -> None:
    """What each worker runs, the sampler too."""
    import lightning.pytorch as pl  # before lightning_gnnload, which follows it
    from ray.train.lightning import prepare_trainer

    from lightning_gnnload import SAGE, Debian, GraphDataModule, NeighborSampler
    from lightning_gnnload.ray import RayFactoredStrategy, RayReportCallback

    pl.seed_everything(0)
    data = GraphDataModule(Debian(), NeighborSampler([15, 10]), batch_size=1024)
    model = SAGE(hidden=256, dropout=0.5)
    trainer = pl.Trainer(
        accelerator="cpu",
        strategy=RayFactoredStrategy(samplers=1),  # * of each machine; devices and num_nodes are Ray's
        callbacks=[RayReportCallback(every_n_train_steps=20)],  # * and at the end of each epoch
        max_epochs=config["max_epochs"],
        enable_checkpointing=False,
        logger=False,
    )
    # After a failure, Ray runs this function again, with what was reported last.
    checkpoint = ray.train.get_checkpoint()
    path = checkpoint and str(Path(checkpoint.path, RayReportCallback.CHECKPOINT_NAME))
    prepare_trainer(trainer).fit(model, data, ckpt_path=path)


def main() -> None:
    trainer = TorchTrainer(
        train_function,
        train_loop_config={"max_epochs": 3},
        torch_config=FactoredTorchConfig(),  # *
        scaling_config=ScalingConfig(num_workers=3, resources_per_worker={"CPU": 0.5}),
        run_config=RunConfig(
            storage_path=str(Path("runs/ray").resolve()), failure_config=FailureConfig(max_failures=2)
        ),
    )
    print(trainer.fit().metrics)


if __name__ == "__main__":
    main()
