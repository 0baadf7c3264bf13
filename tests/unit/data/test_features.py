import warnings

import numpy as np
import pytest
import torch

from lightning_gnnload import FeatureStore, MemoryFeatureStore
from lightning_gnnload.data.features import gather
from lightning_gnnload.errors import SeedError

DTYPES = [torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.int8, torch.uint8, torch.int64, torch.bool]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [0, 1, 3, 64])
def test_gather_equals_indexing(dtype: torch.dtype, width: int) -> None:
    rows = torch.randn(50, width, generator=torch.Generator().manual_seed(0)).mul(10).to(dtype)
    ids = torch.tensor([49, 0, 0, 7])  # repeated, unsorted, both ends
    out = torch.empty(4, width, dtype=dtype)
    store = MemoryFeatureStore(rows)
    store.gather(ids, out)
    assert torch.equal(out, rows[ids])
    assert store.shape == (50, width)
    assert store.row_bytes == width * dtype.itemsize


def test_a_single_row_may_have_any_stride() -> None:
    out = torch.empty(2, 1)
    MemoryFeatureStore(torch.ones(1).as_strided((1, 1), (0, 0))).gather(torch.tensor([0, 0]), out)
    assert out.tolist() == [[1], [1]]


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_in_memory_are_not_copied(dtype: torch.dtype) -> None:
    rows = torch.ones(4, 3, dtype=dtype)
    store = MemoryFeatureStore(rows)
    assert store.rows.data_ptr() == rows.data_ptr()
    assert store.dtype is dtype


class Plain(FeatureStore):
    """A store of one's own that does no more than it must; in front of another, from which it takes half."""

    def __init__(self, rows: torch.Tensor, behind: FeatureStore) -> None:
        self.rows, self.behind = rows, behind

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows.shape[0], self.rows.shape[1]

    @property
    def dtype(self) -> torch.dtype:
        return self.rows.dtype

    def gather(self, ids: torch.Tensor, out: torch.Tensor) -> None:
        out.copy_(self.rows[ids])
        even = (ids % 2 == 0).nonzero().ravel()
        out[even] = 0
        self.behind.gather_at(ids[even], even, out)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.int8])
@pytest.mark.parametrize("width", [0, 1, 64])
@pytest.mark.parametrize("num_stores", [0, 1, 3])
def test_rows_are_gathered_at_positions(dtype: torch.dtype, width: int, num_stores: int) -> None:
    """Stores behind stores: each has rows on their way, which the next must not overwrite."""
    rows = torch.randn(50, width, generator=torch.Generator().manual_seed(0)).mul(10).to(dtype)
    store: FeatureStore = MemoryFeatureStore(rows)
    for _ in range(num_stores):
        store = Plain(rows, store)
    ids, positions = torch.tensor([49, 0, 0, 7, 8]), torch.tensor([5, 0, 2, 6, 1])
    out = torch.full((7, width), 3, dtype=dtype)
    store.gather_at(ids, positions, out)
    wanted = torch.full_like(out, 3)
    wanted[positions] = rows[ids]
    assert torch.equal(out, wanted)


def test_labels_are_gathered_with_one_number_a_node() -> None:
    out = torch.empty(2, dtype=torch.int64)
    gather(torch.arange(9), torch.tensor([8, 1]), out)
    assert out.tolist() == [8, 1]


@pytest.mark.parametrize("bad", [-1, 3, 2**40])
def test_an_id_outside_the_table_is_refused(bad: int) -> None:
    out = torch.full((2, 2), 7.0)
    with pytest.raises(SeedError, match=str(bad)):
        MemoryFeatureStore(torch.zeros(3, 2)).gather(torch.tensor([0, bad]), out)
    assert out.eq(7).all()


def test_a_read_only_map_is_shared_in_silence(tmp_path) -> None:
    np.arange(12, dtype=np.float32).tofile(tmp_path / "x")
    rows = np.memmap(tmp_path / "x", np.float32, "r", shape=(4, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # torch warns about arrays that are not writable
        store = MemoryFeatureStore(rows)
    assert store.rows.data_ptr() == rows.ctypes.data
    del rows  # the store alone keeps the map: a view of freed memory would crash here
    out = torch.empty(1, 3)
    store.gather(torch.tensor([3]), out)
    assert out.tolist() == [[9, 10, 11]]


def test_rows_that_are_not_contiguous_become_so() -> None:
    rows = torch.arange(12.0).view(3, 4).t()
    out = torch.empty(1, 3)
    MemoryFeatureStore(rows).gather(torch.tensor([1]), out)
    assert out.tolist() == [[1, 5, 9]]
