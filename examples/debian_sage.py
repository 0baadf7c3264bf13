"""GraphSAGE on Debian's packages, with one rank that samples and one that trains.

    python examples/debian_sage.py

Nodes are packages, edges their dependencies; the model guesses each package's section from its description and its
neighbours'. Take any other LightningModule, data set or number of devices: only the lines marked * are ours.
"""

import pytorch_lightning as pl

from lightning_gnnload import (
    SAGE,
    Debian,
    FactoredStrategy,
    GraphDataModule,
    NeighborSampler,
    NoGraphBaseline,
    PipelineMonitor,
)


def main() -> None:
    pl.seed_everything(0)

    # Up to 15 neighbours of each seed, and up to 10 of each of these; 1024 seeds a step.
    data = GraphDataModule(Debian(), NeighborSampler([15, 10]), batch_size=1024)  # *

    # It takes the width of the features and the number of Debian's sections from the data; your own does as well.
    model = SAGE(hidden=256, dropout=0.5, first_layer="sampled")

    trainer = pl.Trainer(
        accelerator="cpu",
        devices=2,
        strategy=FactoredStrategy(samplers=1),  # * the last rank samples, the first one trains
        max_epochs=15,
        log_every_n_steps=10,
        default_root_dir="runs/debian_sage",
        callbacks=[
            PipelineMonitor(),  # * where the time goes, in the log, as a table, a timeline and a trace
            NoGraphBaseline(),  # * what the same features give without the graph
            pl.callbacks.ModelCheckpoint(monitor="val_accuracy", mode="max"),
        ],
    )
    trainer.fit(model, data)
    trainer.test(model, data, ckpt_path="best")


if __name__ == "__main__":
    main()
