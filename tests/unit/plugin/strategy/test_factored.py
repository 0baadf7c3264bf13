"""What FactoredStrategy makes of the loaders that Lightning hands it."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from lightning_gnnload import FactoredStrategy


@pytest.mark.parametrize("loaders", [[], ()])
def test_a_split_that_is_not_there_is_no_foreign_loader(loaders: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert FactoredStrategy().process_dataloader(loaders) is loaders


def test_a_foreign_loader_is_told() -> None:
    loader = DataLoader(torch.arange(4))
    with pytest.warns(UserWarning, match="was given a DataLoader, which trainers read themselves"):
        assert FactoredStrategy().process_dataloader(loader) is loader
