"""Network: machines meet each other and nobody else, at the rate that their cables have, until one is pulled."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from tests.cluster import network
from tests.cluster.network import Network

pytestmark = [
    pytest.mark.skipif(bool(network.obstacle()), reason=network.obstacle() or "can be made"),
    pytest.mark.timeout(60),
]
RATE, SIZE = 20_000_000, 4_000_000
SERVER = """
import socket, sys
server = socket.create_server(("0.0.0.0", 9))
print(flush=True)
while True:
    client, _ = server.accept()
    with client:
        while number := client.recv(1):
            client.sendall(bytes(1 if number == b"p" else int(sys.argv[1])))
"""
CLIENT = """
import socket, sys, time
with socket.create_connection((sys.argv[1], 9), timeout=20) as client:
    for line in sys.stdin:
        began, size = time.perf_counter(), 0
        try:
            client.settimeout(float(line.split()[1]))
            client.sendall(line[:1].encode())
            while size < (1 if line[0] == "p" else int(sys.argv[2])):
                size += len(client.recv(1 << 20))
            print(time.perf_counter() - began, flush=True)
        except TimeoutError:
            print("none", flush=True)
"""


@pytest.fixture(scope="module")
def machines() -> Iterator[Network]:
    with Network("here", "there", bytes_per_s=RATE) as machines:
        yield machines


def test_machines_meet_at_their_cables_rate_until_one_is_pulled(machines: Network) -> None:
    there, here = machines["there"], machines["here"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
    server = there.popen([sys.executable, "-c", SERVER, str(SIZE)], **pipes)
    try:
        server.stdout.readline()
        client = here.popen([sys.executable, "-c", CLIENT, there.address, str(SIZE)], **pipes)

        def took(what: str, at_most_s: float = 20) -> str:
            client.stdin.write(f"{what} {at_most_s}\n")
            client.stdin.flush()
            return client.stdout.readline().strip()

        try:
            assert 0.7 * SIZE / RATE < float(took("data")) < 3 * SIZE / RATE  # 1.0 without headers and the first burst
            machines.pull("there")
            assert took("ping", 0.3) == "none"
            machines.plug("there")
            assert float(took("wait")) < 20  # what was lost is sent again, and the connection goes on
        finally:
            client.stdin.close()
            assert client.wait(20) == 0
            client.stdout.close()
    finally:
        server.kill()
        server.wait()
        server.stdin.close()
        server.stdout.close()


def test_nobody_outside_sees_a_machine(machines: Network) -> None:
    listed = subprocess.run(["ip", "-o", "addr"], capture_output=True, text=True, check=True).stdout
    assert machines["there"].address not in listed
    inside = machines["there"].command(["ip", "-o", "addr"])
    seen = subprocess.run(inside, capture_output=True, text=True, check=True).stdout
    assert machines["there"].address in seen


def test_a_network_leaves_nothing(machines: Network) -> None:
    with Network("one") as network:
        holder = network["one"].holder
    began = time.monotonic()
    while subprocess.run(["kill", "-0", str(holder)], capture_output=True).returncode == 0:
        assert time.monotonic() - began < 5
