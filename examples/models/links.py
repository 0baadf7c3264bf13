"""LinkSAGE: tells edges from pairs of nodes without one, by rows of both ends."""

from __future__ import annotations

from itertools import pairwise

import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lightning_gnnload import LinkHits, LinkMRR, MiniBatch

from .layers import SAGEConv
from .learner import needed


class LinkSAGE(pl.LightningModule):
    """Link prediction by layers of :class:`SAGEConv`: a pair scores the dot product of a projection of its source's row
    and its destination's, so that edges have a direction.

    Args:
        in_features: feature width.
        hidden: width of the layers.
        num_layers: must equal the sampler's number of hops; 0 takes any: a perceptron that never looks at the graph.
        lr: Adam's learning rate.
    """

    def __init__(self, in_features: int, hidden: int = 128, num_layers: int = 2, lr: float = 0.003) -> None:
        super().__init__()
        self.save_hyperparameters()
        widths = [in_features] + [hidden] * num_layers
        self.convs = nn.ModuleList(SAGEConv(*pair) for pair in pairwise(widths))
        self.head = nn.Sequential(nn.Linear(widths[-1], hidden), nn.ReLU(), nn.Linear(hidden, hidden))
        self.asks = nn.Linear(hidden, hidden, bias=False)
        self.val_mrr, self.val_hits10 = LinkMRR(), LinkHits(k=10)
        self.test_mrr, self.test_hits10 = LinkMRR(), LinkHits(k=10)
        self.lr = lr

    def forward(self, batch: MiniBatch) -> Tensor:
        """Rows of the seeds, which are the ends of all pairs: ``[num_seeds, hidden]``."""
        x = needed(batch.x, "x", "features")
        if len(self.convs):
            batch.expect_layers(len(self.convs))
            for conv, block in zip(self.convs, batch.blocks, strict=True):
                x = conv(block, x).relu()
        return self.head(x[: batch.num_seeds])

    def scores(self, batch: MiniBatch) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the scores of edges ``[P]``, of their negatives ``[P, num]``, and which of these are there."""
        rows, columns = self(batch), batch.seed_columns
        asking = self.asks(rows[columns["src"]])
        score = asking @ rows.t()  # of all pairs: less work than rows for each, as rows have their negatives in common
        positive = score.gather(1, columns["dst"][:, None]).squeeze(1)
        return positive, score.gather(1, columns["negatives"]), columns["negative_mask"]

    def training_step(self, batch: MiniBatch, batch_idx: int) -> Tensor:
        positive, negative, mask = self.scores(batch)
        score = torch.cat([positive[:, None], negative.masked_fill(~mask, -torch.inf)], dim=1)
        loss = F.cross_entropy(score, torch.zeros(len(score), dtype=torch.long, device=score.device))
        self.log("train_loss", loss, prog_bar=True, batch_size=len(score))
        return loss

    def validation_step(self, batch: MiniBatch, batch_idx: int) -> None:
        self.rank(batch, val_mrr=self.val_mrr, val_hits10=self.val_hits10)

    def test_step(self, batch: MiniBatch, batch_idx: int) -> None:
        self.rank(batch, test_mrr=self.test_mrr, test_hits10=self.test_hits10)

    def rank(self, batch: MiniBatch, **metrics: LinkMRR | LinkHits) -> None:
        scores = self.scores(batch)
        for name, metric in metrics.items():
            metric.update(*scores)
            self.log(name, metric, prog_bar=True, batch_size=len(scores[0]))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=self.lr)
