"""DelayProxy: a link in front of a TCP server (delay_proxy.cpp), whose delay, rate and faults a test sets."""

from __future__ import annotations

import hashlib
import os
import select
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

SOURCE = Path(__file__).with_name("delay_proxy.cpp")
BUILD = Path(__file__).parents[2] / "build" / "cluster"
ANSWER_S = 10.0


class Passed(NamedTuple):
    """What a link has carried: open connections, and bytes from and to clients, of those that have ended too."""

    num_connections: int
    bytes_up: int
    bytes_down: int


class DelayProxy:
    """A link to ``host:port``, at ``127.0.0.1:`` :attr:`port`. Closed, or with this process, it ends.

    Args:
        delay_us: microseconds that each byte takes, each way.
        bytes_per_s: of each way, shared by all connections; 0: as fast as the machine.

    Example:
        >>> import socket
        >>> with socket.create_server(("127.0.0.1", 0)) as server, DelayProxy(server.getsockname()[1]) as link:
        ...     link.set_delay(500)
        Passed(num_connections=0, bytes_up=0, bytes_down=0)
    """

    def __init__(
        self,
        port: int,
        host: str = "127.0.0.1",
        delay_us: int = 0,
        bytes_per_s: int = 0,
        listen_host: str = "127.0.0.1",
    ) -> None:
        self._process = subprocess.Popen(
            [str(compiled()), host, str(port), listen_host], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        self.port = int(self._line())
        self.set_delay(delay_us)
        self.set_rate(bytes_per_s)

    def set_delay(self, delay_us: int) -> Passed:
        return self._tell(f"delay {delay_us}")

    def set_rate(self, bytes_per_s: int) -> Passed:
        return self._tell(f"rate {bytes_per_s}")

    def set_target(self, port: int, host: str = "127.0.0.1") -> Passed:
        """Leads connections that come from here on to another server."""
        return self._tell(f"target {host} {port}")

    def freeze(self) -> Passed:
        """Lets nothing pass and ends no connection, as a network does that is parted."""
        return self._tell("freeze")

    def cut(self) -> Passed:
        """Resets all connections, and each that comes."""
        return self._tell("cut")

    def reset(self) -> Passed:
        """Resets all connections, once."""
        return self._tell("reset")

    def mend(self) -> Passed:
        """Ends what :meth:`freeze` and :meth:`cut` began. What waited passes."""
        return self._tell("mend")

    def count(self) -> Passed:
        return self._tell("count")

    def close(self) -> None:
        """Ends the link, and all connections over it. Safe to call twice."""
        if self._process.stdin and not self._process.stdin.closed:
            self._process.stdin.close()
            self._process.wait(ANSWER_S)
            self._process.stdout.close()  # type: ignore[union-attr]

    def __enter__(self) -> DelayProxy:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _tell(self, command: str) -> Passed:
        self._process.stdin.write(command.encode() + b"\n")  # type: ignore[union-attr]
        word, *numbers = self._line().split()
        assert word == "ok", f"{command}: {word} {numbers}"
        return Passed(*map(int, numbers))

    def _line(self) -> str:
        stdout, line = self._process.stdout, b""
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([stdout], [], [], ANSWER_S)
            byte = os.read(stdout.fileno(), 1) if ready else b""  # type: ignore[union-attr]
            if not byte:
                self._process.kill()
                raise RuntimeError(f"delay_proxy said {line!r}, and ended with {self._process.wait()}")
            line += byte
        return line.decode()


def compiler() -> str | None:
    """Returns the C++ compiler; None where there is none."""
    return next(filter(shutil.which, filter(None, [os.environ.get("CXX"), "c++", "g++"])), None)


def compiled() -> Path:
    """Returns the program, compiled by the first who needs it."""
    source = SOURCE.read_bytes()
    program = BUILD / f"delay_proxy-{hashlib.sha256(source).hexdigest()[:16]}"
    if not program.exists():
        BUILD.mkdir(parents=True, exist_ok=True)
        unfinished = program.with_suffix(f".{os.getpid()}")
        flags = ["-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror"]
        subprocess.run([compiler() or "c++", *flags, "-o", str(unfinished), str(SOURCE)], check=True)
        unfinished.replace(program)  # at once, whoever else compiles it now
    return program
