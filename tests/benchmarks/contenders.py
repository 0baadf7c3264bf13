"""What suites are made of: contenders that are workers, and the settings that peers run with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from lightning_gnnload import ops
from tests.benchmarks.measure import Comparison, Contender, Role
from tests.benchmarks.scale import Scale
from tests.benchmarks.workers import HUGE_PAGE_MALLOC, Worker, Workers

FANOUTS = ([15, 10, 5], [10, 25])  # nearest hop first
FORCED_SETS = ops.instruction_sets()[1:-1]  # those of other machines: AVX2, where this one has AVX-512
GROWTH = "growth"
TITLES = {"debian": "Debian", "g2": "G2", "g3": "G3", "g1": "G1", GROWTH: "the large graph"}  # by size
TYPED_TITLES = {"debian-typed": "Debian with types", "m10": "market of 10 M edges", "m100": "market of 100 M edges"}
TITLES |= TYPED_TITLES
MALLOC_2MB = ", malloc on 2 MB pages"


class Setting(NamedTuple):
    """A way to run a peer.

    Attributes:
        name: what the table calls it, the library first.
        environment: variables of its process.
        settings: arguments of its worker.
        work: arguments of its task.
    """

    name: str
    environment: dict[str, str] = {}  # noqa: RUF012  never changed
    settings: dict[str, Any] = {}  # noqa: RUF012
    work: dict[str, Any] = {}  # noqa: RUF012


IN_MEMORY = {"in_memory": True}
_IN_MEMORY_2MB = f", topology in memory{MALLOC_2MB}"
SAMPLING_PEERS = {
    "DGL": [
        Setting(f"DGL{_IN_MEMORY_2MB}", HUGE_PAGE_MALLOC, IN_MEMORY),
        Setting("DGL"),
        Setting(f"DGL{MALLOC_2MB}", HUGE_PAGE_MALLOC),
        Setting(f"DGL, int32, not fused{_IN_MEMORY_2MB}", HUGE_PAGE_MALLOC, IN_MEMORY | {"int32": True}),
    ],
    "GraphBolt": [
        Setting(f"GraphBolt, int32{_IN_MEMORY_2MB}", HUGE_PAGE_MALLOC, IN_MEMORY),
        Setting("GraphBolt, int32, topology in memory", {}, IN_MEMORY),
    ],
    "pyg-lib": [
        Setting(
            f"pyg-lib, int32, no edge ids{_IN_MEMORY_2MB}",
            HUGE_PAGE_MALLOC,
            IN_MEMORY,
            {"library": "pyg-lib", "int32": True, "edge_ids": False},
        ),
        Setting(f"pyg-lib{_IN_MEMORY_2MB}", HUGE_PAGE_MALLOC, IN_MEMORY, {"library": "pyg-lib"}),
    ],
    "torch-sparse": [
        Setting(
            f"torch-sparse{_IN_MEMORY_2MB}", HUGE_PAGE_MALLOC, IN_MEMORY, {"library": "torch-sparse", "num_batches": 3}
        )
    ],
}


def contender(name: str, role: Role, worker: Worker, task: str, *, family: str = "", **arguments: Any) -> Contender:
    return Contender(name, role, lambda turn: worker.call(task, turn=turn, **arguments), family=family)


def comparison(
    topic: str, graph: str, fanouts: Sequence[int], contenders: list[Contender], unit: str = "ms a batch", **more: Any
) -> Comparison:
    setting = f"{TITLES[graph]}, fanouts {', '.join(map(str, fanouts))}"
    return Comparison(topic, setting, unit, contenders, **more)


def count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def peers(
    ways: dict[str, list[Setting]], graph: str, scale: Scale, workers: Workers
) -> Iterator[tuple[str, Setting, Worker]]:
    """(family, setting, worker) of every peer that is here, in every setting or in the first alone."""
    for family, settings in ways.items():
        if (found := workers.found.get(family)) is None:
            continue
        for setting in settings[: None if scale.every_setting else 1]:
            arguments = _where(found.peer.worker, graph) | setting.settings
            yield family, setting, workers.get(found.peer.worker, setting.environment, **arguments)


def _where(worker: str, graph: str) -> dict[str, str]:
    """How a peer's worker is told of a graph: those in another Python read files only."""
    if worker == "peer_dgl":
        return {"graph": graph}
    from tests.benchmarks.graphs import GRAPHS, wide_indices

    folder = {"folder": str(GRAPHS[graph].folder)}
    return folder | {"wide": str(wide_indices(graph))} if worker == "peer_pyg" else folder
