"""What newcomers do first, in the environment of the interpreter that runs this, with the seconds that it took.

    python -m venv fresh && fresh/bin/pip install dist/*.whl pyarrow duckdb torch_geometric
    fresh/bin/python scripts/first_steps.py

Trains on the data that ships; makes predictions of the README's tables; runs a script for PyG, one for DGL, and a
LightningModule of one's own with a configuration. All of it in an empty folder, where only the installed package is to
be found. What needs an extra that is missing is left out, by name. The exit status is 1 where something failed.
"""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent

OWN_MODULE = """
import pytorch_lightning as pl
import torch
from torch.nn import functional as F

from lightning_gnnload import MiniBatch, aggregate


class MyModel(pl.LightningModule):
    def __init__(self, in_features: int, num_classes: int, hidden: int = 64) -> None:
        super().__init__()
        first, second = torch.nn.Linear(2 * in_features, hidden), torch.nn.Linear(2 * hidden, num_classes)
        self.layers = torch.nn.ModuleList([first, second])

    def forward(self, batch: MiniBatch) -> torch.Tensor:
        x = batch.x
        for k, (layer, block) in enumerate(zip(self.layers, batch.blocks)):
            x = layer(torch.cat([x[: block.num_dst], aggregate(block, x)], dim=1))
            x = x.relu() if k == 0 else x
        return x

    def training_step(self, batch: MiniBatch, batch_idx: int) -> torch.Tensor:
        return F.cross_entropy(self(batch), batch.y)

    def test_step(self, batch: MiniBatch, batch_idx: int) -> None:
        right = (self(batch).argmax(1) == batch.y).float().mean()
        self.log("accuracy", right, batch_size=batch.num_seeds)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.01)
"""
OWN_CONFIG = """
trainer: {max_epochs: 3}
model: {class_path: my_model.MyModel, init_args: {in_features: 128, num_classes: 58}}
data:
  data: Debian
  sampler: {class_path: NeighborSampler, init_args: {fanouts: [10, 5]}}
  batch_size: 1024
test_after_fit: true
"""
OF_DGL = """
import dgl, torch
from lightning_gnnload.dgl import DataLoader, NeighborSampler
graph = dgl.rand_graph(1000, 8000)
graph.ndata["feat"] = torch.randn(1000, 16)
sampler = NeighborSampler([5, 5], prefetch_node_feats=["feat"])
sizes = [(blocks[0].srcdata["feat"].shape[0] == len(inputs), len(seeds)) for inputs, seeds, blocks in
         DataLoader(graph, torch.arange(1000), sampler, batch_size=100, shuffle=True)]
assert sizes == [(True, 100)] * 10, sizes
print("accuracy 1.0: as many batches as DGL makes")
"""


def run(folder: Path, *command: str) -> str:
    """Runs a command as in a shell that knows nothing of this checkout; returns what it printed."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHONPATH", "GNNLOAD"))}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    (folder / "log.txt").write_text(done.stdout + done.stderr)
    if done.returncode:
        raise RuntimeError(
            f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        )
    return done.stdout


def accuracy(printed: str) -> float:
    found = re.search(r"accuracy\D*([01]\.\d+)", printed)
    if found is None:
        raise RuntimeError(f"no accuracy was printed:\n{printed[-2000:]}")
    return float(found[1])


def shipped_data(folder: Path) -> float:
    settings = "--model SAGE --data.data Debian --data.sampler NeighborSampler --data.sampler.fanouts [10,5]"
    more = "--data.batch_size 1024 --trainer.max_epochs 3 --test_after_fit true"
    return accuracy(run(folder, f"{BIN}/gnnload", "fit", *settings.split(), *more.split()))


def tables(folder: Path) -> float:
    papers = runpy.run_path(str(ROOT / "tests" / "newcomers" / "papers.py"))
    topic_of = papers["write_tables"](folder)
    (folder / "run.yaml").write_text(papers["RUN_YAML"])
    for command in papers["COMMANDS"]:
        program, *arguments = command.split()
        run(folder, f"{BIN}/{program}", *arguments)
    return papers["share_right"](folder, topic_of)


def script_for_pyg(folder: Path) -> float:
    script = folder / "script.py"
    script.write_text((ROOT / "examples" / "pyg_one_import.py").read_text())
    return accuracy(run(folder, sys.executable, str(script)))


def script_for_dgl(folder: Path) -> float:
    (folder / "script.py").write_text(OF_DGL)
    return accuracy(run(folder, sys.executable, "script.py"))


def own_module(folder: Path) -> float:
    (folder / "my_model.py").write_text(OWN_MODULE)
    (folder / "my.yaml").write_text(OWN_CONFIG)
    return accuracy(run(folder, f"{BIN}/gnnload", "fit", "--config", "my.yaml"))


STEPS: tuple[tuple[str, Callable[[Path], float], tuple[str, ...], float], ...] = (
    ("gnnload fit on the data that ships", shipped_data, (), 0.6),
    ("tables to predictions by id", tables, ("pyarrow", "duckdb"), 0.8),
    ("a script for PyG, one line changed", script_for_pyg, ("torch_geometric",), 0.8),
    ("a script for DGL, one line changed", script_for_dgl, ("lightning_gnnload.dgl", "dgl"), 0.8),
    ("a LightningModule and a configuration", own_module, (), 0.6),
)
"""What is done, the modules that it needs, and the least accuracy that shows that something was learnt."""


def main() -> int:
    import lightning_gnnload

    at = Path(lightning_gnnload.__file__).parents[1]
    print(run(Path(tempfile.gettempdir()), f"{BIN}/gnnload", "--version").strip(), f"in {at}", sep="\n", flush=True)
    failed = at == ROOT
    if failed:
        print("This is the checkout, not an installed package.")
    with tempfile.TemporaryDirectory() as scratch:
        for number, (title, step, needs, least) in enumerate(STEPS):
            if missing := [name for name in needs if find_spec(name) is None]:
                print(f"  left out  {title}: needs {', '.join(missing)}", flush=True)
                continue
            (folder := Path(scratch, str(number))).mkdir()
            began = time.monotonic()
            try:
                reached = step(folder)
                verdict = f"{reached:.2f} right" if reached >= least else f"FAILED: {reached:.2f} right, not {least}"
            except (RuntimeError, AssertionError) as error:
                verdict = f"FAILED: {error}"
            failed |= verdict.startswith("FAILED")
            print(f"  {time.monotonic() - began:5.0f} s   {title}: {verdict}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
