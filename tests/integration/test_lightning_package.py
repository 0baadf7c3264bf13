"""Users of ``lightning`` are served like those of ``pytorch_lightning``, and told when they mix the two."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.scripts import launch

pytest.importorskip("lightning.pytorch", reason="pip install lightning")
SCRIPT = Path(__file__).parent / "scripts" / "unified.py"


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one rank that sampled for itself, under ``strategy="auto"``."""
    folder = tmp_path_factory.mktemp("alone")
    job = launch.run(SCRIPT, "auto", "after", "max_steps", folder=folder, anew=True)
    assert "Where the time went" in job.output, "LoaderMonitor"
    return folder


# A spawned rank imports everything, in each launch: the second case has one launch.
@pytest.mark.parametrize(("how", "case"), [("script", "after"), ("spawn", "max_steps")])
def test_samplers_give_what_the_trainer_alone_does(alone: Path, tmp_path: Path, how: str, case: str) -> None:
    launch.run(SCRIPT, "factored", case, folder=tmp_path, how=how, num_devices=2, anew=True)
    found, wanted = (json.loads((folder / case / "trainer-0.json").read_text()) for folder in (tmp_path, alone))
    assert found == wanted


MODEL = """
import lightning.pytorch as pl
import torch


class Linear(pl.LightningModule):
    def __init__(self, num_features: int = 64):
        super().__init__()
        self.layer = torch.nn.Linear(num_features, 16)

    def training_step(self, batch, batch_idx):
        return torch.nn.functional.cross_entropy(self.layer(batch.x[: batch.num_seeds]), batch.y)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)
"""


def in_a_fresh_process(code: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "GNNLOAD_LIGHTNING"}
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env=environment | {"PYTHONPATH": str(launch.ROOT)} | variables,
        capture_output=True,
        text=True,
        timeout=60,
    )


BOTH = """
import pytorch_lightning, lightning.pytorch
from importlib import import_module
from lightning_gnnload import FactoredStrategy, GraphDataModule
from lightning_gnnload.plugin.compat import pl
from tests.integration.scripts.toy import toy_module

theirs = lightning.pytorch if pl is pytorch_lightning else pytorch_lightning
print("ours:", pl.__name__)
model = import_module(theirs.__name__ + ".demos.boring_classes").BoringModel()
quiet = dict(accelerator="cpu", logger=False, enable_checkpointing=False, enable_model_summary=False)
for attempt in (
    lambda: theirs.Trainer(strategy=FactoredStrategy(), devices=2, **quiet),
    lambda: theirs.Trainer(strategy="factored_fork", devices=2, **quiet),
    lambda: theirs.Trainer(**quiet).fit(model, datamodule=toy_module()),
    lambda: theirs.Trainer(**quiet).fit(model, toy_module()),
):
    try:
        attempt()
    except (ImportError, ValueError) as error:
        print("said:", str(error).replace(chr(10), " "))
"""


@pytest.mark.parametrize("chosen", ["", "lightning"])
def test_who_mixes_the_two_is_told_what_to_set(tmp_path: Path, chosen: str) -> None:
    """pytorch_lightning comes first, unless the environment says otherwise."""
    done = in_a_fresh_process(BOTH, tmp_path, **({"GNNLOAD_LIGHTNING": chosen} if chosen else {}))
    assert done.returncode == 0, done.stderr
    assert f"ours: {'lightning.pytorch' if chosen else 'pytorch_lightning'}\n" in done.stdout
    said = [line for line in done.stdout.splitlines() if line.startswith("said: ")]
    remedy = "GNNLOAD_LIGHTNING=" + ("pytorch_lightning" if chosen else "lightning")
    assert len(said) == 4
    assert all(remedy in text for text in said), said


def test_where_only_one_is_installed_it_is_taken(tmp_path: Path) -> None:
    """As in an environment with ``lightning`` alone: pytorch_lightning is hidden from this process."""
    code = """
import importlib.util
import sys

class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "pytorch_lightning":
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Hide())
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == "pytorch_lightning" else found(name, package)
from lightning_gnnload.plugin.compat import pl
print(pl.__name__)
"""
    done = in_a_fresh_process(code, tmp_path)
    assert done.stdout == "lightning.pytorch\n", done.stderr


def test_the_command_line_trains_a_model_of_lightning(tmp_path: Path) -> None:
    (tmp_path / "models.py").write_text(MODEL)
    arguments = [
        *("fit", "--model", "models.Linear", "--data.sampler", "NeighborSampler", "--data.data", "Synthetic"),
        *("--data.data.kind", "citation", "--data.data.num_nodes", "5000", "--data.data.num_edges", "20000"),
        *("--data.sampler.fanouts", "[3]", "--trainer.accelerator", "cpu", "--trainer.devices", "2"),
        *("--trainer.strategy", "FactoredStrategy", "--trainer.strategy.samplers", "1"),
        *("--trainer.limit_train_batches", "3", "--trainer.max_epochs", "1"),
        *("--trainer.limit_val_batches", "0", "--trainer.logger", "false"),
    ]
    code = "import sys; from lightning_gnnload.plugin.commands.cli import main; main()"
    script = tmp_path / "train.py"
    script.write_text(code)
    done = subprocess.run(
        [sys.executable, script, *arguments],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(launch.ROOT), "GNNLOAD_LIGHTNING": "lightning"},
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "`Trainer.fit` stopped: `max_epochs=1` reached." in done.stdout + done.stderr
