"""Link prediction on Debian's packages: which packages depend on this one?

    python examples/debian_links.py

A tenth of all dependencies are taken out of the graph. GraphSAGE is asked for each of them among 200 other packages,
and so is a perceptron that sees the packages' descriptions alone; each test prints what popularity reaches beside it.
"""

import argparse

import pytorch_lightning as pl

from lightning_gnnload import SAGE, Debian, GraphDataModule, LinkPredictor, LinkSplit, Negatives, NeighborSampler


def trained(fanouts: list[int], epochs: int) -> dict[str, float]:
    """Trains by one layer a hop, or a perceptron by none; returns MRR and Hits@10 on the edges held out."""
    pl.seed_everything(0)
    dataset = LinkSplit(Debian(edge_types=("Depends",), both_directions=False), val=0.05, test=0.1)
    # The edges of a step are left out of its neighbourhoods, in both directions; 200 false destinations serve them all.
    negatives = Negatives("joint", num=200)
    data = GraphDataModule(dataset, NeighborSampler(fanouts), batch_size=2048, negatives=negatives)
    trainer = pl.Trainer(
        accelerator="cpu",
        max_epochs=epochs,
        default_root_dir="runs/debian_links",
        callbacks=[pl.callbacks.ModelCheckpoint(monitor="val_mrr", mode="max")],
    )
    # A matrix in the head, as edges have a direction.
    model = LinkPredictor(SAGE(dropout=0.0), num_outputs=128, head="bilinear")
    trainer.fit(model, data)
    (results,) = trainer.test(model, data, ckpt_path="best", verbose=False)
    return dict(results)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=3)
    epochs = parser.parse_args().epochs
    for name, fanouts in (("GraphSAGE", [10, 5]), ("perceptron, no graph", [])):
        results = trained(fanouts, epochs)
        print(f"{name:20} MRR {results['test_mrr']:.3f}  Hits@10 {results['test_hits@10']:.3f}")


if __name__ == "__main__":
    main()
