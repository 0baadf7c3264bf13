"""Random feature rows, beside other libraries' ways and what the machine's memory can do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.benchmarks.contenders import MALLOC_2MB, contender, count
from tests.benchmarks.measure import Comparison, Report, Role, take_turns
from tests.benchmarks.scale import Scale
from tests.benchmarks.workers import HUGE_PAGE_MALLOC, Workers

_PEERS = {
    "index_select": "index_select",
    "index_select(out=)": "index_select_out",
    "index_select(out=slot)": "index_select_slot",
    "x[ids]": "subscript",
    "numpy take": "numpy_take",
}


def gather(scale: Scale, _: Workers, report: Report) -> Iterator[Comparison]:
    """On either kind of pages, and on two threads that each gather a batch of their own."""
    for huge_pages, num_threads in ((False, 1), (True, 1), (True, 2)) if scale.every_setting else ((True, 1),):
        with Workers() as workers:  # tables are large: none stays for the next comparison
            settings: dict[str, Any] = {"num_rows": scale.gather_rows, "num_features": 128, "num_ids": scale.gather_ids}
            settings |= {"huge_pages": huge_pages, "num_threads": num_threads}
            plain = workers.get("gathers", **settings)
            repeats: dict[str, Any] = {"repeats": scale.gather_repeats}
            contenders = [
                contender("ours, into a slot", Role.OURS, plain, "gather", **repeats, way="ours"),
                *(contender(name, Role.PEER, plain, "gather", **repeats, way=way) for name, way in _PEERS.items()),
                contender("memcpy of as much", Role.CEILING, plain, "copy", **repeats),
            ]
            if num_threads == 1:
                contenders.append(contender("random 4-byte reads, their lines", Role.CEILING, plain, "read", **repeats))
            if scale.every_setting:
                name, tuned = f"index_select{MALLOC_2MB}", workers.get("gathers", HUGE_PAGE_MALLOC, **settings)
                contenders.insert(2, contender(name, Role.PEER, tuned, "gather", **repeats, way="index_select"))
            share = plain.call("share_on_huge_pages")["share"]
            rows = f"{scale.gather_ids:,} of {scale.gather_rows:,} rows of 128 float32"
            setting = f"{rows}, {share:.0%} of the table on 2 MB pages, {count(num_threads, 'thread')}"
            compared = Comparison("Gather", setting, "GB/s", contenders, more_is_better=True)
            yield take_turns(compared, scale.num_turns, report)
