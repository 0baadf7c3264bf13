"""Rows of another store."""

from __future__ import annotations

import pytest
import torch

from lightning_gnnload import MemoryFeatureStore, quantize
from lightning_gnnload.data.selected import SelectedFeatureStore, select_rows
from lightning_gnnload.errors import GraphDataError, SeedError

TABLE = torch.arange(24.0).view(8, 3)
ROWS = torch.tensor([7, 0, 7, 3, 2])


@pytest.mark.parametrize("width", [0, 3])
def test_rows_are_those_of_the_other_store(width: int) -> None:
    store = SelectedFeatureStore(MemoryFeatureStore(TABLE[:, :width]), ROWS)
    assert (store.shape, store.dtype) == ((5, width), torch.float32)
    ids, out = torch.tensor([4, 0, 0, 1]), torch.full((4, width), -1.0)
    [reads] = store.gather(ids, out)
    assert (reads.tier, reads.rows) == ("memory", 4)
    assert torch.equal(out, TABLE[ROWS[ids], :width])
    out.fill_(-1)
    store.gather_at(torch.tensor([3, 1]), torch.tensor([2, 0]), out)
    assert torch.equal(out[[2, 0]], TABLE[[3, 0], :width])
    assert (out[[1, 3]] == -1).all()


def test_selections_of_selections() -> None:
    store = SelectedFeatureStore(SelectedFeatureStore(MemoryFeatureStore(TABLE), ROWS), [4, 3])
    out = torch.empty(2, 3)
    store.gather(torch.tensor([1, 0]), out)
    assert torch.equal(out, TABLE[[3, 2]])


@pytest.mark.parametrize("bad", [-1, 5, 2**40])
def test_an_id_outside_is_refused_though_the_other_store_has_it(bad: int) -> None:
    store = SelectedFeatureStore(MemoryFeatureStore(TABLE), ROWS)
    with pytest.raises(SeedError, match=r"\[0, 5\)"):
        store.gather(torch.tensor([0, bad]), torch.empty(2, 3))
    with pytest.raises(SeedError, match=r"\[0, 5\)"):
        store.gather_at(torch.tensor([bad]), torch.tensor([1]), torch.empty(2, 3))


def test_rows_that_the_other_store_has_not() -> None:
    with pytest.raises(GraphDataError, match=r"id 8 at position 1 is not a node; ids must lie in \[0, 8\)"):
        SelectedFeatureStore(MemoryFeatureStore(TABLE), [0, 8])


def test_of_quantised_rows_bytes_are_selected() -> None:
    whole = quantize(TABLE)
    store = select_rows(whole, ROWS)
    found, wanted = torch.empty(5, 3), torch.empty(5, 3)
    store.gather(torch.arange(5), found)
    whole.gather(ROWS, wanted)
    assert torch.equal(found, wanted)
    assert store.codes.dtype is torch.int8
