"""What DGL's and PyG's formats cost over blocks in the loader: ``python -m tests.benchmarks.formats``.

The same sampler, graph and threads for all formats of a table, in turns; each ratio is to blocks in the same turn, and
the median of these counts, on the clock and of processor time. A minute; 2 GB of memory, 1 GB of disk in the user's
cache folder, once.
"""

from __future__ import annotations

import argparse
import sys
from statistics import median
from typing import Any, Literal

from lightning_gnnload import GraphData, GraphDataModule, NeighborSampler, Synthetic
from tests.benchmarks import machine
from tests.benchmarks.seeds import BATCH_SIZE
from tests.benchmarks.timing import PROCESSOR_MS, steady_ms

GRAPH = Synthetic("chung-lu", num_nodes=2_000_000, num_edges=30_000_000, num_features=100)
FANOUTS = [15, 10]
GOAL = 1.10  # times the milliseconds of blocks
FORMATS: dict[Literal["all", "new"], tuple[str, ...]] = {"all": ("blocks", "dgl"), "new": ("blocks", "dgl", "pyg")}
"""By what the sampler expands; PyG's one ``edge_index`` holds only hops that draw for new nodes."""


def measure(data: GraphData, expand: Literal["all", "new"], num_threads: int, turns: int, batches: int) -> None:
    """Prints a row a format."""
    loaders: dict[str, Any] = {
        name: GraphDataModule(
            data,
            NeighborSampler(FANOUTS, expand=expand),
            batch_size=BATCH_SIZE,
            batch_format=name,  # type: ignore[arg-type]
            num_threads=num_threads,
            drop_last=True,
        ).train_dataloader()
        for name in FORMATS[expand]
    }
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in loaders}
    for turn in range(1 + turns):
        for name, loader in loaders.items():
            loader.set_epoch(turn)
            reply = steady_ms(loader, batches)
            if turn > 0:  # the first one warms up
                found[name].append((reply["values"][0], reply[PROCESSOR_MS]))
    for name, each in found.items():
        ratios = [
            median(mine[k] / blocks[k] for mine, blocks in zip(each, found["blocks"], strict=True)) for k in (0, 1)
        ]
        verdict = "" if name == "blocks" else "yes" if max(ratios) <= GOAL else "no"
        wall, processor = (median(one[k] for one in each) for k in (0, 1))
        print(
            f"| `expand={expand!r}` | {num_threads} | {name} | {wall:.2f} | {processor:.2f} | {ratios[0]:.3f} | "
            f"{ratios[1]:.3f} | {verdict} |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=11)
    parser.add_argument("--batches", type=int, default=25, help="of a turn, the five that warm up included")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    options = parser.parse_args()
    print(f"preparing the graph in {GRAPH.folder}", file=sys.stderr)
    GRAPH.prepare()
    data, neighbours = GRAPH.load(), machine.Neighbours()
    print("| sampler | threads | format | ms | processor ms | times blocks | by processor | at most 1.10 |")
    print("| --- | ---: | --- | ---: | ---: | ---: | ---: | --- |")
    for expand in FORMATS:
        for num_threads in options.threads:
            measure(data, expand, num_threads, options.turns, options.batches)
    print("\n" + "\n".join(f"- {line}" for line in (*machine.describe(), neighbours.describe())))


if __name__ == "__main__":
    main()
