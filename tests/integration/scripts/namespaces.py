"""Two network namespaces joined by a cable: two machines, as far as their networks can tell."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

ADDRESSES = ("10.77.0.1", "10.77.0.2")
_WAIT = [sys.executable, "-c", "import sys; print('there', flush=True); sys.stdin.read()"]


@contextmanager
def two_machines() -> Iterator[list[list[str]]]:
    """For each machine, the prefix of commands that shall run on it. Its address is the one of ``ADDRESSES``.

    Raises:
        PermissionError: the system does not let this user make namespaces, or has no ``ip``, ``unshare``, ``nsenter``.
    """
    with ExitStack() as stack:
        try:
            first = stack.enter_context(_held(["unshare", "--map-root-user", "--net"]))
            inside = ["nsenter", f"--target={first}", "--user", "--net", "--preserve-credentials"]
            second = stack.enter_context(_held([*inside, "unshare", "--net"]))
            machines = [inside, ["nsenter", f"--target={second}", "--user", "--net", "--preserve-credentials"]]
            _run([*inside, "ip", "link", "add", "cable0", "type", "veth", "peer", "cable1", "netns", str(second)])
            for number, (machine, address) in enumerate(zip(machines, ADDRESSES, strict=True)):
                _run([*machine, "ip", "address", "add", f"{address}/24", "dev", f"cable{number}"])
                for link in (f"cable{number}", "lo"):
                    _run([*machine, "ip", "link", "set", link, "up"])
        except (FileNotFoundError, subprocess.CalledProcessError) as error:
            output = (getattr(error, "stderr", None) or "").strip()
            raise PermissionError(f"no network namespaces here: {error} {output}") from error
        yield machines


@contextmanager
def _held(command: list[str]) -> Iterator[int]:
    """A process that keeps a new namespace alive; its id."""
    with subprocess.Popen(
        [*command, *_WAIT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        if not process.stdout.readline():
            raise subprocess.CalledProcessError(process.wait(), command, stderr=process.stderr.read())
        yield process.pid


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
