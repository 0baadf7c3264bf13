import numpy as np
import pytest
import torch

from lightning_gnnload import Graph
from lightning_gnnload.adapters.columns import drawable_weights, original_edge_ids, split_ids
from lightning_gnnload.errors import GraphDataError

NONE = dict.fromkeys(("train", "val", "test"))


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.float32])
def test_a_mask_becomes_ascending_ids(dtype: torch.dtype) -> None:
    found = split_ids(NONE, {"train_mask": torch.tensor([0, 1, 0, 1]).to(dtype)}, num_nodes=4)
    assert found["train"].tolist() == [1, 3]
    assert found["train"].dtype == torch.int64
    # Empty ids and no ids are alike to GraphData; an error here would refuse graphs without splits.
    assert (found["val"], found["test"]) == (None, None)


def test_given_ids_and_masks_come_before_the_graphs() -> None:
    several = {"train_mask": torch.ones(4, 2, dtype=torch.bool), "val_mask": torch.ones(4)}
    given = {"train": several["train_mask"][:, 0], "val": [2], "test": range(2)}
    found = split_ids(given, several, num_nodes=4)
    assert found["train"].tolist() == [0, 1, 2, 3]
    assert (found["val"], found["test"]) == ([2], range(2))  # GraphData checks ids


def test_several_splits_side_by_side_are_refused() -> None:
    with pytest.raises(GraphDataError, match=r"train_mask has the shape \[4, 2\].*train=train_mask\[:, 0\]"):
        split_ids(NONE, {"train_mask": torch.ones(4, 2, dtype=torch.bool)}, num_nodes=4)
    with pytest.raises(GraphDataError, match=r"val has the shape \[3\], but one entry a node, \[4\]"):
        split_ids({**NONE, "val": np.ones(3, bool)}, {}, num_nodes=4)


def test_weights_to_draw_by_are_floats_and_others_are_said() -> None:
    assert drawable_weights("w", torch.tensor([[1], [2]])).tolist() == [1.0, 2.0]
    assert drawable_weights("w", torch.tensor([1.5], dtype=torch.bfloat16)).dtype == torch.float32
    for bad in ([0.5, -1.0], [float("nan"), 1.0], [[1.0, 2.0]]):
        with pytest.warns(UserWarning, match="w of the graph: mini-batches carry it, but no sampler can draw by it"):
            assert drawable_weights("w", torch.tensor(bad)) is None


def test_edge_ids_go_back_through_the_order() -> None:
    graph = Graph.from_coo([0, 0, 0], [2, 0, 1], keep_order=True)
    graph.edge_order.flags.writeable = False  # as a memory map
    assert original_edge_ids(torch.tensor([2, 0, 2]), graph).tolist() == [0, 1, 0]
    assert original_edge_ids(torch.tensor([2, 0]), None).tolist() == [2, 0]
