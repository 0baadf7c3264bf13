"""A Ray cluster whose nodes are addresses of this machine, from 127.0.0.2 on; its processes and files end with it.

Ray counts local ranks by address, and takes 127.0.0.1 for the host's own. As a script, this keeps the nodes: each line
of its input adds one, with the resources that it names, or kills one by number.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.integration.scripts import launch

NUM_CPUS = 3
STORE_BYTES = 80 << 20
"""Of a node's object store, which tests need little of."""
_END_S = 30


@dataclass
class RayNodes:
    """The nodes, by number; the first is the head, which no test kills. In a script with ``environment``, Ray
    connects to them by itself."""

    job: launch.Job
    environment: dict[str, str] = field(default_factory=dict)
    store_bytes: int = STORE_BYTES

    def add(self, resources: Mapping[str, float]) -> int:
        """Starts a node, waits until Ray knows it, and returns its number."""
        return int(self._ask({"add": dict(resources), "store": self.store_bytes}))

    def kill(self, node: int) -> None:
        """Kills a node as a machine ends: its raylet by SIGKILL, which all its workers follow."""
        self._ask({"kill": node})

    def _ask(self, command: dict[str, Any]) -> str:
        assert self.job.process.stdin is not None
        assert self.job.process.stdout is not None
        print(json.dumps(command), file=self.job.process.stdin, flush=True)
        answer = self.job.process.stdout.readline()
        assert answer, self.job.output
        return answer.strip()


@contextmanager
def ray_nodes(*resources: Mapping[str, float], store_bytes: int = STORE_BYTES) -> Iterator[RayNodes]:
    """Starts a node for each of ``resources``; the first is the head."""
    # Below /tmp, as paths of sockets have 107 characters at most.
    with tempfile.TemporaryDirectory(prefix="r", dir="/tmp", ignore_cleanup_errors=True) as folder:
        mark, log = uuid.uuid4().hex, Path(folder, "nodes.txt")
        ours = dict.fromkeys(("HOME", "TMPDIR", "RAY_TMPDIR"), folder)
        ours |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2", "OMP_NUM_THREADS": "1"}
        with log.open("w") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.cluster.ray_nodes"],
                cwd=launch.ROOT,
                env={**os.environ, **ours, launch.JOB_MARK: mark, "PYTHONPATH": str(launch.ROOT)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=out,
                start_new_session=True,
                text=True,
            )
        nodes = RayNodes(launch.Job(process, mark, log), ours, store_bytes)
        try:
            for each in resources:
                nodes.add(each)
            nodes.environment["RAY_ADDRESS"] = nodes._ask({})
            yield nodes
            assert process.stdin is not None
            process.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_END_S)
        finally:
            nodes.job.kill()


def _keep() -> None:
    from ray.cluster_utils import Cluster

    # A node that is gone is missed after five seconds; one that is slow, after fifty, as ever.
    head: dict[str, Any] = {"include_dashboard": False, "_system_config": {"health_check_period_ms": 1000}}
    cluster, nodes = Cluster(), []
    for line in sys.stdin:
        command = json.loads(line)
        answer: object = cluster.address
        if "add" in command:
            answer = len(nodes)
            node = cluster.add_node(
                num_cpus=NUM_CPUS,
                resources=command["add"],
                object_store_memory=command["store"],
                node_ip_address=f"127.0.0.{len(nodes) + 2}",
                **({} if nodes else head),
            )
            nodes.append(node)
        elif "kill" in command:
            answer = command["kill"]
            (raylet,) = nodes[command["kill"]].all_processes["raylet"]
            psutil.Process(raylet.process.pid).kill()
            raylet.process.wait()
        print(answer, flush=True)
    # The input ends with the tests, however these end.
    cluster.shutdown()
    shutil.rmtree(os.environ["RAY_TMPDIR"], ignore_errors=True)


if __name__ == "__main__":
    _keep()
