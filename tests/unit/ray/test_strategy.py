"""RayFactoredStrategy in a Trainer: what Ray decides, and what it refuses. In a process of its own, which follows the
Lightning that Ray does."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytest.importorskip("ray")
pytest.importorskip("lightning")

pytestmark = pytest.mark.timeout(120)

CODE = """
import json
import lightning.pytorch as pl
from lightning.pytorch.plugins.environments import LightningEnvironment
from ray.train.lightning import RayLightningEnvironment, prepare_trainer
from ray.train.v2._internal.execution import train_fn_utils as functions
from lightning_gnnload.ray import FactoredTorchConfig, RayFactoredStrategy, RayReportCallback, addresses, command

def outcome(make):
    try:
        return make()
    except Exception as error:
        return f"{type(error).__name__}: {error}"

def place(everywhere, here, local, node):
    rank = node * here + local
    functions.set_train_fn_utils(functions.LocalTrainFnUtils("name", None, everywhere, rank, local, here, node))

def trainer(strategy=(), **options):
    quiet = {"logger": False, "enable_progress_bar": False, "enable_checkpointing": False}
    made = pl.Trainer(accelerator="cpu", strategy=RayFactoredStrategy(**dict(strategy)), **quiet, **options)
    return prepare_trainer(made)

def facts(made):
    strategy = made.strategy
    return {
        "world_size": made.world_size, "rank": made.global_rank, "role": strategy.role.value, "nodes": made.num_nodes,
        "devices": len(strategy.parallel_devices), "environment": type(strategy.cluster_environment).__name__,
        "samples_of": strategy.distributed_sampler_kwargs, "takeover": strategy.takeover,
    }

seen = {"outside": outcome(trainer)}
place(3, 3, 0, 0)
seen["untold"] = outcome(trainer)
addresses._secret = "of this start"
import os
os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1", "NODE_RANK": "0", "LOCAL_RANK": "0"}
seen["trainer"] = facts(trainer())
seen["plugin"] = facts(trainer(plugins=[RayLightningEnvironment()]))
seen["other_plugin"] = facts(trainer(plugins=[LightningEnvironment()]))
seen["devices"] = facts(trainer(devices=3))
seen["two_devices"] = outcome(lambda: trainer(devices=2))
seen["two_nodes"] = outcome(lambda: trainer(num_nodes=2))
seen["takeover"] = outcome(lambda: trainer({"takeover": True}))
seen["trainers"] = outcome(lambda: trainer({"trainers": 2}))
seen["all_sample"] = outcome(lambda: trainer({"samplers": 3}))
seen["owners"] = outcome(lambda: trainer({"owners": -1}))
seen["configured"] = facts(trainer({"start_method": "popen", "trainers": None}))  # as a configuration names them
seen["spawn"] = outcome(lambda: trainer({"start_method": "spawn"}))
seen["unknown_devices"] = outcome(lambda: command.start_command(["fit"], {"devices": "auto"}))
seen["has_run"] = RayFactoredStrategy.start_command(["fit"], {"devices": 3})
seen["steps"] = outcome(lambda: RayReportCallback(0))
place(6, 3, 2, 1)
seen["second_sampler"] = facts(trainer())
apart = {"samplers": 0, "sampler_nodes": 1}
seen["apart"] = facts(trainer(apart))
place(6, 3, 0, 0)
seen["trains_apart"] = facts(trainer(apart))
place(1, 1, 0, 0)
seen["lone"] = facts(trainer())
place(5, 3, 0, 0)
seen["uneven"] = outcome(trainer)
print(json.dumps(seen))
"""


@pytest.fixture(scope="module")
def seen() -> dict[str, object]:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


TRAINER = {
    "world_size": 2,
    "rank": 0,
    "role": "trainer",
    "nodes": 1,
    "devices": 2,
    "environment": "RayLightningEnvironment",
    "samples_of": {"num_replicas": 2, "rank": 0},
    "takeover": False,
}
SECOND = TRAINER | {"world_size": 4, "nodes": 2, "role": "sampler", "rank": 5}
APART = TRAINER | {"world_size": 3, "nodes": 2, "role": "sampler", "rank": 5, "devices": 3}
LONE = TRAINER | {"world_size": 1, "devices": 1, "samples_of": {"num_replicas": 1, "rank": 0}}


@pytest.mark.parametrize(
    ("case", "wanted"),
    [
        *((case, TRAINER) for case in ("trainer", "plugin", "other_plugin", "devices", "configured")),
        ("has_run", False),  # by others: this is a worker
        ("second_sampler", SECOND | {"samples_of": {"num_replicas": 4, "rank": 5}}),
        ("apart", APART | {"samples_of": {"num_replicas": 3, "rank": 5}}),
        ("trains_apart", APART | {"role": "trainer", "rank": 0, "samples_of": {"num_replicas": 3, "rank": 0}}),
        ("lone", LONE),
    ],
)
def test_a_trainer_has_the_ranks_that_ray_placed(seen: dict[str, object], case: str, wanted: object) -> None:
    assert seen[case] == wanted


@pytest.mark.parametrize(
    ("case", "text"),
    [
        ("outside", "LaunchError: RayFactoredStrategy is made in the function that Ray Train runs"),
        ("untold", "LaunchError: RayFactoredStrategy forms the trainers' process group"),
        ("two_devices", "RoleConfigError: Trainer(devices=2), but Ray Train has devices=3 here"),
        ("two_nodes", "RoleConfigError: Trainer(num_nodes=2), but Ray Train has num_nodes=1 here"),
        ("takeover", "RoleConfigError: RayFactoredStrategy has no takeover: Ray starts all ranks again"),
        ("trainers", "RoleConfigError: RayFactoredStrategy has no trainers: ScalingConfig"),
        ("spawn", "RoleConfigError: RayFactoredStrategy has no start_method: Ray Train starts the ranks"),
        ("unknown_devices", "RoleConfigError: trainer.devices=auto: Ray needs to know how many workers"),
        ("all_sample", "RoleConfigError: samplers=3 of devices=3 leaves no device to train on."),
        ("owners", "RoleConfigError: owners=-1: a whole number of at least 0 is needed."),
        ("steps", "LoaderConfigError: every_n_train_steps=0: a whole number of at least 1 is needed."),
        ("uneven", "RoleConfigError: Ray Train has placed 3 of 5 workers on this machine"),
    ],
)
def test_what_cannot_be_is_told(seen: dict[str, object], case: str, text: str) -> None:
    assert str(seen[case]).startswith(text)


def test_two_lightnings_are_told_apart() -> None:
    code = "import pytorch_lightning\nfrom lightning_gnnload.ray import RayFactoredStrategy"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    last = done.stderr.splitlines()[-1]
    assert "LightningCompatibilityError: Ray Train follows the package lightning, and lightning_gnnload" in last
    assert "GNNLOAD_LIGHTNING=lightning" in last


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("change", "text"),
    [
        ("ray.__version__ = '2.50.1'", "needs Ray 2.51 or newer, but Ray 2.50.1 is installed: pip install -U"),
        (
            "from ray.train.torch import config; del config._set_torch_distributed_env_vars",
            "has changed what lightning_gnnload.",
        ),
        ("os.environ['RAY_TRAIN_V2_ENABLED'] = '0'", "RAY_TRAIN_V2_ENABLED turns off the second version of Ray Train"),
    ],
)
def test_another_ray_is_told(change: str, text: str) -> None:
    code = f"import os, sys, ray\n{change}\nfrom lightning_gnnload.ray import FactoredTorchConfig"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    last = done.stderr.splitlines()[-1]
    assert last.startswith("lightning_gnnload.errors.LaunchError: ")
    assert text in last


def test_without_ray_it_says_what_to_install() -> None:
    code = "import sys\nsys.modules['ray'] = None\nfrom lightning_gnnload.ray import FactoredTorchConfig"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert done.stderr.rstrip().endswith("pip install 'lightning-gnnload[ray]'")
