"""A small graph whose labels are in its neighbourhoods: a node knows little of its own label."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from pytorch_lightning import Trainer

from lightning_gnnload import FactoredStrategy

NUM_NODES, NUM_CLASSES, NUM_FEATURES, DEGREE = 600, 4, 8, 12

# How a Trainer may run: a model that reads its batches must not care.
STRATEGIES: dict[str, Callable[[], dict[str, Any]]] = {
    "auto": lambda: {"strategy": "auto", "devices": 1},
    # Spawned: the tests' own process must not be started again as a rank.
    "factored": lambda: {"strategy": FactoredStrategy(start_method="spawn"), "devices": 2},
}


@dataclass(frozen=True)
class Learnable:
    """Edges ``src -> dst``, nine in ten from the destination's own class, in random order; splits are masks.

    A node's features are its class's centroid under strong noise: a classifier without neighbours is right on
    half of the nodes, one that averages the neighbours on nine in ten.
    """

    src: torch.Tensor
    dst: torch.Tensor
    x: torch.Tensor
    y: torch.Tensor
    train_mask: torch.Tensor
    val_mask: torch.Tensor
    test_mask: torch.Tensor


def learnable_graph(seed: int = 0) -> Learnable:
    random = np.random.default_rng(seed)
    y = random.integers(NUM_CLASSES, size=NUM_NODES)
    dst = np.repeat(np.arange(NUM_NODES), DEGREE)
    own = random.random(len(dst)) < 0.9
    by_class = [np.flatnonzero(y == label) for label in range(NUM_CLASSES)]
    src = np.array(
        [
            random.choice(by_class[y[node]]) if mine else random.integers(NUM_NODES)
            for node, mine in zip(dst, own, strict=True)
        ]
    )
    shuffled = random.permutation(len(dst))
    centroids = np.eye(NUM_CLASSES, NUM_FEATURES)
    x = centroids[y] + random.normal(size=(NUM_NODES, NUM_FEATURES)) * 1.2
    split = random.choice(3, size=NUM_NODES, p=[0.5, 0.2, 0.3])
    return Learnable(
        torch.from_numpy(src[shuffled]),
        torch.from_numpy(dst[shuffled]),
        torch.from_numpy(x).float(),
        torch.from_numpy(y),
        *(torch.from_numpy(split == part) for part in range(3)),
    )


def accuracy_without_neighbours(graph: Learnable) -> float:
    """Of the nearest centroid, the best that a node's own features allow."""
    return float((graph.x[:, :NUM_CLASSES].argmax(1) == graph.y).float().mean())


def quiet_trainer(**settings: Any) -> Trainer:
    """A Trainer on the CPU that writes neither files nor to the terminal."""
    return Trainer(
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **settings,
    )
