"""What users buy next: popularity, matrix factorisation and LinkPredictor on the same purchases.

    python -m tests.benchmarks.recommendation CHECKPOINT

CHECKPOINT is what ``gnnload fit --config examples/configs/recommendation.yaml`` wrote; run it where that was run. All
are tested alike: each purchase of the last 60 days among all items but those that the user has bought before.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
import yaml
from torch import nn
from torch.nn import functional as F

from lightning_gnnload import SAGE, GraphDataModule, GraphFolder, LinkPredictor, NeighborSampler, SeedTable
from lightning_gnnload.inference.known_links import KnownLinks
from lightning_gnnload.inference.retrieval import ScoreBlock, ranks_among
from lightning_gnnload.plugin.compat import pl
from lightning_gnnload.plugin.monitor.ranking import metric_of

METRICS = ("mrr", "hits@10", "ndcg@10", "recall@10", "map@10")
CONFIG = "examples/configs/recommendation.yaml"
_ROWS = 1024


class Factors(nn.Module):
    """Matrix factorisation: a learned row a user and an item, and a number an item."""

    def __init__(self, num_users: int, num_items: int, width: int = 64) -> None:
        super().__init__()
        self.user, self.item = nn.Embedding(num_users, width), nn.Embedding(num_items, width)
        self.bias = nn.Parameter(torch.zeros(num_items))
        for rows in (self.user, self.item):
            nn.init.normal_(rows.weight, std=0.1)

    def forward(self, users: torch.Tensor) -> torch.Tensor:
        """Scores of all items, ``[P, I]``."""
        return self.user(users) @ self.item.weight.t() + self.bias


def factors(train: SeedTable, val: SeedTable, num_users: int, num_items: int) -> Factors:
    """Trains by the softmax over all items, which is few enough, until validation does not improve for two epochs."""
    torch.manual_seed(0)
    model, best, state, since = Factors(num_users, num_items), torch.inf, {}, 0
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005, weight_decay=1e-5)
    (users, items), held = (torch.from_numpy(ids) for ids in train.ends.T), torch.from_numpy(val.ends)
    while since < 2:
        for rows in torch.randperm(len(users)).split(_ROWS):
            optimizer.zero_grad()
            F.cross_entropy(model(users[rows]), items[rows]).backward()
            optimizer.step()
        with torch.no_grad():
            loss = float(F.cross_entropy(model(held[:, 0]), held[:, 1]))
        since += 1
        if loss < best:
            best, since = loss, 0
            state = {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict(state)
    return model


def tested(module: GraphDataModule, scores_of: Callable[[torch.Tensor], torch.Tensor]) -> dict[str, float]:
    """Ranks the targets of the test rows by scores of all items for users, as LinkPredictor(rank="all") does."""
    graph, table = module.graph_data.graph, module.graph_data.table("test")
    assert table is not None
    known, metrics = KnownLinks(graph, "buys"), {name: metric_of(name) for name in METRICS}
    _, query = np.unique(np.stack([table.ends[:, 0], table.time]), axis=1, return_inverse=True)
    for rows in np.array_split(np.arange(len(table)), max(len(table) // _ROWS, 1)):
        users, targets = table.ends[rows].T
        with torch.no_grad():
            scores = scores_of(torch.from_numpy(users))
        block: ScoreBlock = lambda first, last, scores=scores: scores[:, first:last]  # noqa: E731
        excluded = known.of(users, graph.clock.until(table.time[rows], "<"))
        ranks, positive = ranks_among(block, torch.from_numpy(targets), scores.shape[1], excluded)
        for metric in metrics.values():
            metric.update(positive, ranks=ranks, query=torch.from_numpy(query.reshape(-1)[rows]))
    return {name: float(metric.compute()) for name, metric in metrics.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("--config", default=CONFIG)
    arguments = parser.parse_args()
    with open(arguments.config, encoding="utf-8") as file:
        settings = yaml.safe_load(file)
    data = settings["data"]
    sampler = NeighborSampler(**data["sampler"]["init_args"])
    folder = GraphFolder(data["data"]["init_args"]["folder"], task="next")
    module = GraphDataModule(folder, sampler, data["batch_size"])
    module.prepare_data()
    module.setup()
    train, val = (module.graph_data.table(name) for name in ("train", "val"))
    assert train is not None
    assert val is not None
    num_users, num_items = module.graph_data.graph.types.num_nodes
    popularity = torch.from_numpy(np.bincount(train.ends[:, 1], minlength=num_items)).float()
    results = {"popularity": tested(module, lambda users: popularity.expand(len(users), -1))}
    began = time.process_time()
    model = factors(train, val, num_users, num_items)
    print(f"matrix factorisation learned in {time.process_time() - began:.0f} processor seconds")
    results["matrix factorisation"] = tested(module, model)
    settings = settings["model"]["init_args"]
    encoder = SAGE(**settings.pop("encoder")["init_args"])
    predictor = LinkPredictor.load_from_checkpoint(arguments.checkpoint, encoder=encoder)
    trainer = pl.Trainer(accelerator="cpu", logger=False, enable_progress_bar=False)
    (values,) = trainer.test(predictor, module, verbose=False)
    results["LinkPredictor"] = {name: values[f"test_{name}"] for name in METRICS}
    print(f"| of {num_items} items | {' | '.join(METRICS)} |\n| --- |{' ---: |' * len(METRICS)}")
    for title, row in results.items():
        print(f"| {title} | {' | '.join(f'{row[name]:.3f}' for name in METRICS)} |")


if __name__ == "__main__":
    main()
