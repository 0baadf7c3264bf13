"""Malformed frames at an owner's fronts: it neither dies, nor grows, nor answers wrong.

    python -m tests.fuzz.fronts --cases 100000 --scheme tcp
    python -m tests.fuzz.fronts --cases 20000 --scheme grpc --seed 3

One owner, a process of its own, gets frames that are cut off, damaged or foreign, from who knows the secret and from
who does not, over one connection or many. Between them it is asked for rows, and looked at. A case depends on the seed
and its number alone.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil

from lightning_gnnload import load_partition, partition_graph
from lightning_gnnload.data.partition import Partition
from lightning_gnnload.errors import GnnLoadError
from lightning_gnnload.host.tcp import TcpStream
from lightning_gnnload.owners.address import TCP, Address
from lightning_gnnload.owners.client import Owners
from lightning_gnnload.owners.connection import TASK
from lightning_gnnload.owners.tcp import PURPOSE
from lightning_gnnload.sample.group.group import OPERATIONS
from lightning_gnnload.sample.group.messages import Message
from tests.fuzz.damage import damage_bytes, damage_json
from tests.unit.owners.serving import SECRET, OwnerProcess, graph_data

if TYPE_CHECKING:
    from pyarrow import flight

NUM_NODES = 60
LOOK_EVERY = 500
"""Cases between two looks at the owner."""
MOST_GROWTH_BYTES = 96 << 20
"""What allocators and threads may keep, however many cases there were; a leak of a KiB a case is more in 10^5."""
MOST_THREADS = 200
_HEAD = struct.Struct("<IIQ")


class Finding(Exception):  # noqa: N818  what a fuzzer is there for, not an error
    """The owner did what it must not; the message says what."""


class Front:
    """An owner's process, who asks it, and what it had in the beginning."""

    def __init__(self, folder: Path, scheme: str) -> None:
        partition_graph(graph_data(NUM_NODES), folder / "parts", 2, "random", hops=0, progress=False)
        secret = folder / "secret"
        secret.touch(0o600)
        secret.write_text(SECRET)
        self.partition: Partition = load_partition(folder / "parts")
        self.owner = OwnerProcess(folder / "parts", secret, "--listen", str(Address(scheme, "127.0.0.1", 0)))
        try:
            self.address = Address.parse(self.owner.wait_until_ready())
            self.client = Owners.connect(
                self.partition, [str(self.address)], secret=SECRET, deadline_s=20, patience_s=20
            )
            self.process = psutil.Process(self.owner.process.pid)
            for _ in range(20):
                self.ask()
        except BaseException:
            self.owner.kill()
            raise
        self.first_bytes: int | None = None

    def ask(self) -> None:
        """Asks for rows, which must be right."""
        ids = np.arange(NUM_NODES)[::-1].copy()
        rows = np.zeros((NUM_NODES, 20), np.uint8)
        self.client.gather("x", ids, rows)
        if not (rows.view(np.float32) == ids[:, None] + np.arange(5) / 8).all():
            raise Finding("rows are wrong")

    def look(self) -> int:
        """Returns the owner's memory. Raises Finding: it is gone, grows, or holds what it should not."""
        if self.owner.process.poll() is not None:
            raise Finding(f"the owner ended with {self.owner.process.returncode}")
        try:
            self.ask()
        except GnnLoadError as error:
            raise Finding(f"the owner does not answer: {error}") from error
        num_bytes = int(self.process.memory_info().rss)
        if self.first_bytes is None:
            self.first_bytes = num_bytes  # after some cases: what is imported late, and threads, are no leak
        elif num_bytes > self.first_bytes + MOST_GROWTH_BYTES:
            raise Finding(f"the owner grew from {self.first_bytes >> 20} to {num_bytes >> 20} MiB")
        if (num := self.process.num_threads()) > MOST_THREADS:
            raise Finding(f"the owner has {num} threads")
        return num_bytes

    def close(self) -> None:
        self.client.close()
        self.owner.kill()

    def __enter__(self) -> Front:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def task(random: Random) -> bytes:
    """A request, whole or damaged, as a message or as anything."""
    about: Any = {
        "operation": random.choice(["rows", "draw", "lists", "degrees", *OPERATIONS]),
        "part": random.choice([0, 1, 1, 2, -1, "0", None, 2**70]),
        "table": random.choice(["x", "y", None]),
        "sampler": random.choice([None, {"kind": "os:system", "settings": {}}, "x"]),
        "key": random.choice([[1, 2, 3, 0], [], None, [2**70] * 4]),
        "columns": [],
        "weighted": random.choice([True, False, None]),
    }
    dtype = random.choice([np.int64, np.uint8, np.float32, np.uint64])
    rows = np.array([random.choice([0, 1, 5, 29, 30, 60, 255]) for _ in range(random.choice([0, 1, 7]))], dtype)
    if random.randrange(3) == 0:
        rows = rows.astype(np.int64) * random.choice([-1, 1 << 40, 1 << 62])
    whole = Message(about, {"rows": rows, "places": rows, "scope": rows}).to_bytes().tobytes()
    way = random.randrange(5)
    if way == 0:
        return random.randbytes(random.choice([0, 1, 7, 8, 9, 200]))
    if way == 1:
        return damage_bytes(random, whole)
    if way == 2:
        length = int.from_bytes(whole[:8], "little")
        head = json.dumps(damage_json(random, json.loads(whole[8 : 8 + length]))).encode()
        return len(head).to_bytes(8, "little") + head.ljust(-(-len(head) // 8) * 8, b" ") + whole[8 + length :]
    if way == 3:
        return random.choice([0, 1, 2**31, 2**62, 2**64 - 1]).to_bytes(8, "little") + whole[8:]
    return whole


def tcp_case(random: Random, front: Front) -> str:
    """What one connection may bring over TCP."""
    way = random.randrange(6)
    if way < 2:
        with socket.create_connection((front.address.host, front.address.port), 5) as raw:
            raw.settimeout(5)
            greeting = raw.recv(40)
            words = [b"", greeting, greeting * 2, random.randbytes(random.choice([1, 8, 40, 72, 500])), greeting[:9]]
            with contextlib.suppress(OSError):
                raw.sendall(random.choice(words) + (b"gnnload1" + bytes(64)) * random.randrange(2))
                if random.randrange(2):
                    raw.shutdown(socket.SHUT_WR)
                    # A digest of zeros at most: that it is turned away.
                    if raw.recv(1 << 16).strip(b"\0"):
                        raise Finding("somebody without the secret was told something")
        return "without the secret"
    stream = TcpStream.connect(front.address.host, front.address.port, SECRET.encode(), PURPOSE, 10.0)
    try:
        hello = stream.receive(10.0)
        stream.receive_into(bytearray(hello.num_bytes), 10.0)
        for _ in range(random.choice([1, 1, 5, 50])):
            content = task(random)
            kind = TASK if random.randrange(8) else random.randrange(2**32)
            size = len(content) if random.randrange(6) else random.choice([0, 1, 2**28 + 1, 2**63, 2**64 - 1, 1 << 20])
            with contextlib.suppress(OSError):
                stream._socket.settimeout(5)
                stream._socket.sendall(_HEAD.pack(kind, random.randrange(2**32), size) + content)
                if (kind, size) != (TASK, len(content)) or random.randrange(10) == 0:
                    return "cut off, or of another size or kind"
                answer = stream.receive(10.0)
                stream.receive_into(bytearray(answer.num_bytes), 10.0)
        return "requests"
    finally:
        stream.close()


def flight_case(random: Random, front: Front) -> str:
    """What one call may bring over Flight."""
    import pyarrow as pa
    from pyarrow import flight

    from lightning_gnnload.owners.flight.proof import Caller, Callers, prove

    if random.randrange(20) == 0:
        with socket.create_connection((front.address.host, front.address.port), 5) as raw, contextlib.suppress(OSError):
            raw.sendall(
                random.choice([b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b""]) + random.randbytes(random.randrange(300))
            )
        return "no HTTP/2"
    knows = random.randrange(4) > 0
    client = _clients(front, Callers(Caller(SECRET.encode())) if knows else None)
    options = flight.FlightCallOptions(timeout=10)
    dtype = random.choice([pa.uint8()] * 12 + [pa.int64(), pa.utf8(), pa.list_(pa.uint8())])
    name = "bytes" if random.randrange(16) else "others"
    told = ""
    try:
        if random.randrange(10) == 0:
            content = task(random)
            told = str(random.choice([
                lambda: list(client.list_flights(options=options)),
                lambda: client.do_get(flight.Ticket(content), options).read_all(),
                lambda: list(client.do_action(("x", content), options)),
                lambda: client.get_flight_info(flight.FlightDescriptor.for_command(content), options),
            ])())  # fmt: skip
        else:
            writer, reader = client.do_exchange(flight.FlightDescriptor.for_command(b""), options)
            try:
                if random.randrange(8):
                    writer.begin(pa.schema([(name, dtype)]))
                    nonce = reader.read_chunk().app_metadata.to_pybytes()
                    proof = prove(SECRET.encode() if random.randrange(8) else b"another", "asks", nonce)
                    writer.write_with_metadata(_batch(name, dtype, b""), pa.py_buffer(proof))
                for _ in range(random.choice([0, 1, 1, 5, 50])):
                    content = task(random)
                    size = len(content) if random.randrange(6) else random.choice([0, 1, 2**28 + 1, 2**64 - 1])
                    head = _HEAD.pack(TASK if random.randrange(8) else random.randrange(2**32), 7, size)
                    head = head if random.randrange(8) else damage_bytes(random, head)
                    writer.write_with_metadata(_batch(name, dtype, content), pa.py_buffer(head))
                    told = str(reader.read_chunk().app_metadata)
                writer.done_writing()
            finally:
                reader.cancel()
                with contextlib.suppress(pa.ArrowException, OSError):
                    writer.close()
    except (flight.FlightError, pa.ArrowException, OSError, StopIteration):
        return "cut off"
    if told and not knows:
        raise Finding(f"somebody without the secret was told {told[:100]}")
    return "answered"


def _batch(name: str, dtype: Any, content: bytes) -> Any:
    import pyarrow as pa

    column = pa.array(np.frombuffer(content, np.uint8)) if dtype == pa.uint8() else pa.nulls(len(content) % 3, dtype)
    return pa.record_batch({name: column})


_open: dict[tuple[int, bool], Any] = {}


def _clients(front: Front, calls: Any) -> flight.FlightClient:
    """One client that knows the secret, and one that does not: connections are not what is fuzzed."""
    from pyarrow import flight

    key = (front.address.port, calls is not None)
    if key not in _open:
        _open[key] = flight.FlightClient(str(front.address), middleware=[calls] if calls else None)
    return _open[key]


def run(
    front: Front, cases: Iterator[int] | range, seed: int, say: Callable[[str], object] = lambda text: None
) -> Counter[str]:
    """Runs cases. Raises Finding, which names the last ones."""
    came: Counter[str] = Counter()
    make = tcp_case if front.address.scheme == TCP else flight_case
    began, number = time.monotonic(), 0
    try:
        for number in cases:
            came[make(Random(f"{front.address.scheme} {seed} {number}"), front)] += 1
            if number % LOOK_EVERY == LOOK_EVERY - 1:
                num_bytes = front.look()
                say(f"{number + 1} cases, {time.monotonic() - began:.0f} s, {num_bytes >> 20} MiB, {dict(came)}")
        front.look()
        front.look()
    except Finding as finding:
        raise Finding(f"{finding}, at case {number} or one of {LOOK_EVERY} before it (seed {seed})") from finding
    return came


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.fronts", description=__doc__)
    parser.add_argument("--scheme", choices=("tcp", "grpc"), default="tcp")
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as folder, Front(Path(folder), options.scheme) as front:
        came = run(front, range(options.cases), options.seed, print)
    print(f"fronts: {options.cases} cases over {options.scheme} (seed {options.seed}): {dict(came)}; no finding")


if __name__ == "__main__":
    main(sys.argv[1:])
