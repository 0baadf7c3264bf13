"""What the package runs for one warm mini-batch: ``python -m tests.trace [--show WAY]``.

Counts calls of the package's functions, the functions and files among them, and how often the next call is in another
file. The figures do not depend on the machine, but on Python's release: from 3.12 on, comprehensions are no calls.
"""

from __future__ import annotations

import argparse
import gc
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

import lightning_gnnload
from lightning_gnnload import FeatureCache, GraphData, GraphDataModule, Negatives, NeighborSampler, SeedTable

if TYPE_CHECKING:
    from torch_geometric.data import Data, HeteroData

PACKAGE = f"{Path(lightning_gnnload.__file__).parent}/"
WARM = 4  # mini-batches before the one that is looked at


class Call(NamedTuple):
    """A call of one of the package's functions, in a thread."""

    thread: int
    file: str
    function: str


class Trace:
    """The calls of one mini-batch."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    @property
    def figures(self) -> dict[str, int]:
        """The number of calls, functions, files, and switches between files."""
        threads = [[call for call in self.calls if call.thread == thread] for thread in {c.thread for c in self.calls}]
        switches = sum(one.file != other.file for calls in threads for one, other in pairwise(calls))
        functions, files = {call[1:] for call in self.calls}, {call.file for call in self.calls}
        return {"calls": len(self.calls), "functions": len(functions), "files": len(files), "switches": switches}

    @contextmanager
    def running(self) -> Iterator[None]:
        """Looks at all threads that are started within, and at this one."""

        def note(frame: FrameType, event: str, _: Any) -> None:
            file = frame.f_code.co_filename
            if event == "call" and file.startswith(PACKAGE):
                self.calls.append(Call(threading.get_ident(), file.removeprefix(PACKAGE), frame.f_code.co_qualname))

        gc.collect()
        gc.disable()  # what a collection closes, of loaders that came before, is no part of this mini-batch
        threading.setprofile(note)
        sys.setprofile(note)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
            gc.enable()


NODES, EDGES = 5000, 30_000
TYPES = [("a", "to", "b"), ("b", "rev", "a"), ("a", "c", "a")]


def homogeneous() -> Data:
    from torch_geometric.data import Data

    data = Data(x=torch.ones(NODES, 16), edge_index=_edges(), y=torch.ones(NODES).long())
    data.train_mask = torch.ones(NODES, dtype=torch.bool)
    return data


def untyped(**settings: Any) -> Iterable[Any]:
    return _loader(GraphData.from_pyg(homogeneous()), **settings)


def typed(**settings: Any) -> Iterable[Any]:
    return _loader(GraphData.from_pyg(_hetero()), **settings)


def temporal_links(**settings: Any) -> Iterable[Any]:
    data = _hetero()
    for number, store in enumerate(data.edge_stores):
        store.time = torch.randint(1000, (EDGES,), generator=torch.Generator().manual_seed(number))
    src, dst = data["a", "c", "a"].edge_index[:, :2000].numpy()
    links = SeedTable(src=src, dst=dst, edge_type=("a", "c", "a"), time=np.full(2000, 900))
    of_links = GraphData.from_pyg(data, time_attr="time", train=links)
    return _loader(of_links, negatives=Negatives("binary", num=1), **settings)


def _edges(seed: int = 0) -> torch.Tensor:
    return torch.randint(NODES, (2, EDGES), generator=torch.Generator().manual_seed(seed))


def _hetero() -> HeteroData:
    from torch_geometric.data import HeteroData

    data = HeteroData()
    data["a"].x, data["b"].x = torch.ones(NODES, 16), torch.ones(NODES, 8)
    data["a"].y, data["a"].train_mask = torch.ones(NODES).long(), torch.ones(NODES, dtype=torch.bool)
    for number, of in enumerate(TYPES):
        data[of].edge_index = _edges(number)
    return data


def _loader(data: GraphData, **settings: Any) -> Iterable[Any]:
    expand = "new" if settings.get("batch_format") == "pyg" else "all"
    sampler = NeighborSampler([10, 5], expand=expand)
    return GraphDataModule(data, sampler, batch_size=64, num_threads=0, **settings).train_dataloader()


WAYS: dict[str, Callable[[], Iterable[Any]]] = {
    "untyped": untyped,
    "untyped, pyg": lambda: untyped(batch_format="pyg"),
    "untyped, cache": lambda: untyped(cache=FeatureCache(ratio=0.2)),
    "typed": typed,
    "typed, pyg": lambda: typed(batch_format="pyg"),
    "temporal links": temporal_links,
    "temporal links, pyg": lambda: temporal_links(batch_format="pyg"),
}


def trace_of(way: str) -> Trace:
    """Traces the fifth mini-batch of a way."""
    trace, loader = Trace(), WAYS[way]()
    batches = iter(loader)
    for _ in range(WARM):
        next(batches)
    with trace.running():
        next(batches)
    return trace


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.trace", description=__doc__)
    parser.add_argument("--show", choices=WAYS, help="list the calls of this way")
    shown = parser.parse_args().show
    print(f"{'':24}{'calls':>10}{'functions':>10}{'files':>10}{'switches':>10}")
    for each in [shown] if shown else WAYS:
        traced = trace_of(each)
        print(f"{each:24}" + "".join(f"{number:10}" for number in traced.figures.values()))
        if shown:
            print(*(f"    {call.file} {call.function}" for call in traced.calls), sep="\n")
