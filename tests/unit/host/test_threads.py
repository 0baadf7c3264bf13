"""Threads of one process: what a fork of it may not do, who may end them, and a system that gives no further one: each
loader says so, ends, and is as good as new."""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from rich.console import Console
from rich.progress import Progress

from lightning_gnnload import GraphDataModule, MemoryFeatureStore, NeighborSampler
from lightning_gnnload.cache.lookahead import ReadAhead
from lightning_gnnload.cache.trace import node_lists
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.errors import ForkError, ThreadLimitError
from lightning_gnnload.host.leases import LeaseKeeper
from lightning_gnnload.host.progress import shown_display
from lightning_gnnload.host.threads import Threads
from lightning_gnnload.partition.stages import StageClock
from lightning_gnnload.pipeline.alternate import AlternatingLoader
from lightning_gnnload.pipeline.loader import SampledLoader
from lightning_gnnload.pipeline.queue.setup_watch import watched
from lightning_gnnload.storage.background import BackgroundCheck
from tests.forked import in_child
from tests.guards import our_threads
from tests.threadless import refused
from tests.unit.toy import content, toy_data, toy_source, toy_workload

if TYPE_CHECKING:
    from torch_geometric.data import Data, HeteroData

    from lightning_gnnload.pyg import HGTLoader, LinkNeighborLoader, NeighborLoader, ShaDowKHopSampler

NUM_THREADS = 3
EDGES = torch.randint(40, (2, 300), generator=torch.Generator().manual_seed(5))
NODES = torch.arange(40)[:, None]
BY_PYG = {"batch_size": 4, "seed": 7, "num_workers": NUM_THREADS}


def module() -> Any:
    settings = {"batch_size": 8, "num_threads": NUM_THREADS}
    return GraphDataModule(toy_data(), NeighborSampler([3, 2]), **settings).train_dataloader()


def alternating() -> Any:
    return AlternatingLoader(SampledLoader(toy_source(batch_size=8)), num_threads=NUM_THREADS, depth=9, memory_bytes=1)


def ids_of(batch: Any) -> Any:
    return batch.x.tolist(), batch.edge_index.tolist()


def typed_ids_of(batch: Any) -> Any:
    return batch["a"].x.tolist(), batch["a", "to", "a"].edge_index.tolist()


def loader_of(name: str) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    """What makes the loader, and what reads its mini-batches."""
    data = Data(edge_index=EDGES, x=NODES, num_nodes=40)
    typed = HeteroData({"a": {"x": NODES}, ("a", "to", "a"): {"edge_index": EDGES}})
    loaders: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
        "module": (module, content),
        "alternating": (alternating, content),
        "nodes": (partial(NeighborLoader, data, [2, 2], **BY_PYG), ids_of),
        "links": (partial(LinkNeighborLoader, data, [2, 1], EDGES[:, :40], neg_sampling="binary", **BY_PYG), ids_of),
        "hgt": (partial(HGTLoader, typed, [4, 3], "a", **BY_PYG), typed_ids_of),
        "shadow": (partial(ShaDowKHopSampler, data, 2, 2, **BY_PYG), ids_of),
    }
    return loaders[name]


@pytest.mark.filterwarnings("ignore:num_workers means threads")
@pytest.mark.parametrize("name", ["module", "alternating", "nodes", "links", "hgt", "shadow"])
def test_a_loader_says_so_ends_and_can_be_read_again(name: str) -> None:
    make, told = loader_of(name)
    loader = make()
    for number in range(NUM_THREADS):
        batches = iter(loader)
        text = rf"Thread {number + 1} of 3 \(gnnload-sample\) cannot start.*\(can't start new thread\)\. Set fewer"
        with refused(number), pytest.raises(ThreadLimitError, match=text) as caught:
            list(batches)
        assert isinstance(caught.value, RuntimeError)
        assert list(batches) == []
        assert our_threads() == []
    fresh = make()
    for each in (loader, fresh):
        each.set_epoch(5)
    assert [told(batch) for batch in loader] == [told(batch) for batch in fresh] != []


def test_threads_that_are_there_do_what_is_submitted_next() -> None:
    with Threads(2, "gnnload-test") as threads:
        gate = threading.Event()
        waits = threads.submit(gate.wait)
        with refused(), pytest.raises(ThreadLimitError, match="Thread 2 of 2"):
            threads.submit(int)
        gate.set()
        assert threads.result(waits)
        assert threads.result(threads.submit(int)) == 0
    with pytest.raises(RuntimeError, match="after shutdown"):  # another reason, and another error
        threads.submit(int)


@pytest.mark.parametrize("number", range(2))
def test_sampling_ahead(number: int) -> None:
    workload = toy_workload()
    with refused(number, "gnnload"), pytest.raises(ThreadLimitError, match=r"\(gnnload-ahead\)"):
        list(node_lists(workload, workload.requests(epoch=0), num_threads=2))
    assert our_threads() == []


def test_a_bar_leaves_the_terminal_as_it_was() -> None:
    terminal, before = io.StringIO(), sys.stdout
    bars = Progress(console=Console(force_terminal=True, file=terminal, legacy_windows=False))
    told = pytest.raises(ThreadLimitError, match="The bar that shows progress cannot start")
    with refused(name="Thread-"), told, shown_display(bars):
        pass
    assert sys.stdout is before
    assert terminal.getvalue().rindex("\x1b[?25h") > terminal.getvalue().rindex("\x1b[?25l")  # the cursor is shown


def test_reading_ahead_begins_when_there_is_a_thread() -> None:
    ahead, ids = ReadAhead(MemoryFeatureStore(torch.arange(12.0).reshape(4, 3))), np.array([2, 1])
    coming = BatchRequest(0, 1, 0, 1)
    with refused(), pytest.raises(ThreadLimitError, match="gnnload-read-ahead"):
        ahead.begin(coming, ids)
    assert ahead.take(coming) is None
    ahead.begin(coming, ids)
    staged = ahead.take(coming)
    ahead.close()
    assert staged is not None
    assert staged.ids.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("work", "name"),
    [
        (lambda: BackgroundCheck(Path("nowhere"), "", Path("nowhere")), "gnnload-verify"),
        (lambda: StageClock().__enter__(), "gnnload-stages"),
        (lambda: watched(1.0, gets_on=int, hangs=str).__enter__(), "gnnload-watch"),
        (lambda: LeaseKeeper().protect(LeaseKeeper(), []), "gnnload-leases"),
    ],
)
def test_what_works_beside_training(work: Callable[[], Any], name: str) -> None:
    with refused(), pytest.raises(ThreadLimitError, match=f"The thread {name} cannot start"):
        work()


def test_a_fork_neither_submits_nor_takes_nor_waits() -> None:
    with Threads(1, "t") as threads:
        done = threads.submit(sum, [1, 2])
        assert threads.result(done) == 3

        def go_on() -> None:
            for call in (threads.check, lambda: threads.submit(sum, [1]), lambda: threads.result(done)):
                with pytest.raises(ForkError, match=r"What threads make \(t\) works in process"):
                    call()
            threads.shutdown()  # as what is dropped does

        with threads._shutdown_lock:  # as a thread of the parent may, which the fork does not have
            assert in_child(go_on) == (0, "")
        assert threads.result(threads.submit(sum, [3])) == 3


def test_one_of_the_threads_may_end_them() -> None:
    """As where garbage is collected in it, and an iterator that ends its threads is in it."""
    threads = Threads(2, "t")
    threads.result(threads.submit(threads.shutdown))
    threads.shutdown()
    assert not any(each.name.startswith("t_") for each in threading.enumerate())
