"""What holds of every batch format, whichever library it serves."""

from __future__ import annotations

import importlib.util
from typing import get_args

import pytest
import torch

from lightning_gnnload import GraphDataModule, MiniBatch, NeighborSampler
from lightning_gnnload.adapters.formats import FORMATS, FormatName
from tests.unit.toy import toy_data

ALL = [
    pytest.param(
        name,
        marks=pytest.mark.skipif(
            each.library is not None and importlib.util.find_spec(each.library) is None, reason=f"needs {each.library}"
        ),
    )
    for name, each in FORMATS.items()
]


def test_checkers_of_types_and_the_command_line_know_all_rows() -> None:
    assert get_args(FormatName) == tuple(FORMATS)


@pytest.mark.parametrize("name", ALL)
def test_a_data_module_gives_batches_whose_floats_can_be_converted(name: FormatName) -> None:
    form, sampler = FORMATS[name], NeighborSampler([3, 2], expand="new")
    form.check_device(torch.device("cpu"))
    module = GraphDataModule(toy_data(), sampler, batch_size=50, batch_format=name, num_threads=0)
    batches = list(module.train_dataloader())
    assert len(batches) == 2
    assert isinstance(batches[0], MiniBatch) == (form.library is None)
    met: list[torch.dtype] = []
    form.converted(batches[0], lambda rows: met.append(rows.dtype) or rows)
    # Lightning converts a MiniBatch itself. A library's batch left out here would keep its precision, and fail in fp16.
    assert (torch.float32 in met) == (form.library is not None)
