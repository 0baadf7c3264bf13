from __future__ import annotations

import pytest

from lightning_gnnload.cache.packed import layout as layout_module
from lightning_gnnload.cache.packed import open as open_module
from lightning_gnnload.cache.packed.rates import Rates


@pytest.fixture
def small_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets small tables be larger than the memory, as buffers otherwise take more than they have."""
    monkeypatch.setattr(layout_module, "_LEAST_CHUNK", 4096)
    monkeypatch.setattr(layout_module, "_LEAST_BUFFER", 4096)
    # A disk that reads at random more slowly than any other way.
    monkeypatch.setattr(open_module, "measure_rates", lambda *arguments: Rates(1e9, 1e9, 1e3))
