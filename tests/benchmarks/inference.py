"""A model's output for all nodes: layer by layer, beside the whole graph at once, and beside sampled neighbourhoods.

python -m tests.benchmarks.inference           # 2 M nodes and 60 M edges: about five minutes, 6 GB of memory
python -m tests.benchmarks.inference --quick   # 200 k nodes and 4 M edges, beside PyG's whole pass: a minute
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lightning_gnnload import Graph, GraphData, NeighborSampler, infer
from tests.plain_sage import GraphSAGE

WIDTH, LAYERS = 128, 3
SKEW = 6  # of sources: 4 million edges then come from 52 % of 2 million nodes


def random_data(num_nodes: int, num_edges: int, skew: int) -> GraphData:
    rng = np.random.default_rng(0)
    src = (num_nodes * rng.random(num_edges, np.float32) ** skew).astype(np.int32).clip(max=num_nodes - 1)
    dst = rng.integers(num_nodes, size=num_edges, dtype=np.int32)
    graph = Graph.from_coo(src, dst, num_nodes, keep_order=False)
    return GraphData(graph, x=rng.standard_normal((num_nodes, WIDTH), np.float32))


def spent(work: Callable[[], Any]) -> tuple[Any, float, float]:
    """Returns what work gives, its seconds, and its processor seconds."""
    began, cpu = time.monotonic(), time.process_time()
    given = work()
    return given, time.monotonic() - began, time.process_time() - cpu


def sage() -> nn.Module:
    torch.manual_seed(0)
    return GraphSAGE(WIDTH, WIDTH, hidden=WIDTH, num_layers=LAYERS).eval()


def by_sampling(data: GraphData, num_seeds: int) -> list[float]:
    """Returns the seconds and processor seconds of a mini-batch of whole neighbourhoods, scaled to all nodes."""
    model = sage()

    def work() -> None:
        batch = NeighborSampler([-1] * LAYERS).sample(data.graph, np.arange(num_seeds))
        rows = torch.empty(batch.num_nodes, WIDTH)
        data.x.gather(batch.nodes, rows)  # type: ignore[union-attr]
        batch.x = rows
        with torch.no_grad():
            model(batch)

    return [seconds * data.num_nodes / num_seeds for seconds in spent(work)[1:]]


class PyGSAGE(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        from torch_geometric.nn import SAGEConv

        self.convs = nn.ModuleList(SAGEConv(WIDTH, WIDTH) for _ in range(LAYERS))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for layer, conv in enumerate(self.convs):
            x = conv(x.relu() if layer else x, edge_index)
        return x


def beside_whole_pass(num_nodes: int = 200_000, num_edges: int = 4_000_000) -> Iterator[tuple[str, float, float]]:
    data, model = random_data(num_nodes, num_edges, 1), PyGSAGE().eval()
    indptr, indices = data.graph.indptr, data.graph.indices
    edge_index = torch.from_numpy(
        np.stack([indices, np.repeat(np.arange(num_nodes), np.diff(indptr))]).astype(np.int64)
    )
    ours, *of_ours = spent(lambda: infer(model, data, batch_format="pyg", progress=False))
    with torch.no_grad():
        whole, *of_whole = spent(lambda: model(data.x.rows, edge_index))  # type: ignore[union-attr]
    torch.testing.assert_close(ours, whole, rtol=1e-4, atol=1e-4)
    yield "200 k nodes, 4 M edges, PyG's SAGEConv: infer", *of_ours  # type: ignore[misc]
    yield "the same, whole graph at once", *of_whole  # type: ignore[misc]


def on_large_graph(what: str, skew: int, scratch: str | None) -> Iterator[tuple[str, float, float]]:
    data = random_data(2_000_000, 60_000_000, skew)
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        settings = {"method": "forward", "scratch": folder, "num_compared": 2, "progress": False}
        _, *of_ours = spent(lambda: infer(sage(), data, **settings))  # type: ignore[arg-type]
    yield f"2 M nodes, 60 M edges, {what}: infer", *of_ours  # type: ignore[misc]
    yield "mini-batches of 1000 whole neighbourhoods (one measured)", *by_sampling(data, 1000)  # type: ignore[misc]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the small graph alone")
    parser.add_argument(
        "--large", action="store_true", help="the large graph alone, whose blocks need 52 % of the rows"
    )
    parser.add_argument("--scratch", help="a folder on the disk to measure")
    args = parser.parse_args()
    works: list[Iterable[tuple[str, float, float]]] = []
    if not args.large:
        works.append(beside_whole_pass())
    if not args.quick:
        works.append(on_large_graph("a block needs 52 % of the rows", SKEW, args.scratch))
        if not args.large:
            works.append(on_large_graph("87 %, as where ids say nothing", 1, args.scratch))
    print("seconds  processor seconds")
    for name, seconds, cpu in chain.from_iterable(works):
        print(f"{seconds:7.1f}  {cpu:7.1f}  {name}", flush=True)
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"resident at most, mapped files included: {resident:.1f} GiB")


if __name__ == "__main__":
    main()
