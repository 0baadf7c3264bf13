from __future__ import annotations

import numpy as np
import pytest
import torch

from lightning_gnnload import Graph, GraphData, NoGraphBaseline
from lightning_gnnload.errors import LoaderConfigError


def clusters(noise: float, labels: str = "int64") -> GraphData:
    """Three classes of 200 nodes around three centroids."""
    random = np.random.default_rng(0)
    y = random.integers(3, size=600)
    x = np.eye(3, 5)[y] * 3 + random.normal(size=(600, 5)) * noise
    graph = Graph.from_coo([0], [1], 600)
    return GraphData(
        graph, x.astype(np.float32), y.astype(labels), np.arange(300), np.arange(300, 400), np.arange(400, 600)
    )


def test_it_learns_what_features_tell_and_no_more() -> None:
    assert NoGraphBaseline(epochs=30, batch_size=64).train(clusters(noise=0.3)) > 0.97
    # Three labels, none of them in the features: 1/3, five standard deviations of 200 guesses.
    blind = clusters(noise=0.3)
    blind.y = torch.from_numpy(np.random.default_rng(1).integers(3, size=600))
    assert NoGraphBaseline(epochs=5, batch_size=64).train(blind) < 1 / 3 + 5 * (2 / 9 / 200) ** 0.5


def test_it_is_reproducible_and_leaves_the_random_state_alone() -> None:
    before = torch.random.get_rng_state()
    first, second = (NoGraphBaseline(epochs=2).train(clusters(noise=2.0)) for _ in range(2))
    assert first == second
    assert torch.equal(before, torch.random.get_rng_state())


def test_the_test_split_does_not_choose_the_epoch() -> None:
    def accuracy(epochs: int, val: list[int], test: list[int]) -> float:
        data = clusters(noise=2.0)
        data.val, data.test = np.array(val, np.int64), np.array(test)
        return NoGraphBaseline(epochs=epochs, batch_size=300, lr=1e-3).train(data)

    rest = list(range(400, 600))
    by_epoch = [accuracy(epochs, [], rest) for epochs in range(1, 6)]  # without validation: of the last epoch
    assert by_epoch[0] < max(by_epoch)
    right_at_once = [node for node in range(300, 330) if accuracy(1, [], [node]) == 1]
    assert len(right_at_once) > 5
    for node in right_at_once:  # no later epoch does better on it
        assert accuracy(5, [node], rest) == by_epoch[0]


def test_labels_that_are_no_classes_are_refused() -> None:
    with pytest.raises(LoaderConfigError, match="integer class label"):
        NoGraphBaseline().train(clusters(noise=1.0, labels="float32"))
