"""R-GCN or HGT on Debian's packages, their sources and their maintainers.

    python examples/debian_typed.py RGCN

The task is that of debian_sage.py, on a graph with types: sources and maintainers are nodes, which have no features, so
that the models learn a row for each.
"""

import argparse

import pytorch_lightning as pl

from lightning_gnnload import Debian, GraphDataModule, NeighborSampler
from lightning_gnnload.models import HGT, RGCN

MODELS: dict[str, tuple[type[HGT] | type[RGCN], int]] = {"RGCN": (RGCN, 10), "HGT": (HGT, 20)}  # and epochs
FANOUTS = [5, 3]  # neighbours of each edge type, of packages and then of what these led to


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--epochs", type=int, help="by default 10 of R-GCN and 20 of HGT")
    arguments = parser.parse_args()
    pl.seed_everything(0)
    model_class, epochs = MODELS[arguments.model]
    model = model_class(learned_rows="node")
    data = GraphDataModule(Debian(typed=True), NeighborSampler(FANOUTS), batch_size=1024)
    trainer = pl.Trainer(
        accelerator="cpu",
        max_epochs=arguments.epochs or epochs,
        default_root_dir=f"runs/debian_{arguments.model.lower()}",
        callbacks=[pl.callbacks.ModelCheckpoint(monitor="val_accuracy", mode="max")],
    )
    trainer.fit(model, data)
    trainer.test(model, data, ckpt_path="best")


if __name__ == "__main__":
    main()
