"""Network: machines with addresses of their own on this one, joined by cables that have a rate and can be pulled.

Each machine is a network namespace; a bridge in one more joins them. Nothing of it is seen outside, and it ends with
the processes that hold it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from tests import forkserver

_TOOLS = ("ip", "tc", "unshare", "nsenter")
_BURST_BYTES = 64 << 10  # that cross at once: a timer tick's worth of a fast cable would be more


@dataclass(frozen=True)
class Machine:
    """One machine of a network: its address, and the process that holds it."""

    name: str
    address: str
    holder: int

    def command(self, command: Sequence[str]) -> list[str]:
        """Returns what runs a command there. That of an interpreter stays one, so that ``forkserver`` may start it."""
        if command[0] == sys.executable:
            return [sys.executable, "-m", "tests.cluster.inside", str(self.holder), *command[1:]]
        return ["nsenter", "--net", "--target", str(self.holder), *command]

    def popen(self, command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Starts a command there; interpreters as forks of the server, as all tests do."""
        return forkserver.Popen(self.command(command), **options)


class Network:
    """Machines ``10.77.0.1`` and on, by the names that are given.

    Args:
        names: of the machines.
        bytes_per_s: of each machine's cable, each way; 0: as fast as the kernel.

    Example::

        with Network("trainer", "storage") as network:
            owner = network["storage"].popen([sys.executable, "-m", "http.server"])
            network.pull("storage")
    """

    def __init__(self, *names: str, bytes_per_s: int = 0) -> None:
        self._holders = contextlib.ExitStack()
        try:
            self._switch = self._hold()
            self._at_switch("ip link add hub type bridge", "ip link set hub up")
            self._machines = {name: self._add(name, number) for number, name in enumerate(names, 1)}
            self.set_rate(bytes_per_s)
        except BaseException:
            self.close()
            raise

    def __getitem__(self, name: str) -> Machine:
        return self._machines[name]

    def set_rate(self, bytes_per_s: int) -> None:
        """Sets how many bytes a second each cable carries, each way."""
        for machine in self._machines.values():
            limits = f"tbf rate {8 * bytes_per_s}bit burst {_BURST_BYTES} latency 50ms" if bytes_per_s else "noqueue"
            self._at_switch(f"tc qdisc replace dev {machine.name} root {limits}")
            _run([*machine.command(["tc"]), *f"qdisc replace dev cable root {limits}".split()])

    def pull(self, name: str) -> None:
        """Pulls a machine's cable: nothing passes, and nobody is told."""
        self._at_switch(f"ip link set {name} down")

    def plug(self, name: str) -> None:
        """Plugs it in again."""
        self._at_switch(f"ip link set {name} up")

    def close(self) -> None:
        """Ends the network; processes on its machines have none from here on. Safe to call twice."""
        self._holders.close()

    def __enter__(self) -> Network:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _hold(self) -> int:
        """Starts a process that holds a namespace, and ends with its input, so also with this process."""
        holder = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "echo; exec cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._holders.enter_context(holder)  # which closes its input, and waits
        holder.stdout.readline()  # type: ignore[union-attr]  # when it has its namespace
        return holder.pid

    def _add(self, name: str, number: int) -> Machine:
        machine = Machine(name, f"10.77.0.{number}", self._hold())
        self._at_switch(
            f"ip link add {name} type veth peer name cable netns {machine.holder}", f"ip link set {name} master hub up"
        )
        for command in (f"ip addr add {machine.address}/24 dev cable", "ip link set cable up", "ip link set lo up"):
            _run(machine.command(command.split()))
        return machine

    def _at_switch(self, *commands: str) -> None:
        for command in commands:
            _run(["nsenter", "--net", "--target", str(self._switch), *command.split()])


@functools.cache
def obstacle() -> str:
    """Says why there can be no such network here; empty where there can."""
    if missing := [tool for tool in _TOOLS if shutil.which(tool) is None]:
        return f"needs {', '.join(missing)}"
    if os.getuid():
        return "needs root, to make networks"
    try:
        with Network("one", bytes_per_s=1_000_000):
            return ""
    except subprocess.CalledProcessError as error:
        return f"this system makes no networks: {error.stderr.strip() or error}"


def _run(command: Sequence[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
