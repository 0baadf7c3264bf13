"""The device of these tests, which are skipped where there is none."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import torch

from lightning_gnnload.ops.cuda.launch.device import Device
from tests.runif import RunIf

NEEDS_GPU = RunIf(cuda=1, extras="cuda")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if __package__ in getattr(item, "module", item).__name__:
            item.add_marker(NEEDS_GPU)


@pytest.fixture
def device() -> Iterator[Device]:
    from lightning_gnnload.ops.cuda.launch.open_device import open_device

    yield open_device(torch.device("cuda", torch.cuda.current_device()))
    gc.collect()
    torch.cuda.synchronize()
