"""A stranger: a process of another user on the machine, which does harm to whatever listens there.

It knows what anybody may know: the names in /proc/net/unix, the ports in /proc/net/tcp, this package's source and that
of torch.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import socket
import struct
from collections import Counter, deque
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any

from lightning_gnnload.pipeline.queue.wire import PROTOCOL_VERSION

NOBODY = 65534
MAIN_PORT = 29500
"""A port that a job's user has chosen, and the stranger knows."""
_MOST_HELD = 300  # connections, of the 1024 files that a process may have
_KINDS = {"0001": socket.SOCK_STREAM, "0002": socket.SOCK_DGRAM, "0005": socket.SOCK_SEQPACKET}
_HELLO = {"kind": "hello", "version": PROTOCOL_VERSION, "trainer": 0, "rank": 0, "device": ""}
_MESSAGES = (
    b"\0" * 64,
    b"\xff" * 100_000,
    b'{"kind": "hel',
    b"[" * 50_000,
    json.dumps({"kind": "bye", "num_bytes": 1 << 40}).encode(),
    json.dumps({"kind": "failed", "role": "trainer", "rank": 0, "died": True, "stage": "x", "text": "y"}).encode(),
    json.dumps({**_HELLO, "version": -1}).encode(),
    json.dumps(_HELLO).encode(),
    json.dumps({"kind": "join", "index": 1, "count": 2}).encode(),
)
# torch's TCPStore: the first bytes of a connection, and its requests.
_VALIDATE = b"\0" + struct.pack("<I", 0x3C85F7CE)
_SET, _DELETE, _LIST = b"\x01", b"\x08", b"\x11"


class Stranger:
    """Does harm in rounds.

    Attributes:
        done: counts what it did.
    """

    def __init__(self, random: Random) -> None:
        self.random = random
        self.done: Counter[str] = Counter()
        self._held: deque[socket.socket] = deque()
        self._bound: dict[tuple[bytes, int], socket.socket] = {}
        self.harm: dict[str, Callable[[], None]] = {
            "sockets": self.connect_to_names,
            "names": self.take_names,
            "flags": self.forge_flags,
            "garbage": self.send_garbage,
            "half-open": self.open_half,
            "pairs": self.join_pairs,
            "requests": self.forge_requests,
        }

    # Names in the abstract namespace.

    def connect_to_names(self) -> None:
        """Connects to all, sends nonsense, halves of messages, floods and what another process might have sent."""
        for name, kind in abstract_sockets():
            with contextlib.suppress(OSError):
                connection = self._connect(socket.AF_UNIX, kind, name, most=self.random.choice((10, _MOST_HELD)))
                for _ in range(self.random.choice((0, 1, 1, 50))):
                    connection.send(self.random.choice(_MESSAGES))
                    self.done["messages"] += 1

    def take_names(self) -> None:
        """Binds the names that the next launches' samplers and caches will want."""
        for name in self._predicted("gnnload-{uid}-{run}-{session}-{number}"):
            self._bind(name, socket.SOCK_SEQPACKET)

    def forge_flags(self) -> None:
        """Raises the flags by which ranks tell that another one has ended, stalled or lives."""
        patterns = ("ended-{number}", "{session}-trainer-{number}", "{session}-stalled-{pid}")
        for pattern in patterns:
            for name in self._predicted(f"gnnload-flag-{{uid}}-{{run}}-{pattern}"):
                self._bind(name, socket.SOCK_DGRAM)

    def _predicted(self, pattern: str) -> Iterator[bytes]:
        """Names like those that are there, with their numbers counted on; and of runs whose port is known."""
        runs = {hashlib.blake2b(f"{MAIN_PORT}/0//".encode(), digest_size=8).hexdigest()}
        for name, _ in abstract_sockets():
            text = name[1:].decode(errors="replace")
            runs.update(re.findall(r"\b[0-9a-f]{16}\b", text))
            for found in re.finditer(r"(?<=-)\d{1,6}(?=-|$)", text):
                for more in (1, 2):
                    yield b"\0" + f"{text[: found.start()]}{int(found[0]) + more}{text[found.end() :]}".encode()
        pids = [name for name in os.listdir("/proc") if name.isdecimal()] if "{pid}" in pattern else ["0"]
        for run in runs:
            for session in (1, 2, 3):
                for number, pid in ((number, pid) for number in range(4) for pid in pids):
                    yield b"\0" + pattern.format(uid=0, run=run, session=session, number=number, pid=pid).encode()

    def _bind(self, name: bytes, kind: int) -> None:
        if (name, kind) in self._bound or sum(of == kind for _, of in self._bound) > _MOST_HELD:
            return
        taken = socket.socket(socket.AF_UNIX, kind)
        try:
            taken.bind(name)
            if kind == socket.SOCK_SEQPACKET:
                taken.listen()
        except OSError:  # somebody was first
            taken.close()
            return
        self._bound[name, kind] = taken
        self.done["names taken"] += 1

    # Ports on loopback.

    def send_garbage(self) -> None:
        for port in listening_ports():
            with contextlib.suppress(OSError):
                connection = self._connect(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", port), most=10)
                connection.send(self.random.randbytes(self.random.choice((1, 8, 64, 4096))))

    def open_half(self) -> None:
        """Connects, says nothing and stays, or begins a request and stays."""
        for port in listening_ports():
            with contextlib.suppress(OSError):
                connection = self._connect(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", port))
                connection.send(self.random.choice((_VALIDATE, _VALIDATE + _SET + b"\xff", b"\0", _VALIDATE[:3])))

    def join_pairs(self) -> None:
        """Connects as a rank of gloo would, which says by a small number whose connection this is to be."""
        for port in listening_ports():
            for number in range(4):
                with contextlib.suppress(OSError):
                    connection = self._connect(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", port))
                    connection.send(struct.pack("<q", number))

    def forge_requests(self) -> None:
        """Lists the keys of each store, and overwrites or deletes them."""
        for port in listening_ports():
            with contextlib.suppress(OSError):
                connection = self._connect(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", port), most=10)
                connection.settimeout(0.2)
                connection.sendall(_VALIDATE + _LIST)
                keys = re.findall(rb"/[!-~]+", connection.recv(1 << 16))
                for key in keys or [b"/gnnload/1/default_pg/0//cpu//0/0"]:
                    text = struct.pack("<Q", len(key)) + key
                    if self.random.random() < 0.5:
                        connection.sendall(_DELETE + text)
                    else:
                        connection.sendall(_SET + text + struct.pack("<Q", 6) + b"forged")
                    self.done["requests"] += 1

    def _connect(self, family: int, kind: int, address: Any, *, most: int = _MOST_HELD) -> socket.socket:
        """Connects, and keeps the connection open until some more are. Raises OSError: it was turned away."""
        connection = socket.socket(family, kind)
        connection.setblocking(False)
        self._held.append(connection)
        while len(self._held) > most:
            self._held.popleft().close()
        with contextlib.suppress(BlockingIOError):
            connection.connect(address)
        self.done["connections"] += 1
        return connection


def run(harms: list[str], seed: str, cores: set[int], channel: Connection) -> None:
    """Does harm as another user until something comes by the channel, then sends by it what was done."""
    os.sched_setaffinity(0, cores)
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    stranger = Stranger(Random(seed))
    while not channel.poll():
        for harm in harms:
            stranger.harm[harm]()
    channel.send(dict(stranger.done))


def abstract_sockets() -> list[tuple[bytes, int]]:
    """Lists names and kinds of the abstract namespace."""
    lines = [line.split() for line in Path("/proc/net/unix").read_text(errors="surrogateescape").split("\n")[1:]]
    named = {(fields[7], fields[4]) for fields in lines if len(fields) == 8 and fields[7].startswith("@")}
    # One that is being closed is of no kind any more.
    return [(b"\0" + os.fsencode(name[1:]), _KINDS[kind]) for name, kind in sorted(named) if kind in _KINDS]


def listening_ports() -> list[int]:
    """Lists the ports of IPv4 and IPv6 that are listened on."""
    lines = [line.split() for file in ("tcp", "tcp6") for line in Path(f"/proc/net/{file}").read_text().splitlines()]
    return sorted({int(fields[1].rpartition(":")[2], 16) for fields in lines if fields[3] == "0A"})
