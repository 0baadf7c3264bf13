"""Keywords of PyG's loaders and data modules: which are whose, and what becomes of them."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from copy import copy
from typing import Any

import torch
from torch.utils.data import DataLoader
from torch_geometric.sampler import BaseSampler

from lightning_gnnload.errors import LoaderConfigError, warn
from lightning_gnnload.ops.checks import as_integer
from lightning_gnnload.pyg.compat import SubgraphType
from lightning_gnnload.pyg.sampler import GnnloadSampler

MODULE_KEYWORDS = ("seed", "order", "cache", "eval_draws", "num_threads")
"""Settings of a GraphDataModule that PyG's data modules of this package have, too."""
# Of several ranks without a seed: each would draw another one, but they share rows by it.
SHARED_SEED = 0
# The others decide how a GnnloadSampler's graph is read, which its copies share.
_CHANGEABLE = ("num_neighbors", "subgraph_type", "replace", "disjoint", "temporal_strategy")
LOADER_INPUTS = (
    *("node_sampler", "input_nodes", "input_time", "input_id"),
    *("link_sampler", "edge_label_index", "edge_label", "edge_label_time"),
)
"""Arguments of PyG's loaders that the data modules set themselves."""

_MINI_BATCHES = "whose mini-batches are of another kind"
_WITH_FROM_PYG = f"GraphDataModule.from_pyg(data, ...), {_MINI_BATCHES}"
OF_GRAPH_DATA_MODULE = {
    "batch_format": "PyG's own, as its loaders yield it",
    "eval_batch_size": "eval_loader_kwargs=dict(batch_size=...)",
    "eval_sampler": "eval_loader_kwargs=dict(num_neighbors=...)",
    "predict": "input_pred_nodes=... or input_pred_edges=...",
    "negatives": "neg_sampling=...",
    "eval_negatives": "eval_loader_kwargs=dict(neg_sampling=...)",
    "sampling_device": "'cpu', as mini-batches carry the edges' ids in the data, which the host looks up",
    "partition": _WITH_FROM_PYG,
    "exclude": _WITH_FROM_PYG,
    "reverse_types": _WITH_FROM_PYG,
    "feature_name": "the attribute's own name",
    "label_name": "the attribute's own name",
    "edge_feature_name": "the attribute's own name",
    "window": "time_window=...",
}
"""Settings of a GraphDataModule that these lack, and what says the same here."""


class DrawnSeed(int):
    """A seed that torch drew, as the user gave none: a loader that is resumed goes on by the seed of its state."""


def drawn_seed(seed: int | None, sampler: Any, kwargs: Mapping[str, Any]) -> int:
    """Returns the user's seed, or that of the user's sampler; else one drawn by the user's generator, or a
    :class:`DrawnSeed` of torch's own."""
    if seed is None and isinstance(sampler, GnnloadSampler):
        return sampler.seed
    if seed is None:
        generator = kwargs.get("generator")
        # By torch's generator, so that torch.manual_seed decides.
        number = int(torch.randint(2**62, (), generator=generator))
        return DrawnSeed(number) if generator is None else number
    if isinstance(seed, DrawnSeed):  # of a loader that Lightning makes anew
        return seed
    number = as_integer("seed", seed, LoaderConfigError)
    if not 0 <= number < 2**64:
        raise LoaderConfigError(f"seed={seed!r}: a whole number from 0 to 2**64 - 1 is needed.")
    return number


def agreed_seed(seed: int | None, sampler: BaseSampler | None, kwargs: Mapping[str, Any]) -> int | None:
    """Returns a seed that is the same in every rank: the user's, that of the user's sampler or generator, or that of
    ``seed_everything``, which sets a variable that all ranks have; None without any."""
    if seed is not None:
        return seed
    if isinstance(sampler, GnnloadSampler):
        return sampler.seed
    if kwargs.get("generator") is not None:
        return drawn_seed(None, None, kwargs)
    return int(os.environ["PL_GLOBAL_SEED"]) if "PL_GLOBAL_SEED" in os.environ else None


def changed_sampler(sampler: BaseSampler, settings: Mapping[str, Any]) -> BaseSampler:
    """Returns a copy with other settings, itself where there are none; raises LoaderConfigError for settings that all
    copies share."""
    if not settings:
        return sampler
    changed = copy(sampler)
    for name, value in settings.items():
        if isinstance(sampler, GnnloadSampler) and name not in _CHANGEABLE:
            raise LoaderConfigError(
                f"eval_loader_kwargs has {name}=, which is of the graph that all phases share. It may change "
                f"{', '.join(_CHANGEABLE)}."
            )
        setattr(changed, name, SubgraphType(value) if name == "subgraph_type" else value)
    return changed


def split_keywords(kwargs: Mapping[str, Any], names: set[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the keywords of these names, and the others."""
    chosen = {name: value for name, value in kwargs.items() if name in names}
    return chosen, {name: value for name, value in kwargs.items() if name not in names}


def loader_named(loader: str, sampler: BaseSampler | None, sampler_argument: str) -> str:
    """Returns the name of the loader, ``"custom"`` where the user gave a sampler; LoaderConfigError: there is none."""
    if sampler is not None:
        return "custom"
    if loader not in ("full", "neighbor", "link_neighbor"):
        more = f" without {sampler_argument}=" if loader == "custom" else ""
        raise LoaderConfigError(
            f"Undefined 'loader' option (got {loader!r}{more}). Give 'neighbor' or 'full', or {sampler_argument}=."
        )
    return loader


def check_keywords(
    kwargs: Mapping[str, Any], sampler_names: set[str], loader_class: type[DataLoader], module_class: str
) -> None:
    """Raises LoaderConfigError: keywords that nothing in a data module has, or that a GraphDataModule has, but that are
    others there."""
    loader_names = {*inspect.signature(loader_class).parameters, *inspect.signature(DataLoader).parameters}
    names = sampler_names | loader_names - {"data", "kwargs", "dataset", *LOADER_INPUTS}
    for name in kwargs:
        if name in names:
            continue
        if name in OF_GRAPH_DATA_MODULE:
            raise LoaderConfigError(
                f"{module_class} has no {name}=; that of GraphDataModule is here: {OF_GRAPH_DATA_MODULE[name]}."
            )
        raise LoaderConfigError(
            f"{module_class} knows no {name}=. It takes the keywords of PyG's, of torch's DataLoader, and "
            f"{', '.join(sorted(MODULE_KEYWORDS))}."
        )


def drop_shuffle(kwargs: dict[str, Any], name: str) -> None:
    """Drops ``shuffle`` with a warning, as PyG does."""
    if "shuffle" in kwargs:
        warn(
            f"The 'shuffle={kwargs.pop('shuffle')}' option is ignored in '{name}': training rows are shuffled, others "
            "are not. Remove it from the argument list to disable this warning; order='sequential' shuffles none."
        )


def reset_for_full_batches(kwargs: dict[str, Any], name: str) -> None:
    """Drops what does not fit one mini-batch of the whole graph, with warnings, as PyG does."""
    # In PyG's words, here and below, by which scripts filter warnings.
    for key, needed in (("batch_size", 1), ("num_workers", 0), ("pin_memory", False)):
        if kwargs.get(key, needed) != needed:
            warn(f"Re-setting '{key}' to {needed} in '{name}' for loader='full' (got '{kwargs[key]}')")
            kwargs[key] = needed
    for key in ("sampler", "batch_sampler"):
        if kwargs.pop(key, None) is not None:
            warn(f"'{key}' option is not supported for loader='full'")
