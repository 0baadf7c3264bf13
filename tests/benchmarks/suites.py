"""What is measured on which graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from tests.benchmarks.building import building
from tests.benchmarks.contenders import GROWTH, TYPED_TITLES
from tests.benchmarks.gathering import gather
from tests.benchmarks.growing import growth
from tests.benchmarks.link_loading import link_loaders
from tests.benchmarks.loading import loaders, queue
from tests.benchmarks.measure import Comparison, Report
from tests.benchmarks.peaks import loader_memory, sampling_memory
from tests.benchmarks.pyg_loading import pyg_loaders
from tests.benchmarks.samplers import samplers
from tests.benchmarks.sampling import sampling
from tests.benchmarks.scale import Scale
from tests.benchmarks.training import epochs
from tests.benchmarks.typed import links, timed, typed
from tests.benchmarks.workers import Workers

TYPED = {"typed": typed, "timed": timed, "links": links, "link_loaders": link_loaders, "building": building}
DEFAULT_TOPICS = ("sampling", "samplers", "gather", "loaders", "queue", "memory", "training", "growth", *TYPED)
TOPICS = (*DEFAULT_TOPICS, "pyg_loaders")
Suite = Callable[[Scale, Workers, Report], Iterator[Comparison]]


def suites(graph: str, *, is_largest: bool) -> dict[str, list[Suite]]:
    """By the topic's name on the command line, in the order of the report.

    Args:
        is_largest: of the graphs of this run, so that topics which take one graph alone take this one.
    """
    if graph == GROWTH:
        return {"growth": [partial(growth, graph)]}
    if graph in TYPED_TITLES:
        return {topic: [partial(suite, graph)] for topic, suite in {**TYPED, "pyg_loaders": pyg_loaders}.items()}
    every: dict[str, list[Suite]] = {
        "sampling": [partial(sampling, graph)],
        "loaders": [partial(loaders, graph)],
        "pyg_loaders": [partial(pyg_loaders, graph)],
    }
    if graph == "debian":
        every["training"] = [partial(epochs, graph)]
    alone: dict[str, list[Suite]] = {
        "samplers": [partial(samplers, graph)],
        "gather": [gather],
        "queue": [partial(queue, graph)],
        "memory": [partial(loader_memory, graph), partial(sampling_memory, graph)],
    }
    found = every | alone if is_largest else every
    return {topic: found[topic] for topic in TOPICS if topic in found}
