"""What rows from an owner cost beside the least that TCP can do: the same gather, sent by a plain loop.

    python -m tests.benchmarks.owners

An owner is a process that maps the rows, on loopback. The plain loop neither knows its client nor checks anything: it
reads ids, gathers by the same kernel, and sends. Both take turns, with as many streams; each round draws other rows.
Before, all rows are asked for once, so that both have mapped every page.
"""

from __future__ import annotations

import argparse
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from lightning_gnnload import Graph, GraphData, load_partition, ops, partition_graph
from lightning_gnnload.owners.client import Owners
from tests.unit.owners.serving import SECRET, OwnerProcess

NUM_ROWS, WIDTH = 1_000_000, 128
COUNTS, STREAMS = (10_000, 200_000), (1, 2, 4)
ROUNDS = 11
_PIECE_ROWS = 2048


def serve_plainly(file: str) -> None:
    """Prints a port, and answers there: eight bytes of a count, and so many ids, by rows."""
    table = np.load(file, mmap_mode="r").view(np.uint8)
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    while True:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=_answer, args=(connection, table), daemon=True).start()


def _answer(connection: socket.socket, table: np.ndarray) -> None:
    piece = np.empty((_PIECE_ROWS, table.shape[1]), np.uint8)
    count = np.empty(1, np.int64)
    while _fill(connection, count):
        ids = np.empty(int(count[0]), np.int64)
        _fill(connection, ids)
        for begin in range(0, len(ids), _PIECE_ROWS):
            some = ids[begin : begin + _PIECE_ROWS]
            ops.gather_rows(table, some, piece[: len(some)])
            connection.sendall(piece[: len(some)])


def _fill(connection: socket.socket, array: np.ndarray) -> bool:
    view = memoryview(array).cast("B")
    while len(view):
        received = connection.recv_into(view)
        if not received:
            return False
        view = view[received:]
    return True


class Plain:
    """The client of :func:`serve_plainly`, over some streams."""

    def __init__(self, port: int, num_streams: int) -> None:
        self._connections = [socket.create_connection(("127.0.0.1", port)) for _ in range(num_streams)]
        for connection in self._connections:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def gather(self, ids: np.ndarray, out: np.ndarray) -> None:
        cuts = np.linspace(0, len(ids), len(self._connections) + 1).astype(int)
        pieces = [
            (connection, ids[begin:end], out[begin:end])
            for connection, begin, end in zip(self._connections, cuts, cuts[1:], strict=False)
        ]
        threads = [threading.Thread(target=self._ask, args=piece) for piece in pieces[1:]]
        for thread in threads:
            thread.start()
        self._ask(*pieces[0])
        for thread in threads:
            thread.join()

    @staticmethod
    def _ask(connection: socket.socket, ids: np.ndarray, out: np.ndarray) -> None:
        connection.sendall(np.array([len(ids)]).tobytes() + ids.tobytes())
        _fill(connection, out)


def medians_ms(contenders: dict[str, Callable[[np.ndarray, np.ndarray], None]], count: int) -> dict[str, float]:
    """Has each contender gather by turns, and checks what it got."""
    rng, taken = np.random.default_rng(0), {name: [] for name in contenders}
    out = np.zeros((count, 4 * WIDTH), np.uint8)
    for gather in contenders.values():
        for begin in range(0, NUM_ROWS, count):
            gather(np.arange(begin, begin + count), out)
    for number in range(ROUNDS + 2):
        for name, gather in contenders.items():
            ids = rng.integers(0, NUM_ROWS, count)
            begun = time.perf_counter()
            gather(ids, out)
            if number >= 2:
                taken[name].append((time.perf_counter() - begun) * 1e3)
            assert (out.view(np.float32)[:, 0] == ids).all()
    return {name: statistics.median(values) for name, values in taken.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plain", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.plain:
        serve_plainly(options.plain)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        x = np.repeat(np.arange(NUM_ROWS, dtype=np.float32)[:, None], WIDTH, axis=1)
        np.save(folder / "x.npy", x)
        graph = Graph.from_coo([0], [1], num_nodes=NUM_ROWS)
        data = GraphData(graph, torch.from_numpy(x), train=np.arange(10))
        partition_graph(data, folder / "parts", 1, "random", hops=0, progress=False)
        del data, x
        (folder / "secret").write_text(SECRET)
        (folder / "secret").chmod(0o600)
        plain = subprocess.Popen(
            [sys.executable, "-m", __spec__.name, "--plain", str(folder / "x.npy")], stdout=subprocess.PIPE, text=True
        )
        try:
            with OwnerProcess(folder / "parts", folder / "secret") as owner:
                assert plain.stdout is not None
                _compare(folder, owner.wait_until_ready(), int(plain.stdout.readline()))
        finally:
            plain.kill()
            plain.wait()


def _compare(folder: Path, address: str, port: int) -> None:
    partition = load_partition(folder / "parts")
    table = np.load(folder / "x.npy", mmap_mode="r").view(np.uint8)
    print("| rows of 512 B | streams | here, ms | plain TCP, ms | an owner, ms | owner / plain |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: |")
    for count in COUNTS:
        for num_streams in STREAMS:
            owners = Owners.connect(partition, [address], secret=SECRET, num_streams=num_streams)
            ms = medians_ms(
                {
                    "here": lambda ids, out: ops.gather_rows(table, ids, out),
                    "plain": Plain(port, num_streams).gather,
                    "owner": lambda ids, out, owners=owners: owners.gather("x", ids, out),
                },
                count,
            )
            owners.close()
            row = f"{ms['here']:.1f} | {ms['plain']:.1f} | {ms['owner']:.1f} | {ms['owner'] / ms['plain']:.2f}"
            print(f"| {count:,} | {num_streams} | {row} |", flush=True)


if __name__ == "__main__":
    main()
