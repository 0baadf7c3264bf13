"""Who stops buying? A task with a cut by time, and what a loader that leaks the future would have claimed.

    python examples/temporal.py

A seed is a user at a time; the model sees what he bought, and who else did. Trained and evaluated by a loader that
heeds the seeds' times, the figure holds; a loader that does not shows the answer with the question.
"""

import argparse
from typing import Literal

import pytorch_lightning as pl

from lightning_gnnload import GraphDataModule, NeighborSampler, Purchases
from lightning_gnnload.models import TemporalSAGE


def loader(before: Literal["<=", "<"] | None) -> GraphDataModule:
    """Serves each seed the newest ten purchases and five further buyers of each item: of those before its time, or of
    all that the data have."""
    sampler = NeighborSampler([10, 5], expand="new", pick="last", before=before, sharing="disjoint")
    return GraphDataModule(Purchases(), sampler, batch_size=512)


def trained(data: GraphDataModule, epochs: int, num_layers: int | None = None) -> tuple[pl.Trainer, TemporalSAGE]:
    pl.seed_everything(0)
    model = TemporalSAGE(hidden=64, dropout=0.0, num_layers=num_layers)
    best = pl.callbacks.ModelCheckpoint(monitor="val_auroc", mode="max")
    trainer = pl.Trainer(accelerator="cpu", max_epochs=epochs, default_root_dir="runs/temporal", callbacks=[best])
    trainer.fit(model, data)
    return trainer, model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=4)
    epochs = parser.parse_args().epochs
    honest, leaky = loader("<="), loader(None)
    rows = []
    for name, data, num_layers, tests in (
        ("heeds time", honest, None, {"heeds time": honest}),
        ("leaks", leaky, None, {"leaks": leaky, "heeds time": honest}),
        ("heeds time, no graph", honest, 0, {"heeds time": honest}),
    ):
        trainer, model = trained(data, epochs, num_layers)
        for tested, by in tests.items():
            (found,) = trainer.test(model, by, ckpt_path="best", verbose=False)
            rows.append(f"{name:20}  {tested:10}  {found['test_auroc']:.3f}")
    print(f"{'trained by a loader':20}  {'tested by':10}  AUROC", *rows, sep="\n")


if __name__ == "__main__":
    main()
