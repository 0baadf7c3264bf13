"""What a data module samples in a phase: its seeds, their links, and how they become mini-batches."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, Literal, Protocol

import numpy as np

from lightning_gnnload.cache.packed.settings import Packing
from lightning_gnnload.data.orders.seeds import SeedOrder, Sequential
from lightning_gnnload.data.seedtable import SeedTable
from lightning_gnnload.errors import LoaderConfigError, SeedError
from lightning_gnnload.plugin.module.caching import CachedModule
from lightning_gnnload.plugin.module.predict_seeds import predict_seeds
from lightning_gnnload.sample.base import Sampler
from lightning_gnnload.sample.seeds.links import LinkSettings, seed_kind
from lightning_gnnload.sample.workload import Workload


class PhasedModule(CachedModule, Protocol):
    """A data module as its phases see it: the settings that say what is sampled."""

    batch_size: int
    eval_batch_size: int
    eval_draws: Literal["fixed", "fresh"]
    eval_negatives: Any
    drop_last: bool
    links: LinkSettings
    order: SeedOrder
    packing: Packing | None
    predict: Any
    as_of: Any
    seed: int


def phase_workload(module: PhasedModule, phase: str, num_ranks: int) -> Workload:
    """Describes what ``num_ranks`` trainers of the whole graph sample in ``"train"``, ``"val"``, ``"test"`` or
    ``"predict"``. Raises SeedError: the phase has no seeds."""
    data = module.graph_data
    seeds = _seeds(module, phase)
    return Workload(
        data.graph,
        _sampler(module, phase),
        partial(seed_kind, seeds=seeds, settings=_links(module, phase, seeds)),
        seed=module.seed,
        num_ranks=num_ranks,
        labels=data.y,
        **(_training_settings(module) if phase == "train" else _evaluation_settings(module)),
    )


def _training_settings(module: PhasedModule) -> dict[str, Any]:
    # overfit_batches means the same batches in every epoch.
    overfit = module.trainer is not None and module.trainer.overfit_batches > 0
    max_epochs = getattr(module.trainer, "max_epochs", None)
    return {
        "batch_size": module.batch_size,
        "order": Sequential() if overfit else module.order,
        "fixed_draws": overfit,
        "drop_last": module.drop_last,
        "end_epoch": max_epochs if max_epochs is not None and max_epochs >= 0 else None,  # -1: without an end
        "cycle": None if module.packing is None else module.packing.cycle,
    }


def _evaluation_settings(module: PhasedModule) -> dict[str, Any]:
    fixed = module.eval_draws == "fixed"
    return {"batch_size": module.eval_batch_size, "order": Sequential(), "fixed_draws": fixed}


def _sampler(module: PhasedModule, phase: str) -> Sampler:
    sampler = module.sampler if phase == "train" else module.eval_sampler
    if module.graph_data.edge_stores and getattr(sampler, "edge_ids", None) is False:
        # Rows of edges are found by them. A copy, as the sampler is the user's.
        sampler = copy(sampler)
        sampler.edge_ids = True  # type: ignore[attr-defined]
    return sampler


def _seeds(module: PhasedModule, phase: str) -> np.ndarray | SeedTable:
    data = module.graph_data
    if phase == "predict":
        seeds = predict_seeds(module.predict, module.as_of, data, heeds_times=_heeds_times(module))
    else:
        seeds = data.table(phase) or data.split(phase)
    if len(seeds):
        return seeds
    if data.tasks and data.task is None:
        raise SeedError(
            f"there are no seeds to {phase} on before a task is chosen, of {', '.join(data.tasks)}: give "
            f"GraphDataModule task=NAME (--data.task NAME)."
        )
    taker = "GraphDataModule" if phase == "predict" else "GraphData, from_dgl or from_pyg"
    raise SeedError(f"there are no seeds to {phase} on: give {taker} {phase}=ids, with at least one node id.")


def _heeds_times(module: PhasedModule) -> bool:
    """Whether predictions depend on times; raises LoaderConfigError where one is named nevertheless."""
    sampler = _sampler(module, "predict")
    has_before = getattr(sampler, "before", None) is not None
    if module.as_of is not None and not has_before:
        raise LoaderConfigError(
            f"as_of={module.as_of!r} says for which time to predict, but {sampler!r} heeds no times. Leave it out, or "
            "take NeighborSampler with before='<='."
        )
    return has_before and module.graph_data.graph.clock is not None


def _links(module: PhasedModule, phase: str, seeds: np.ndarray | SeedTable) -> LinkSettings:
    """Settings of a phase's links. Outside of training, only links that are known edges are left out of sampling;
    predictions have no negatives."""
    training, in_graph = phase == "train", isinstance(seeds, SeedTable) and seeds.edge_ids is not None
    negatives = module.links.negatives if training else None if phase == "predict" else module.eval_negatives
    by_type = negatives.values() if isinstance(negatives, Mapping) else [negatives]
    names = {rule.weight for rule in by_type if rule is not None and rule.weight is not None}
    return replace(
        module.links,
        negatives=negatives,
        exclude=module.links.exclude if training or in_graph else None,
        weights={name: module.graph_data.node_column(name) for name in names},
    )
