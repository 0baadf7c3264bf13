"""What rows from an owner cost by each way to it, beside the least that TCP can do (``tests/benchmarks/owners.py``).

    python -m tests.benchmarks.owner_fronts

An owner for each way, on loopback; all take turns, with as many streams; each round draws other rows.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import torch

from lightning_gnnload import Graph, GraphData, load_partition, partition_graph
from lightning_gnnload.owners.address import SCHEMES
from lightning_gnnload.owners.client import Owners
from lightning_gnnload.owners.ways import AUTHORITY_FILE
from tests.benchmarks.owners import COUNTS, NUM_ROWS, WIDTH, Plain, medians_ms
from tests.cluster.certificates import make_certificate
from tests.unit.owners.serving import SECRET, OwnerProcess

STREAMS = (1, 4)


def main() -> None:
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        x = np.repeat(np.arange(NUM_ROWS, dtype=np.float32)[:, None], WIDTH, axis=1)
        np.save(folder / "x.npy", x)
        data = GraphData(Graph.from_coo([0], [1], num_nodes=NUM_ROWS), torch.from_numpy(x), train=np.arange(10))
        partition_graph(data, folder / "parts", 1, "random", hops=0, progress=False)
        del data, x
        (folder / "secret").touch(0o600)
        (folder / "secret").write_text(SECRET)
        made = make_certificate(folder)
        os.environ[AUTHORITY_FILE] = str(made.certificate)
        command = [sys.executable, "-m", "tests.benchmarks.owners", "--plain", str(folder / "x.npy")]
        plain = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        stack.callback(plain.kill)
        assert plain.stdout is not None
        port = int(plain.stdout.readline())
        addresses = {}
        for scheme in SCHEMES:
            options = ["--listen", f"{scheme}://127.0.0.1:0"]
            if scheme.endswith("tls"):
                options += ["--certificate", str(made.certificate), "--key", str(made.key)]
            owner = stack.enter_context(OwnerProcess(folder / "parts", folder / "secret", *options))
            addresses[scheme] = owner.wait_until_ready()
        partition = load_partition(folder / "parts")
        print(f"| rows of 512 B | streams | plain TCP, ms | {' | '.join(f'{scheme}, ms' for scheme in SCHEMES)} |")
        print("| ---: | ---: | ---: |" + " ---: |" * len(SCHEMES))
        for count in COUNTS:
            for num_streams in STREAMS:
                clients = {
                    scheme: Owners.connect(partition, [address], secret=SECRET, num_streams=num_streams)
                    for scheme, address in addresses.items()
                }
                gathers = {scheme: functools.partial(client.gather, "x") for scheme, client in clients.items()}
                ms = medians_ms({"plain": Plain(port, num_streams).gather, **gathers}, count)
                cells = [f"{taken:.1f} ({taken / ms['plain']:.2f})" for name, taken in ms.items() if name != "plain"]
                print(f"| {count:,} | {num_streams} | {ms['plain']:.1f} | {' | '.join(cells)} |", flush=True)
                for client in clients.values():
                    client.close()


if __name__ == "__main__":
    main()
