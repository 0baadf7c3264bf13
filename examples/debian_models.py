"""GCN, GAT or PinSAGE on Debian's packages, each on what its paper samples.

    python examples/debian_models.py GAT

The task is that of debian_sage.py. Model and sampler change; the data, the trainer and the baseline stay.
"""

import argparse

import pytorch_lightning as pl

from lightning_gnnload import Debian, GraphDataModule, NeighborSampler, NoGraphBaseline, RandomWalkSampler, Sampler
from lightning_gnnload.models import GAT, GCN, NodeLearner, PinSAGE

debian = Debian()
# Of each of ten edge types (Depends, Pre-Depends, Recommends, Suggests, Enhances, and their reverses) so many.
BY_TYPE = [dict(enumerate([8, 2, 3, 3, 2] * 2)), dict(enumerate([5, 2, 2, 2, 2] * 2))]


def setup(name: str) -> tuple[NodeLearner, Sampler]:
    if name == "GAT":  # attends to the types of edges, which blocks carry where the sampler draws by type
        return GAT(), NeighborSampler(BY_TYPE)
    if name == "PinSAGE":  # blocks carry how often random walks visited each neighbour
        return PinSAGE(hidden=256, dropout=0.5), RandomWalkSampler(num_layers=2, num_neighbors=10, num_walks=10)
    return GCN(), NeighborSampler([15, 10])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=["GCN", "GAT", "PinSAGE"])
    parser.add_argument("--epochs", type=int, default=15)
    arguments = parser.parse_args()
    pl.seed_everything(0)
    model, sampler = setup(arguments.model)
    data = GraphDataModule(debian, sampler, batch_size=1024)
    best = pl.callbacks.ModelCheckpoint(monitor="val_accuracy", mode="max")
    trainer = pl.Trainer(
        accelerator="cpu",
        max_epochs=arguments.epochs,
        default_root_dir=f"runs/debian_{arguments.model.lower()}",
        callbacks=[best, NoGraphBaseline()],
    )
    trainer.fit(model, data)
    trainer.test(model, data, ckpt_path="best")


if __name__ == "__main__":
    main()
