"""Errors of native code, whatever the compiler links; and how a long call ends."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from lightning_gnnload import (
    Graph,
    LayerSampler,
    Negatives,
    NeighborSampler,
    RandomWalkSampler,
    WeightedNeighborSampler,
    random_walk,
)
from lightning_gnnload.errors import SamplerConfigError, SeedError
from lightning_gnnload.ops import DrawKey
from lightning_gnnload.ops.dispatch import kernels
from tests.forked import in_child

KERNELS = Path(__file__).parents[2] / "kernels"
PARTS = 'int64_t(-3), " ", 7u, " ", 1.5f, " ", -0.25, " ", 1e300, " ", std::string("x"), " ", uint64_t(-1)'
PROGRAM = f"""
#include <cstdlib>
#include <cstring>
#include "common/error.h"
#include "gather_rows/check_ids.h"

extern "C" void answer(char* out, const int64_t* ids, int64_t count, int64_t num_rows) try {{
  if (count == 0) lg::fail<lg::GraphFormatError>({PARTS});
  lg::check_ids(ids, count, num_rows);
}} catch (const std::exception& error) {{
  std::strcpy(out, error.what());
}}
"""


def test_errors_need_no_streams_and_no_locales(tmp_path: Path) -> None:
    """With a copy of libstdc++ of its own, as some compilers link it, a stream ends the process or loses the numbers:
    torch has brought another copy."""
    source, library = tmp_path / "answer.cpp", tmp_path / "answer.so"
    source.write_text(PROGRAM)
    compiler = os.environ.get("CXX", "g++")
    flags = ["-std=c++17", "-O1", "-fPIC", "-shared", "-static-libstdc++", f"-I{KERNELS}"]
    subprocess.run([compiler, *flags, str(source), "-o", str(library)], check=True)

    def ask() -> None:
        answer, out = ctypes.CDLL(str(library)).answer, ctypes.create_string_buffer(1000)
        answer.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64]
        for ids in (np.array([2, 9]), np.empty(0, np.int64)):
            answer(out, ids.ctypes.data, len(ids), 5)
            os.write(1, out.value + b"\n")

    status, printed = in_child(ask)
    assert status == 0
    bad_id, numbers = printed.splitlines()
    assert bad_id == "ids[1] is 9, but the table has 5 rows: ids must lie in [0, 5)."
    assert numbers == "-3 7 1.5 -0.25 1e+300 x 18446744073709551615"  # as std::ostream has them


def test_the_module_has_no_streams_and_no_locales() -> None:
    symbols = subprocess.run(["nm", "-DC", kernels.__file__], capture_output=True, text=True, check=True).stdout
    assert "PyInit__kernels" in symbols
    assert not re.findall(r".*std::.*(?:stream|locale|ios_base|ctype|num_put|regex|filesystem).*", symbols)


def test_a_bad_seed_is_named() -> None:
    with pytest.raises(SeedError, match=re.escape("seeds[1] is 5, but the graph has 3 nodes")):
        NeighborSampler([1]).sample(Graph.from_coo([0, 1], [1, 2]), [0, 5])


@pytest.fixture(scope="module")
def graph() -> Graph:
    chance = np.random.default_rng(3)
    num_nodes, num_edges = 60_000, 400_000
    weight = chance.random(num_edges).astype(np.float32)
    return Graph.from_coo(*chance.integers(0, num_nodes, (2, num_edges)), num_nodes=num_nodes, edge_weight=weight)


# Seconds or more each, where nothing ends them.
LONG = {
    "large fanouts": (NeighborSampler([1 << 21], replace=True), 120),
    "many lists": (NeighborSampler([1 << 13, -1, -1, -1, -1], replace=True), 20_000),
    "by weight": (WeightedNeighborSampler([1 << 24], replace=True), 8),
    "walks": (RandomWalkSampler(1, num_walks=300, walk_length=60, termination_prob=0), 10_000),
    "layers": (LayerSampler([1 << 25] * 9, replace=True), 1000),
}


@pytest.mark.parametrize("case", LONG)
def test_ctrl_c_ends_a_long_call(graph: Graph, case: str) -> None:
    sampler, num_seeds = LONG[case]
    wanted = NeighborSampler([3, 2]).sample(graph, np.arange(99)).nodes
    began, answered = threading.Event(), 0.0

    def interrupt() -> None:
        began.wait()
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGINT)

    sender = threading.Thread(target=interrupt)
    sender.start()
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012  it may come when the call has ended
        began.set()
        begin = time.thread_time()
        try:
            sampler.sample(graph, np.arange(num_seeds))
        finally:
            answered = time.thread_time() - begin
        sender.join()
        raise AssertionError("the call was over before the signal came")
    sender.join()
    assert answered < 2  # processor seconds, of which a loaded machine gives fewer
    # What was written so far is gone, and the thread's workspace is clean.
    assert NeighborSampler([3, 2]).sample(graph, np.arange(99)).nodes.tolist() == wanted.tolist()


RING = np.arange(5000)
ring = Graph.from_coo(RING, np.roll(RING, -1), edge_weight=np.ones(len(RING), np.float32))
typed_ring = Graph.from_hetero(None, {("a", "to", "a"): (RING, np.roll(RING, -1)), ("b", "to", "a"): (RING, RING)})


@pytest.mark.parametrize(
    ("graph", "sampler", "num_seeds", "message"),
    [
        (ring, NeighborSampler([1 << 24], replace=True), 100, f"Hop 0 of a batch, of 100 nodes.* {100 << 24} neigh"),
        (ring, NeighborSampler([1, 1 << 24], replace=True), 100, f"Hop 1 of a batch, of 101 nodes.* {101 << 24} neigh"),
        (ring, WeightedNeighborSampler([1 << 24], replace=True), 100, f"{100 << 24} neighbours with replacement"),
        (typed_ring, NeighborSampler([1 << 24], replace=True), 10, f"{20 << 24} neighbours with replacement"),
        (ring, RandomWalkSampler(1, num_walks=65_535, walk_length=1), 4999, f"{65_535 * 4999} steps of walks"),
    ],
)
def test_more_draws_than_there_is_time_for(graph: Graph, sampler, num_seeds: int, message: str) -> None:
    begin = time.thread_time()
    with pytest.raises(SamplerConfigError, match=message + f".*at most {1 << 28}"):
        sampler.sample(graph, np.arange(num_seeds))
    assert time.thread_time() - begin < 1  # before any was drawn


def test_nodes_without_neighbours_draw_nothing() -> None:
    lonely = Graph.from_coo([0], [1], num_nodes=50_000)
    batch = NeighborSampler([1 << 14], replace=True).sample(lonely, np.arange(50_000))
    assert batch.blocks[0].num_edges == 1 << 14


def test_more_negatives_and_longer_walks_than_there_is_room_for() -> None:
    rows = np.arange(9)
    with pytest.raises(SamplerConfigError, match=f"{1 << 25} negatives for each of 9 edges are {9 << 25}, but at most"):
        Negatives("triplet", num=1 << 25).draw(ring, 0, rows, rows, rows + 1, None, DrawKey(0, 0, 0))
    nodes = np.arange(600_000)
    large = Graph.from_coo(nodes, nodes)
    with pytest.raises(SamplerConfigError, match="walk from fewer starts at a time"):
        random_walk(large, nodes, length=1 << 24, num_walks=2)  # more bytes than a processor has addresses
