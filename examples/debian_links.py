"""Link prediction on Debian's packages: which packages depend on this one?

    python examples/debian_links.py

A tenth of all dependencies are taken out of the graph. GraphSAGE is asked for each of them among 200 other packages,
and so is a perceptron that sees the packages' descriptions alone.
"""

import argparse

import pytorch_lightning as pl
from models import LinkSAGE

from lightning_gnnload import Debian, GraphDataModule, LinkSplit, Negatives, NeighborSampler


def trained(num_layers: int, epochs: int) -> dict[str, float]:
    """Trains by one layer a hop, or a perceptron by none; returns MRR and Hits@10 on the edges held out."""
    pl.seed_everything(0)
    dataset = LinkSplit(Debian(edge_types=("Depends",), both_directions=False), val=0.05, test=0.1)
    # The edges of a step are left out of its neighbourhoods, in both directions; 200 false destinations serve them all.
    negatives = Negatives("joint", num=200)
    data = GraphDataModule(dataset, NeighborSampler([10, 5]), batch_size=2048, negatives=negatives)
    trainer = pl.Trainer(
        accelerator="cpu",
        max_epochs=epochs,
        default_root_dir="runs/debian_links",
        callbacks=[pl.callbacks.ModelCheckpoint(monitor="val_mrr", mode="max")],
    )
    model = LinkSAGE(in_features=128, num_layers=num_layers)
    trainer.fit(model, data)
    (found,) = trainer.test(model, data, ckpt_path="best", verbose=False)
    return dict(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=5)
    epochs = parser.parse_args().epochs
    for name, num_layers in (("GraphSAGE", 2), ("perceptron, no graph", 0)):
        found = trained(num_layers, epochs)
        print(f"{name:20} MRR {found['test_mrr']:.3f}  Hits@10 {found['test_hits10']:.3f}")


if __name__ == "__main__":
    main()
