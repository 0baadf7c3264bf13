"""What it costs in accuracy that epochs come again: ``python -m tests.benchmarks.cycling``.

Trains GraphSAGE on Debian with fresh epochs and with ``Packing(cycle=K)``, for several seeds. Some minutes.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import warnings

import numpy as np


def accuracies(cycle: int | None, seed: int, epochs: int, fanouts: list[int]) -> tuple[float, float]:
    """Returns the accuracy on test after training, and the best one on validation."""
    import pytorch_lightning as pl

    from lightning_gnnload import SAGE, Debian, GraphDataModule, NeighborSampler, Packing

    class Best(pl.Callback):
        best = 0.0

        def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
            self.best = max(self.best, float(trainer.callback_metrics["val_accuracy"]))

    pl.seed_everything(seed, verbose=False)
    with tempfile.TemporaryDirectory() as folder:
        packing = None if cycle is None else Packing(f"{folder}/packed", cycle=cycle)
        data = GraphDataModule(Debian(), NeighborSampler(fanouts), batch_size=1024, seed=seed, packing=packing)
        best = Best()
        trainer = pl.Trainer(
            accelerator="cpu",
            max_epochs=epochs,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=[best],
        )
        trainer.fit(SAGE(), data)
        [tested] = trainer.test(datamodule=data, model=trainer.lightning_module, verbose=False)
    return float(tested["test_accuracy"]), best.best


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.cycling", description=__doc__)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--fanouts", type=int, nargs="+", default=[15, 10])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--cycles", type=int, nargs="+", default=[8, 4, 2, 1])
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    print("| epochs that come again | test accuracy, % | spread over seeds | best validation accuracy, % |")
    print("|---|---:|---:|---:|")
    for cycle in (None, *options.cycles):
        values = np.array([accuracies(cycle, seed, options.epochs, options.fanouts) for seed in options.seeds]) * 100
        test, val = values.T
        name = "none, each drawn anew" if cycle is None else str(cycle)
        print(f"| {name} | {test.mean():.2f} | {np.ptp(test):.2f} | {val.mean():.2f} |", flush=True)
    print(f"\n- {options.epochs} epochs, seeds {options.seeds}; SAGE(), fanouts {options.fanouts}, batches of 1,024")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
