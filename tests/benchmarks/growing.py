"""How the time of a sampled edge grows with the graph."""

from __future__ import annotations

from collections.abc import Iterator

from tests.benchmarks import goals
from tests.benchmarks.contenders import FANOUTS, TITLES, contender
from tests.benchmarks.measure import Comparison, Report, Role, take_turns
from tests.benchmarks.scale import Scale
from tests.benchmarks.workers import Workers

_SMALL = "g1"


def growth(graph: str, scale: Scale, workers: Workers, report: Report) -> Iterator[Comparison]:
    """The same work on ``graph`` and on G1, turn by turn; each on 2 MB pages and as it is loaded."""
    fanouts = FANOUTS[0]
    for in_memory, where in ((True, "topology in memory on 2 MB pages"), (False, "topology as loaded")):
        with Workers() as own:  # 7 GB a graph: gone before the next
            contenders = [
                contender(
                    f"{TITLES[name]}, {table} table",
                    Role.OURS,
                    own.get("growth", graph=name, in_memory=in_memory),
                    "sample",
                    num_batches=scale.sampled_batches,
                    fanouts=fanouts,
                    table=table,
                )
                for name in (_SMALL, graph)
                for table in (("stamp", "hash", "auto") if in_memory else ("auto",))
            ]
            wanted = goals.of_growth(f"{TITLES[graph]}, auto table", f"{TITLES[_SMALL]}, auto table")
            setting = f"fanouts {', '.join(map(str, fanouts))}, {where}"
            compared = Comparison("Growth", setting, "ns a sampled edge", contenders, goals=wanted)
            yield take_turns(compared, scale.num_turns, report)
