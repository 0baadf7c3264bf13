"""Measures what messages between trainers and owners take of cores, by an owner in this process."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.owners.client import Owners
from lightning_gnnload.owners.owner import Owner
from lightning_gnnload.owners.tcp import TcpFront
from lightning_gnnload.partition.build import partition_graph
from lightning_gnnload.pipeline.forecast.costs import MessageCosts
from lightning_gnnload.storage.partitions import load_partition

_ROWS, _ROW_BYTES = 30_000, 512  # 15 MB
_FEW, _TURNS, _LARGE_TURNS = 8, 200, 12
_SECRET = "of this process alone"


def measure_costs() -> MessageCosts:
    """Asks an owner over loopback for few rows and for many, and returns what that takes of either end. Half a second.

    The owner's part is what the process took beside the thread that asks; what it takes to gather the rows is left out.
    """
    rows = torch.zeros(_ROWS, _ROW_BYTES // 4)
    graph = Graph.from_coo(np.arange(_ROWS), np.arange(_ROWS), num_nodes=_ROWS)
    with tempfile.TemporaryDirectory(prefix="gnnload-plan-") as folder:
        parts = Path(folder, "parts")
        partition_graph(GraphData(graph, rows, train=np.arange(_FEW)), parts, 1, hops=0, progress=False)
        partition = load_partition(parts)
        with TcpFront(Owner(partition), "127.0.0.1", 0, _SECRET.encode()) as front:
            owners = Owners.connect(partition, [str(front.address)], secret=_SECRET, num_streams=1)
            try:
                few_ask_ms, few_answer_ms = _gather_ms(owners, _FEW, _TURNS)
                many_ask_ms, many_answer_ms = _gather_ms(owners, _ROWS, _LARGE_TURNS)
            finally:
                owners.close()
    num_bytes = _ROWS * _ROW_BYTES
    gathered_ms = _local_ms(rows.numpy())
    ask_ms = max(many_ask_ms - few_ask_ms, 1e-3)
    # On a machine that others use, a gather by itself may seem to take longer than one that is sent.
    sent_ms = many_answer_ms - few_answer_ms
    answer_ms = max(sent_ms - gathered_ms, sent_ms / 4, 1e-3)
    return MessageCosts(few_ask_ms, few_answer_ms, num_bytes / ask_ms / 1e6, num_bytes / answer_ms / 1e6)


def _gather_ms(owners: Owners, num_rows: int, turns: int) -> tuple[float, float]:
    """The processor's time of who asks, and of who answers, for a gather."""
    out = np.empty((num_rows, _ROW_BYTES), np.uint8)
    rows = np.random.default_rng(0).permutation(_ROWS)[:num_rows]
    for _ in range(3):
        owners.gather("x", rows, out)
    thread_s, process_s = time.thread_time(), time.process_time()
    for _ in range(turns):
        owners.gather("x", rows, out)
    thread_s, process_s = time.thread_time() - thread_s, time.process_time() - process_s
    return 1e3 * thread_s / turns, 1e3 * max(process_s - thread_s, 0.0) / turns


def _local_ms(rows: np.ndarray) -> float:
    order = np.random.default_rng(0).permutation(len(rows))
    out = np.empty_like(rows)
    began_s = time.thread_time()
    for _ in range(_LARGE_TURNS):
        np.take(rows, order, axis=0, out=out)
    return 1e3 * (time.thread_time() - began_s) / _LARGE_TURNS
