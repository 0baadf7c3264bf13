import numpy as np
import pytest
import torch

from lightning_gnnload.adapters.ids import ids_of_mask, original_edge_ids
from lightning_gnnload.errors import GraphDataError


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.float32])
def test_a_mask_becomes_ascending_ids(dtype: torch.dtype) -> None:
    ids = ids_of_mask(torch.tensor([0, 1, 0, 1]).to(dtype), what="train_mask", num_nodes=4)
    assert ids is not None
    assert ids.tolist() == [1, 3]
    assert ids.dtype == torch.int64


def test_no_mask_is_no_split() -> None:
    # Empty ids and no ids are alike to GraphData; an error here would refuse graphs without splits.
    assert ids_of_mask(None, what="train_mask", num_nodes=4) is None


def test_several_splits_side_by_side_are_refused() -> None:
    with pytest.raises(GraphDataError, match=r"train_mask has the shape \[4, 2\].*train_mask\[:, 0\]"):
        ids_of_mask(torch.ones(4, 2, dtype=torch.bool), what="train_mask", num_nodes=4)


def test_edge_ids_go_back_through_the_order() -> None:
    order = np.array([30, 10, 20])
    order.flags.writeable = False  # as a memory map
    assert original_edge_ids(torch.tensor([2, 0, 2]), order).tolist() == [20, 30, 20]
    assert original_edge_ids(torch.tensor([2, 0]), None).tolist() == [2, 0]
