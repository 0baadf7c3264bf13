"""What is measured: one generator of comparisons for each topic."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from tests.benchmarks.contenders import FANOUTS, GROWTH, MALLOC_2MB, comparison
from tests.benchmarks.contenders import contender as _contender
from tests.benchmarks.growing import growth
from tests.benchmarks.loading import loaders
from tests.benchmarks.measure import Comparison, Report, Role, take_turns
from tests.benchmarks.peaks import loader_memory, sampling_memory
from tests.benchmarks.samplers import samplers
from tests.benchmarks.sampling import sampling
from tests.benchmarks.scale import Scale
from tests.benchmarks.workers import HUGE_PAGE_MALLOC, Workers


def gather(scale: Scale, _: Workers, report: Report) -> Iterator[Comparison]:
    """Random feature rows, on one thread."""
    for huge_pages in (False, True) if scale.every_setting else (True,):
        with Workers() as workers:  # tables are large: none stays for the next comparison
            settings: dict[str, Any] = {"num_rows": scale.gather_rows, "num_features": 128, "num_ids": scale.gather_ids}
            settings |= {"huge_pages": huge_pages}
            plain, repeats = workers.get("gathers", **settings), {"repeats": scale.gather_repeats}
            ways = {
                "index_select": "index_select",
                "index_select(out=)": "index_select_out",
                "index_select(out=slot)": "index_select_slot",
                "x[ids]": "subscript",
                "numpy take": "numpy_take",
            }
            contenders = [
                _contender("ours, into a slot", Role.OURS, plain, "gather", **repeats, way="ours"),
                *(_contender(n, Role.PEER, plain, "gather", **repeats, way=way) for n, way in ways.items()),
                _contender("memcpy of as much", Role.CEILING, plain, "copy", **repeats),
                _contender("random 4-byte reads, their lines", Role.CEILING, plain, "read", **repeats),
            ]
            if scale.every_setting:
                name, tuned = f"index_select{MALLOC_2MB}", workers.get("gathers", HUGE_PAGE_MALLOC, **settings)
                contenders.insert(2, _contender(name, Role.PEER, tuned, "gather", **repeats, way="index_select"))
            share = plain.call("share_on_huge_pages")["share"]
            rows = f"{scale.gather_ids:,} of {scale.gather_rows:,} rows of 128 float32"
            setting = f"{rows}, {share:.0%} of the table on 2 MB pages"
            comparison = Comparison("Gather", setting, "GB/s", contenders, more_is_better=True)
            yield take_turns(comparison, scale.num_turns, report)


def queue(graph: str, scale: Scale, workers: Workers, report: Report) -> Iterator[Comparison]:
    """From another process, or within one; without a model."""
    ours = workers.get("ours", graph=graph)
    for fanouts in FANOUTS:
        work: dict[str, Any] = {"num_batches": scale.loaded_batches, "fanouts": fanouts}
        in_process = work | {"batch_format": "blocks"}
        contenders = [
            _contender("sampler process, 1 thread", Role.OURS, ours, "receive", **work),
            _contender("in process, 0 threads", Role.PEER, ours, "load", **in_process, num_threads=0),
            _contender("in process, 1 thread", Role.PEER, ours, "load", **in_process, num_threads=1),
        ]
        yield take_turns(comparison("Queue", graph, fanouts, contenders), scale.num_turns, report)


TOPICS = ("sampling", "samplers", "gather", "loaders", "queue", "memory", "growth")
Suite = Callable[[Scale, Workers, Report], Iterator[Comparison]]


def suites(graph: str, *, is_largest: bool) -> dict[str, list[Suite]]:
    """What is measured on a graph, by the topic's name on the command line.

    Args:
        is_largest: of the graphs of this run, so that topics which take one graph alone take this one.
    """
    if graph == GROWTH:
        return {"growth": [partial(growth, graph)]}
    every = {"sampling": sampling, "loaders": loaders}
    alone = {"samplers": [partial(samplers, graph)], "gather": [gather], "queue": [partial(queue, graph)]}
    alone["memory"] = [partial(loader_memory, graph), partial(sampling_memory, graph)]
    found = {topic: [partial(suite, graph)] for topic, suite in every.items()} | (alone if is_largest else {})
    return {topic: found[topic] for topic in TOPICS if topic in found}
