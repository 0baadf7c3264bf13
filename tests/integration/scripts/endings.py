"""The ways in which training scripts end, one after the other in one launch; each rank writes what it holds then.

Arguments: how, num_devices.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
import torchmetrics

from lightning_gnnload import FactoredStrategy, MiniBatch
from lightning_gnnload.plugin.compat import pl
from tests.integration.scripts.toy import NUM_CLASSES, NUM_FEATURES, Recorder, digest, toy_module


class Kept(Recorder):
    """Keeps what training code keeps: losses, metrics, BatchNorm's statistics; its schedule needs the whole length."""

    def __init__(self, lr: float = 0.01) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.lr = lr
        self.norm = torch.nn.BatchNorm1d(NUM_CLASSES)
        self.accuracy = torchmetrics.Accuracy("multiclass", num_classes=NUM_CLASSES)
        self.train_losses: list[float] = []
        self.history: Any = defaultdict(list)

    def setup(self, stage: str) -> None:
        self.added = torch.nn.Linear(NUM_FEATURES, 1)

    def forward(self, batch: MiniBatch) -> torch.Tensor:
        return self.norm(super().forward(batch)) + self.added(batch.x[:1])

    def training_step(self, batch: MiniBatch, batch_idx: int) -> torch.Tensor:
        loss = super().training_step(batch, batch_idx)
        self.train_losses.append(loss.item())
        self.history["loss"].append(loss.detach())
        return loss

    def test_step(self, batch: MiniBatch, batch_idx: int) -> None:
        super().test_step(batch, batch_idx)
        self.accuracy.update(self(batch), batch.y)

    def predict_step(self, batch: MiniBatch, batch_idx: int) -> torch.Tensor:
        return self(batch)

    def configure_callbacks(self) -> Any:
        return [pl.callbacks.EarlyStopping("val_loss", patience=1, min_delta=10.0)]

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.lr)
        steps = int(self.trainer.estimated_stepping_batches)
        return [optimizer], [torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=steps)]


class Plain(Recorder):
    def __init__(self) -> None:
        super().__init__()
        self.seen = []


def ends(folder: Path, devices: int, start_method: str) -> dict[str, Any]:
    """What this rank's script holds after each call."""
    pl.seed_everything(1, verbose=False)
    checkpoint = pl.callbacks.ModelCheckpoint(folder, monitor="val_loss", save_last=True, save_top_k=2)

    def trainer(callbacks: list[Any], **options: Any) -> Any:
        return pl.Trainer(
            accelerator="cpu",
            devices=devices,
            strategy=FactoredStrategy(start_method=start_method),
            callbacks=callbacks,
            limit_train_batches=4,
            num_sanity_val_steps=0,
            enable_progress_bar=False,
            enable_model_summary=False,
            **options,
        )

    first = trainer([checkpoint], max_epochs=3, log_every_n_steps=1, logger=pl.loggers.CSVLogger(folder))
    model, data = Kept(), toy_module()
    first.fit(model, data)
    if start_method != "popen":
        # Lightning brings weights back to the script's process, without what hooks have added to the module.
        saved = torch.load(folder / "last.ckpt", weights_only=False)["state_dict"]
        return {"as_saved": all(torch.equal(each, saved[name]) for name, each in model.state_dict().items())}
    saved = torch.load(checkpoint.last_model_path, weights_only=False)["state_dict"]
    held: dict[str, Any] = {
        "as_saved": all(torch.equal(each, saved[name]) for name, each in model.state_dict().items()),
        "weights": digest(model.state_dict().values()),
        "modes": [each.training for each in model.modules()],
        "best": f"{checkpoint.best_model_score:.9f} of {checkpoint.kth_value:.9f}, now {checkpoint.current_score:.9f}",
        "paths": [checkpoint.best_model_path, checkpoint.last_model_path, checkpoint.dirpath],
        "best_k": {path: float(score) for path, score in checkpoint.best_k_models.items()},
        "stopped": [first.early_stopping_callback.stopped_epoch, first.should_stop, repr(first.state)],
        "callbacks": {each.state_key: repr(each.state_dict()) for each in first.callbacks},
        "at": [first.current_epoch, first.global_step, first.num_training_batches, first.estimated_stepping_batches],
        "log_dir": [first.log_dir, (Path(first.log_dir) / "metrics.csv").read_text().count("\n")],
        "optimizer": repr(first.optimizers[0].state_dict()),
        "schedule": first.lr_scheduler_configs[0].scheduler.get_last_lr(),
        "same_data": first.datamodule is data and model.trainer is first,
        "by_hand": [batch.num_seeds for batch in data.test_dataloader()],
        "losses": [model.train_losses, [float(each) for each in model.history["loss"]]],
        "metrics": {
            kind: {name: float(value) for name, value in getattr(first, f"{kind}_metrics").items()}
            for kind in ("callback", "logged", "progress_bar")
        },
    }
    held["validated"] = first.validate(model, data, verbose=False)
    held["best_tested"] = first.test(model, data, ckpt_path="best", verbose=False), digest(model.state_dict().values())
    held["accuracy"] = model.accuracy.compute().item()
    held["last_tested"] = first.test(ckpt_path="last", datamodule=data, verbose=False), first.ckpt_path
    held["predicted"] = list(torch.cat(first.predict(model, data)).shape[1:])
    rank = os.environ.get("LOCAL_RANK", "0")
    torch.save(model.state_dict(), folder / f"model-{rank}.pt")
    held["saved"] = digest(torch.load(folder / f"model-{rank}.pt").values())
    # Another Trainer goes on from a checkpoint whose path only the first one knows.
    averaging = pl.callbacks.StochasticWeightAveraging(0.01, swa_epoch_start=1)
    model = Plain()
    once = trainer([pl.callbacks.ModelCheckpoint(folder / "plain")], max_epochs=1, logger=False)
    once.fit(model, data)
    second = trainer([averaging], max_epochs=3, logger=False)
    second.fit(model, data, ckpt_path=once.checkpoint_callback.best_model_path)
    held["resumed"] = second.global_step, digest(model.state_dict().values())
    return held


if __name__ == "__main__":
    logging.getLogger(pl.__name__).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore")
    how, devices = sys.argv[1], int(sys.argv[2])
    found = ends(Path.cwd() / "ends", devices, how if how in ("spawn", "fork") else "popen")
    Path(f"holds-{os.environ.get('LOCAL_RANK', 0)}.json").write_text(json.dumps(found))
