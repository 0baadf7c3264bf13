"""``python -m tests.benchmarks.gpu_aggregation [--quick]``: sums, means and maxima of neighbours on a GPU.

A block such as the second of three layers has in a mini-batch of 8,000 seeds and fanouts [15, 10, 5]. Every way gets it
anew each turn, as in a training step: what it makes of the block is part of its time. The bytes that have to be moved
are a row read for each edge, the result, and the block's indices once; of gradients likewise, by source. What a way
makes in between, such as a row for each edge, is its own affair.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from lightning_gnnload import Block, aggregate
from lightning_gnnload.errors import GnnLoadError
from lightning_gnnload.ops.cuda.launch.device import Device
from lightning_gnnload.ops.cuda.launch.timing import timed_ms
from lightning_gnnload.ops.cuda.probe import copy_bytes_per_s
from tests.benchmarks import gpu_device, machine
from tests.benchmarks.errors import BenchmarkError, Unavailable

MEAN, MAX, WEIGHTED = "mean", "max", "weighted sum"
HOW = (MEAN, MAX, WEIGHTED)
OURS = "ours"

Way = Callable[[str, Block, Tensor, Tensor], Tensor]


def by_ours(how: str, block: Block, x: Tensor, weights: Tensor) -> Tensor:
    if how == WEIGHTED:
        return aggregate(block, x, "sum", weights)
    return aggregate(block, x, "max" if how == MAX else "mean")


def by_embedding_bag(how: str, block: Block, x: Tensor, weights: Tensor) -> Tensor:
    settings = {"mode": "sum", "per_sample_weights": weights.to(x.dtype)} if how == WEIGHTED else {"mode": how}
    return functional.embedding_bag(block.indices, x, block.indptr, include_last_offset=True, **settings)


def by_sparse_mm(how: str, block: Block, x: Tensor, weights: Tensor) -> Tensor:
    if how == MAX:
        raise Unavailable("has no maximum on a GPU")
    values = weights if how == WEIGHTED else block.in_degrees.to(x.dtype).reciprocal()[block.edge_dst()]
    shape = (block.num_dst, block.num_src)
    return torch.sparse_csr_tensor(block.indptr, block.indices, values.to(x.dtype), shape, check_invariants=False) @ x


def by_pyg(how: str, block: Block, x: Tensor, weights: Tensor) -> Tensor:
    try:
        from torch_geometric.utils import segment
    except ImportError as error:
        raise Unavailable(str(error)) from error
    rows = x[block.indices]
    if how == WEIGHTED:
        return segment(rows * weights[:, None].to(x.dtype), block.indptr.long(), "sum")
    return segment(rows, block.indptr.long(), how)


def by_pyg_scatter(how: str, block: Block, x: Tensor, weights: Tensor) -> Tensor:
    try:
        from torch_geometric.utils import scatter
    except ImportError as error:
        raise Unavailable(str(error)) from error
    rows = x[block.indices]
    if how == WEIGHTED:
        rows, how = rows * weights[:, None].to(x.dtype), "sum"
    return scatter(rows, block.edge_dst(), dim_size=block.num_dst, reduce=how)


def by_dgl(how: str, block: Block, x: Tensor, weights: Tensor) -> Tensor:
    try:
        import dgl
    except Exception as error:  # a library that is missing, or of another torch
        raise Unavailable(f"{type(error).__name__}: {error}") from error
    sparse = ("csc", (block.indptr, block.indices, torch.zeros(0, dtype=torch.int32, device=x.device)))
    graph = dgl.create_block(sparse, num_src_nodes=block.num_src, num_dst_nodes=block.num_dst, idtype=torch.int32)
    graph = graph.to(x.device)
    if how == WEIGHTED:
        return dgl.ops.u_mul_e_sum(graph, x, weights[:, None].to(x.dtype))
    return (dgl.ops.copy_u_max if how == MAX else dgl.ops.copy_u_mean)(graph, x)


WAYS: dict[str, Way] = {
    OURS: by_ours,
    "embedding_bag": by_embedding_bag,
    "torch.sparse": by_sparse_mm,
    "PyG, segment": by_pyg,
    "PyG, scatter": by_pyg_scatter,
    "DGL": by_dgl,
}


@dataclass
class Case:
    """A block whose destinations have ``fanout`` edges each, its rows, and the gradient of the result."""

    device: Device
    num_dst: int
    fanout: int
    num_src: int
    width: int
    dtype: torch.dtype

    def __post_init__(self) -> None:
        there, random = self.device.torch_device, torch.Generator().manual_seed(0)
        self.num_edges = self.num_dst * self.fanout
        self.indptr = torch.arange(self.num_dst + 1, dtype=torch.int32, device=there) * self.fanout
        # A destination's edge k is from the k-th share of the sources: of repeated edges, each library gives the
        # gradient of the maximum to others.
        share = self.num_src // self.fanout
        sources = torch.randint(0, share, (self.num_dst, self.fanout), generator=random)
        self.indices = (sources + share * torch.arange(self.fanout)).view(-1).int().to(there)
        self.x = torch.randn(self.num_src, self.width, generator=random).to(there, self.dtype).requires_grad_()
        self.grad = torch.randn(self.num_dst, self.width, generator=random).to(there, self.dtype)
        self.weights = torch.rand(self.num_edges, generator=random).to(there)

    def block(self) -> Block:
        return Block(self.indptr, self.indices, self.num_dst, self.num_src)

    def forward(self, way: Way, how: str) -> Tensor:
        return way(how, self.block(), self.x.detach(), self.weights)

    def gradient(self, way: Way, how: str) -> Tensor:
        """Forward and backward."""
        (gradient,) = torch.autograd.grad(way(how, self.block(), self.x, self.weights), self.x, self.grad)
        return gradient

    def moved_bytes(self, how: str) -> tuple[int, int]:
        """Bytes read and written, at least, if each edge's row is read: forward, and forward and backward."""
        row = self.width * self.dtype.itemsize
        whose = self.width * 4 if how == MAX else 0  # who has the largest number
        by_edge = 8 if how == WEIGHTED else 4  # its index, and its weight
        forward = self.num_edges * (row + by_edge) + self.num_dst * (row + whose + 4)
        backward = self.num_edges * (row + whose + by_edge) + self.num_src * (row + 4)
        return forward, forward + backward

    def check(self, name: str, how: str) -> None:
        """Raises BenchmarkError: the way gives another result, or gradient, than arithmetic on float64."""
        dst, source = self.block().edge_dst(), self.indices.long()
        x = self.x.detach().double().requires_grad_()
        rows = x[source] * self.weights.double()[:, None] if how == WEIGHTED else x[source]
        reduce = {MEAN: "mean", MAX: "amax", WEIGHTED: "sum"}[how]
        wanted = rows.new_zeros(self.num_dst, self.width)
        wanted = wanted.scatter_reduce(0, dst[:, None].expand_as(rows), rows, reduce, include_self=False)
        (gradient,) = torch.autograd.grad(wanted, x, self.grad.double())
        compared = [(self.forward(WAYS[name], how), wanted)]
        if how != MAX or self.dtype == torch.float32:  # equal numbers share it by one way, and not by another
            compared.append((self.gradient(WAYS[name], how), gradient))
        rounding = 16 * torch.finfo(self.dtype).eps
        for result, exact in compared:
            if not torch.allclose(result.double(), exact, rtol=rounding, atol=rounding * self.fanout):
                raise BenchmarkError(f"{name}: the {how} of {self.dtype} is not what arithmetic says.")


def measure(case: Case, name: str, how: str, num_turns: int) -> tuple[float, float]:
    """Milliseconds forward, and forward and backward. Raises Unavailable."""
    way = WAYS[name]
    try:
        case.check(name, how)
        forward = timed_ms(case.device, lambda: case.forward(way, how), num_turns)
        return forward, timed_ms(case.device, lambda: case.gradient(way, how), num_turns)
    except (BenchmarkError, GnnLoadError):
        raise
    except RuntimeError as error:  # what a library does not have for a dtype
        raise Unavailable(f"{how} of {case.dtype}: {str(error).splitlines()[0]}") from error


def table(case: Case, num_turns: int, bytes_per_s: float) -> str:
    """A row a way; what ours moves a second, as a share of what a copy does; and what was not measured, and why."""
    heads = [f"{how}, {part}" for how in HOW for part in ("forward", "and backward")]
    lines = [f"| {str(case.dtype)[6:]}, ms | " + " | ".join(heads) + " |", "| --- |" + " ---: |" * len(heads)]
    shares, missing = [], []
    for name in WAYS:
        cells = []
        for how in HOW:
            try:
                took = measure(case, name, how, num_turns)
            except Unavailable as reason:
                missing.append(f"Not measured: {name}, {reason}\n")
                cells += ["", ""]
                continue
            cells += [f"{ms:.3f}" for ms in took]
            if name == OURS:  # a copy reads and writes as much
                moved = zip(case.moved_bytes(how), took, strict=True)
                shares += [f"{num_bytes / ms * 1e3 / (2 * bytes_per_s):.0%}" for num_bytes, ms in moved]
        if any(cells):
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines.append("| ours, share of a copy's bandwidth | " + " | ".join(shares) + " |")
    return "\n".join([*lines, "", *dict.fromkeys(missing)])


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.gpu_aggregation", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke test: a small block, few turns")
    parser.add_argument("--destinations", type=int, default=80_000)
    parser.add_argument("--fanout", type=int, default=10)
    parser.add_argument("--sources", type=int, default=700_000)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--turns", type=int, default=20)
    options = parser.parse_args(arguments)
    if options.quick:
        options.destinations, options.sources, options.turns = 2_000, 15_000, 3
    device = gpu_device.opened()
    if device is None:
        return 0
    others = machine.Neighbours()
    print(
        f"{options.destinations:,} destinations of {options.fanout} edges each, {options.sources:,} sources, rows of "
        f"{options.width}; medians of {options.turns} turns.\n"
    )
    bytes_per_s = copy_bytes_per_s(device)
    sizes = options.destinations, options.fanout, options.sources, options.width
    for dtype in (torch.float32, torch.bfloat16):
        print(table(Case(device, *sizes, dtype), options.turns, bytes_per_s), flush=True)
    print("\n".join(f"- {line}" for line in [*gpu_device.describe(device), others.describe()]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
