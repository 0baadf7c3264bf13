import copy
import gc
import pickle
import weakref
from dataclasses import replace

import numpy as np
import pytest
import torch

from lightning_gnnload import Block, MiniBatch, NeighborSampler
from lightning_gnnload.data.slab import view_of
from lightning_gnnload.errors import SamplerConfigError
from tests.unit.toy import content, toy_graph

BLOCK = Block(torch.tensor([0, 2, 2, 3], dtype=torch.int32), torch.tensor([1, 4, 0], dtype=torch.int32), 3, 5)


def batch() -> MiniBatch:
    return NeighborSampler([3, 2], edge_ids=True).sample(toy_graph(), [5, 200, 7])


def test_edge_destinations_follow_the_degrees() -> None:
    assert BLOCK.in_degrees.tolist() == [2, 0, 1]
    assert BLOCK.edge_dst().tolist() == [0, 0, 2]
    assert BLOCK.edge_dst().dtype == torch.int64
    assert repr(BLOCK) == "Block(num_dst=3, num_src=5, num_edges=3)"


def test_seeds_are_a_prefix_of_the_nodes() -> None:
    made = batch()
    assert made.seeds.tolist() == [5, 200, 7]
    assert made.num_nodes == len(made.nodes)
    assert "num_seeds=3" in repr(made)


def test_a_model_of_another_depth_is_told() -> None:
    batch().expect_layers(2)
    with pytest.raises(SamplerConfigError, match=r"3 layers.*2 hops.*NeighborSampler\(\[10, 10, 10\]\)"):
        batch().expect_layers(3)


def test_a_clone_has_the_same_content_in_memory_of_its_own() -> None:
    made = MiniBatch(**{**vars(batch()), "x": torch.ones(2, 2), "y": torch.ones(3)})
    copy = made.clone()
    assert content(copy) == content(made)

    def pointers(of: MiniBatch) -> set[int]:
        own = [of.nodes, of.x, of.y]
        return {t.data_ptr() for t in [*own, *(t for b in of.blocks for t in (b.indptr, b.indices, b.edge_ids))]}

    # A tensor left out of the copy would be overwritten when its slot is used again.
    assert not pointers(copy) & pointers(made)


def test_moving_reaches_every_tensor() -> None:
    moved = MiniBatch(**{**vars(batch()), "x": torch.ones(2, 2), "y": torch.ones(3)}).to("meta")
    tensors = [moved.nodes, moved.x, moved.y]
    tensors += [t for block in moved.blocks for t in (block.indptr, block.indices, block.edge_ids)]
    assert {t.device.type for t in tensors} == {"meta"}
    assert moved.blocks[0].num_src == batch().blocks[0].num_src


def test_a_view_keeps_its_buffer() -> None:
    buffer = np.arange(8)
    view = view_of(buffer, 16, (2, 2), torch.int64)
    alive = weakref.ref(buffer)
    del buffer
    gc.collect()
    assert alive() is not None
    assert view.tolist() == [[2, 3], [4, 5]]
    assert view_of(bytearray(8), 8, (0, 3), torch.float32).shape == (0, 3)


def test_models_for_batches_of_other_libraries_are_told_how_to_get_them() -> None:
    for name, format_ in (("edge_index", "'pyg'"), ("batch_size", "'pyg'"), ("srcdata", "'dgl'")):
        with pytest.raises(AttributeError, match=f"MiniBatch has no '{name}'.*batch_format={format_}"):
            getattr(batch(), name)
    with pytest.raises(AttributeError, match="no 'label'; it has nodes, num_seeds, blocks, x, y"):
        batch().label  # noqa: B018
    with pytest.raises(TypeError, match=r"no tuple and no dict.*batch_format='dgl'"):
        _, _, _ = batch()
    assert not hasattr(batch(), "__iter__")  # Lightning would read it as a collection
    assert copy.deepcopy(batch()).num_seeds == pickle.loads(pickle.dumps(batch())).num_seeds == 3  # noqa: S301


def test_normalized_edge_weights() -> None:
    indptr, indices = torch.tensor([0, 2, 2, 5], dtype=torch.int32), torch.tensor([0, 3, 1, 2, 3], dtype=torch.int32)
    block = Block(indptr, indices, num_dst=3, num_src=4)
    torch.testing.assert_close(block.normalized_edge_weight(), torch.tensor([1 / 2, 1 / 2, 1 / 3, 1 / 3, 1 / 3]))
    weighted = replace(block, edge_weight=torch.tensor([3.0, 1.0, 0.0, 0.0, 0.0]))
    torch.testing.assert_close(weighted.normalized_edge_weight(), torch.tensor([3 / 4, 1 / 4, 0, 0, 0]))
