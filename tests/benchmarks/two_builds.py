"""Does a change of the kernels pay? Two builds of them at the same work, in turns.

    python -m tests.benchmarks.two_builds other/_kernels.cpython-311-x86_64-linux-gnu.so
    python -m tests.benchmarks.two_builds other/_kernels.so --cases uniform typed --turns 20

The other build is the compiled module of another revision of ``kernels/``. Ratios are of processor time in the same
turn, other build by this one: above 1, this one is faster. Both must have sampled as many edges; the last column has
what one of them costs this build, in nanoseconds of processor time, which may be compared between cases.
"""

from __future__ import annotations

import argparse
import sys
from importlib.util import module_from_spec, spec_from_file_location
from statistics import median, quantiles
from typing import Any

from tests.benchmarks.errors import BenchmarkError
from tests.benchmarks.serve import serve
from tests.benchmarks.timing import PROCESSOR_MS
from tests.benchmarks.workers import Worker

_WEIGHTED = {"sampler": "WeightedNeighborSampler", "settings": {"fanouts": [15, 10, 5]}, "weighted": True}
_TYPED = {"fanouts": [10, 5, 3], "expand": "new", "untyped": False}
_UNTYPED = {"fanouts": [20, 10, 7], "expand": "new", "untyped": True}  # about as many edges a node
_TABLE = {"num_features": 128, "num_ids": 100_000, "huge_pages": True}

# By name: the module of the worker, its settings, its method, and that one's arguments.
CASES: dict[str, tuple[str, dict[str, Any], str, dict[str, Any]]] = {
    "uniform": ("ours.Ours", {"graph": "g1", "in_memory": True}, "sample", {"fanouts": [15, 10, 5]}),
    "uniform 10, 25": ("ours.Ours", {"graph": "g1", "in_memory": True}, "sample", {"fanouts": [10, 25]}),
    "weighted": ("our_samplers.OurSamplers", {"graph": "g1"}, "sample", _WEIGHTED),
    "typed": ("our_typed.OurTyped", {"graph": "m100"}, "sample_edges", _TYPED),
    "typed, untyped": ("our_typed.OurTyped", {"graph": "m100"}, "sample_edges", _UNTYPED),
    "timed": ("our_typed.OurTyped", {"graph": "m100"}, "sample_timed", {"fanouts": [10, 5, 3], "pick": "uniform"}),
    "gather": ("gathers.Gathers", {"num_rows": 2_000_000, **_TABLE}, "gather", {"way": "ours"}),
}


class Build:
    """One build, in a process of its own.

    Args:
        kernels: the file of its compiled module; None for the one that is installed.
    """

    def __init__(self, kernels: str | None) -> None:
        if kernels is not None:  # before the package is imported, which then takes this one
            spec = spec_from_file_location("lightning_gnnload.ops._kernels", kernels)
            if spec is None or spec.loader is None:
                raise BenchmarkError(f"{kernels} is no compiled module of Python's.")
            sys.modules[spec.name] = module = module_from_spec(spec)
            spec.loader.exec_module(module)
        self._made: dict[str, Any] = {}

    def run(self, case: str, turn: int, instruction_set: str | None, graph: str | None) -> dict[str, Any]:
        home, settings, method, arguments = CASES[case]
        settings = settings | ({"graph": graph} if graph and settings.get("graph") == "m100" else {})
        if (key := f"{home} {settings}") not in self._made:
            self._made.clear()  # tables and graphs are large
            module, name = home.split(".")
            self._made[key] = getattr(__import__(f"tests.benchmarks.{module}", fromlist=[name]), name)(**settings)
        size = {"repeats": 8} if method == "gather" else {"num_batches": 4}
        reply = getattr(self._made[key], method)(turn, **size, **arguments, instruction_set=instruction_set)
        # A gather says how many GB/s; whatever the unit, less is better below.
        cost = 1 / median(reply["values"]) if method == "gather" else reply[PROCESSOR_MS]
        return {"cost": cost, "edges": reply.get("edges", 0)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", help="the compiled module of the other build")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--instruction-set", help="avx2, say; by default the machine's best")
    parser.add_argument("--typed-graph", default="m100", help="m10 is a tenth of it")
    options = parser.parse_args()
    print("| case | times as fast as the other | 10th to 90th percentile | ns an edge |\n| --- | ---: | ---: | ---: |")
    with Worker("two_builds", kernels=options.other) as other, Worker("two_builds", kernels=None) as this:
        for case in options.cases:
            ratios, edge_ns = [], []
            for turn in range(options.turns + 1):
                replies = {}
                for build in (other, this) if turn % 2 else (this, other):
                    replies[build] = build.call(
                        "run", case=case, turn=turn, instruction_set=options.instruction_set, graph=options.typed_graph
                    )
                if replies[other]["edges"] != replies[this]["edges"]:
                    raise BenchmarkError(f"{case}: the builds sampled different batches.")
                ratios.append(replies[other]["cost"] / replies[this]["cost"])
                edge_ns.append(1e6 * replies[this]["cost"] / replies[this]["edges"] if replies[this]["edges"] else 0)
            deciles = quantiles(ratios[1:], n=10, method="inclusive")  # the first turn warms up
            spread, cost = f"{deciles[0]:.2f} to {deciles[-1]:.2f}", median(edge_ns[1:])
            print(f"| {case} | {median(ratios[1:]):.2f} | {spread} | {f'{cost:.1f}' if cost else ''} |", flush=True)


if __name__ == "__main__":
    if len(sys.argv) == 2 and sys.argv[1].startswith("{"):
        serve(Build)
    else:
        main()
