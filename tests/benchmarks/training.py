"""Whole epochs of training: the README's main job by us, and by DGL's own example of the same model."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from tests.benchmarks import goals
from tests.benchmarks.contenders import TITLES, contender, count
from tests.benchmarks.measure import Comparison, Contender, Report, Role, take_turns
from tests.benchmarks.our_training import BATCH_SIZE, FANOUTS, HIDDEN, PRECISIONS
from tests.benchmarks.scale import Scale
from tests.benchmarks.workers import Workers

_REMARK = (
    "Both sides: Adam, dropout 0.5, torch and OpenMP with as many threads as cores, which wait passively. Ours runs "
    "under Lightning's Trainer, DGL's is a plain loop. An epoch of DGL begins with its workers, where it has any. Both "
    "begin with the same weights; *loss* is the mean of an epoch, the median of the same epochs."
)


def epochs(graph: str, scale: Scale, workers: Workers, report: Report) -> Iterator[Comparison]:
    """On one core and on two, where there are so many; every contender in a process of its own, an epoch a turn."""
    with_dgl = "DGL" in workers.found
    for cores in [number for number in (1, 2) if number <= len(os.sched_getaffinity(0))]:
        environment = {"OMP_NUM_THREADS": str(cores), "OMP_WAIT_POLICY": "passive"}
        settings: dict[str, Any] = {"graph": graph, "cores": cores}
        ours = workers.get("our_training", environment, **settings)
        contenders: list[Contender] = [
            contender(f"ours, {precision}", Role.OURS, ours, "epoch", precision=precision) for precision in PRECISIONS
        ]
        for precision in PRECISIONS if with_dgl else ():
            theirs = workers.get("peer_dgl_training", environment, **settings)
            for our_dropout in (False, True):
                family = f"DGL's example, {precision}{', our dropout' if our_dropout else ''}"
                for number in (0, 1):
                    name, task = f"{family}, {count(number, 'worker')}", {"num_workers": number}
                    task |= {"precision": precision, "our_dropout": our_dropout}
                    contenders.append(contender(name, Role.PEER, theirs, "epoch", family=family, **task))
        setting = (
            f"{TITLES[graph]}, GraphSAGE of {len(FANOUTS)} layers {HIDDEN} wide, fanouts {FANOUTS}, batches of "
            f"{BATCH_SIZE}, {count(cores, 'core')}"
        )
        compared = Comparison(
            "Training", setting, "ms an epoch", contenders, goals=goals.of_training(cores), remark=_REMARK
        )
        yield take_turns(compared, scale.loader_turns, report)
