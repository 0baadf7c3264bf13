"""What the maximum of neighbours, or their mean, costs of a training step, by each way to compute it on a CPU:
``python -m tests.benchmarks.aggregation --how mean`` prints a table in Markdown.

GraphSAGE, trained on the same mini-batches by every way; the ways alternate step
by step in one process. Milliseconds of processor time, torch on one thread, malloc keeps freed memory.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from lightning_gnnload import Block, GraphDataModule, MiniBatch, NeighborSampler, aggregate
from lightning_gnnload.host.malloc import freed_memory_kept
from tests.benchmarks import machine
from tests.benchmarks.graphs import GRAPHS

Aggregate = Callable[[Block, Tensor], Tensor]
CASES = {"debian": [15, 10], "g3": [15, 10, 5]}
HIDDEN = 256


def by_embedding_bag(how: str, block: Block, x: Tensor) -> Tensor:
    # It adds gradients in the dtype of the rows, where bfloat16 loses those of a row that many have.
    rows = x.float() if how == "mean" else x
    return functional.embedding_bag(block.indices, rows, block.indptr, mode=how, include_last_offset=True).to(x.dtype)


def by_sparse_mm(how: str, block: Block, x: Tensor) -> Tensor:
    ones = torch.ones(block.num_edges, dtype=x.dtype)
    shape = (block.num_dst, block.num_src)
    csr = torch.sparse_csr_tensor(block.indptr, block.indices, ones, shape, check_invariants=False)
    return torch.sparse.mm(csr, x, {"max": "amax"}.get(how, how))


WAYS: dict[str, Callable[..., Tensor]] = {
    "embedding_bag": by_embedding_bag,
    "torch.sparse.mm": by_sparse_mm,
    "ours, aggregate": lambda how, block, x: aggregate(block, x, how),
}


class SAGE(nn.Module):
    def __init__(self, widths: list[int], way: Aggregate) -> None:
        super().__init__()
        pairs = list(pairwise(widths))
        self.own = nn.ModuleList(nn.Linear(*pair) for pair in pairs)
        self.neighbors = nn.ModuleList(nn.Linear(*pair, bias=False) for pair in pairs)
        self.way = way

    def forward(self, batch: MiniBatch) -> Tensor:
        x = batch.x
        assert x is not None
        for number, (own, neighbors, block) in enumerate(zip(self.own, self.neighbors, batch.blocks, strict=True)):
            x = x.relu() if number else x
            x = own(x[: block.num_dst]) + neighbors(self.way(block, x))
        return x


def steps_ms(how: str, graph: str, precision: torch.dtype, num_steps: int) -> dict[str, float]:
    """Medians over the steps but the first, by way."""
    data, fanouts = GRAPHS[graph].load(), CASES[graph]
    widths = [data.num_features] + [HIDDEN] * (len(fanouts) - 1) + [data.num_classes]
    models = {}
    for name, way in WAYS.items():
        torch.manual_seed(0)
        model = SAGE(widths, partial(way, how))
        models[name] = model, torch.optim.Adam(model.parameters()), list[float]()
    loader = GraphDataModule(data, NeighborSampler(fanouts), batch_size=1024, num_threads=0).train_dataloader()
    for _, batch in zip(range(num_steps + 1), loader, strict=False):
        for model, optimizer, took in models.values():
            began = time.process_time()
            with torch.autocast("cpu", precision, enabled=precision != torch.float32):
                loss = functional.cross_entropy(model(batch), batch.y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            took.append((time.process_time() - began) * 1e3)
    return {name: statistics.median(took[1:]) for name, (_, _, took) in models.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graph", nargs="+", choices=tuple(CASES), default=list(CASES))
    parser.add_argument("--how", choices=("max", "mean"), default="max")
    parser.add_argument("--steps", type=int, default=8)
    args = parser.parse_args()
    torch.set_num_threads(1)
    neighbours = machine.Neighbours()
    columns = [(graph, precision) for graph in args.graph for precision in (torch.float32, torch.bfloat16)]
    with freed_memory_kept():
        results = [steps_ms(args.how, graph, precision, args.steps) for graph, precision in columns]
    print(f"| | {' | '.join(f'{graph}, {str(precision)[6:]}' for graph, precision in columns)} |")
    print(f"| --- | {' | '.join('---:' for _ in columns)} |")
    for name in WAYS:
        print(f"| {name} | {' | '.join(f'{result[name]:.1f}' for result in results)} |")
    print("\n" + "\n".join(f"- {line}" for line in (*machine.describe(), neighbours.describe())))


if __name__ == "__main__":
    main()
