"""Tables of features as arrays of a folder: their names, and the bytes that hold their rows."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from lightning_gnnload.data.features import FeatureStore
from lightning_gnnload.data.quantized import QuantizedFeatureStore


def table_name(name: str) -> str:
    """Returns the name of the array that holds a table. Of other arrays, only tables of edges, scales and offsets have
    a dot in their names, so that none is taken."""
    return f"table.{name}"


def raw_stores(stores: Mapping[str, FeatureStore]) -> dict[str, torch.Tensor | FeatureStore]:
    """Returns the arrays that hold the stores' rows: of a quantised one its bytes, scales and offsets."""
    arrays: dict[str, torch.Tensor | FeatureStore] = {}
    for name, store in stores.items():
        if isinstance(store, QuantizedFeatureStore):
            arrays |= {name: store.codes, f"{name}.scale": store.scale, f"{name}.offset": store.offset}
        else:
            arrays[name] = store
    return arrays


def quantized_dtypes(stores: Mapping[str, FeatureStore]) -> dict[str, str]:
    """Returns the dtype of the rows that each quantised store gathers."""
    return {
        name: str(store.dtype).removeprefix("torch.")
        for name, store in stores.items()
        if isinstance(store, QuantizedFeatureStore)
    }
