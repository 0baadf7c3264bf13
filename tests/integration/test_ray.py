"""Ray Train starts ranks and owners on the nodes of a cluster: the weights are those of our own launcher, whatever is
lost."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lightning_gnnload import partition_graph
from lightning_gnnload.plugin.compat import pl
from tests.cluster.ray_nodes import RayNodes, ray_nodes
from tests.integration.scripts import launch
from tests.integration.scripts.toy import Recorder, toy_data, toy_module
from tests.runif import RunIf

pytestmark = [RunIf(extras="ray"), pytest.mark.timeout(500)]
CONFIGURATION = """
seed_everything: 0
trainer:
  accelerator: cpu
  devices: 3
  strategy:
    class_path: lightning_gnnload.ray.RayFactoredStrategy
    init_args: {samplers: 1}
  max_epochs: 1
  logger: false
  enable_checkpointing: false
  callbacks:
    - class_path: lightning_gnnload.ray.RayReportCallback
      init_args: {every_n_train_steps: 3}
model:
  class_path: SAGE
  init_args: {hidden: 32}
data:
  data: {class_path: Debian}
  sampler:
    class_path: NeighborSampler
    init_args: {fanouts: [5, 5]}
  batch_size: 1024
"""
SCRIPTS = Path(__file__).parent / "scripts"
LIMIT_S = 300


@pytest.fixture(scope="module")
def nodes() -> Iterator[RayNodes]:
    """Two nodes, each with room for two ranks, and storage."""
    each = {"rank": 2, "storage": 1}
    with ray_nodes(each, each) as nodes:
        yield nodes
    assert not nodes.job.processes()
    assert not Path(nodes.environment["HOME"]).exists()  # where Ray's sessions were


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Those of two trainers that our own launcher has started, over the whole graph."""
    folder = tmp_path_factory.mktemp("ours")
    launch.run(SCRIPTS / "resume.py", 1, "-", "whole", "batch_end", folder=folder, num_devices=3)
    return json.loads((folder / "batch_end" / "whole" / "trainer-0.json").read_text())["weights"]


def run_on(nodes: RayNodes, folder: Path, name: str, meanwhile: Any = lambda: None) -> list[dict[str, Any]]:
    """Runs Ray Train, and returns what its ranks wrote."""
    partition_graph(toy_data(), folder / "parts", 3, hops=0, progress=False)
    with launch.start(SCRIPTS / "rays.py", name, folder=folder, environment=nodes.environment, anew=True) as job:
        meanwhile()
        job.wait(LIMIT_S * launch.PATIENCE)
    print(job.output)
    assert job.returncode == 0, job.output
    return [json.loads(path.read_text()) for path in sorted(folder.glob("rank-*.json"))]


def wait_for(file: Path) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not file.exists():
        assert time.monotonic() < deadline, f"{file.name} did not come"
        time.sleep(0.1)


def test_weights_are_those_of_our_launcher_though_an_owner_is_killed(
    nodes: RayNodes, weights: str, tmp_path: Path
) -> None:
    found = run_on(nodes, tmp_path, "owned")
    assert (tmp_path / "killed").exists()
    assert [(rank["node"], rank["role"]) for rank in found] == [
        (node, role) for node in range(2) for role in ("trainer", "sampler")
    ]
    # The sampler's script goes on with them, too.
    assert {rank["weights"] for rank in found} == {weights}
    assert {rank["world_size"] for rank in found} == {2}
    assert all(rank["steps"] == [*range(20)] for rank in found if rank["role"] == "trainer")  # nobody began anew
    # Reports of steps 3, 6, 9, 12, 15, 18, and of both epochs' ends; the function's own has no checkpoint.
    assert len(list((tmp_path / "results" / "owned").glob("checkpoint_*/checkpoint.ckpt"))) == 8
    # One process that trains on both slices of each step rounds differently, and no more.
    pl.seed_everything(1, verbose=False)
    model = Recorder()
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    pl.Trainer(accelerator="cpu", max_epochs=2, num_sanity_val_steps=0, **quiet).fit(model, toy_module(batch_size=32))
    alone = np.concatenate([tensor.detach().flatten().numpy() for tensor in model.parameters()])
    np.testing.assert_allclose(found[0]["numbers"], alone, atol=1e-4)


def test_samplers_on_a_node_of_their_own_and_a_killed_rank(nodes: RayNodes, weights: str, tmp_path: Path) -> None:
    found = run_on(nodes, tmp_path, "apart")
    assert (tmp_path / "killed").exists()
    assert [(rank["node"], rank["role"]) for rank in found] == [
        (node, role) for node, role in enumerate(("trainer", "sampler")) for _ in range(2)
    ]
    assert {rank["weights"] for rank in found} == {weights}
    assert all(rank["steps"][0] in (3, 6) for rank in found[:2])  # in mid-epoch


def test_lost_nodes_are_replaced(nodes: RayNodes, weights: str, tmp_path: Path) -> None:
    storing, training = nodes.add({"storage": 1}), nodes.add({"spare": 3})

    def lose_them() -> None:
        wait_for(tmp_path / "wants_owner_killed")
        nodes.kill(storing)
        (tmp_path / "killed").touch()
        wait_for(tmp_path / "wants_ranks_killed")  # training went on: its owner is on another node
        nodes.kill(training)
        nodes.add({"spare": 3})

    found = run_on(nodes, tmp_path, "lost", lose_them)
    assert {rank["weights"] for rank in found} == {weights}
    assert all(rank["steps"][0] in (9, 10, 12) for rank in found[:2])


def test_what_a_trainer_raises_ends_the_run_and_is_told(nodes: RayNodes, tmp_path: Path, capfd: Any) -> None:
    assert run_on(nodes, tmp_path, "raises") == []
    output = capfd.readouterr().out
    assert "raises: WorkerGroupError" in output
    assert "ValueError: planted" in output


def test_the_example_trains(nodes: RayNodes, tmp_path: Path) -> None:
    example = launch.ROOT / "examples" / "ray_train.py"
    with launch.start(example, folder=tmp_path, environment=nodes.environment, anew=True) as job:
        job.wait(LIMIT_S * launch.PATIENCE)
    assert job.returncode == 0, job.output
    assert float(re.findall(r"'val_accuracy': ([0-9.]+)", job.output)[-1]) > 0.4  # of 58 sections
    assert [*tmp_path.glob("runs/ray/*/checkpoint_*/checkpoint.ckpt")]


def test_a_configuration_whose_strategy_is_rays_runs_in_its_workers(nodes: RayNodes, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(CONFIGURATION)
    done = subprocess.run(
        [sys.executable, "-m", "lightning_gnnload.plugin.commands.cli", "fit", "--config", "run.yaml"],
        cwd=tmp_path,
        env={**os.environ, **nodes.environment, "PYTHONPATH": str(launch.ROOT), "GNNLOAD_LIGHTNING": "lightning"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=LIMIT_S,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    assert [*tmp_path.glob("*/checkpoint_*/checkpoint.ckpt")], done.stdout
