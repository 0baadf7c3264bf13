"""``gnnload plan``: what it writes can be run, and comes true; and what it says of arguments that cannot work."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from lightning_gnnload.host.memory import resident_memory
from lightning_gnnload.pipeline.forecast.costs import MessageCosts
from lightning_gnnload.pipeline.forecast.machine import Machine
from lightning_gnnload.pipeline.forecast.memory import trainer_bytes
from lightning_gnnload.pipeline.forecast.plan import Plan, read_plan
from lightning_gnnload.plugin.commands import fit as fit_command
from lightning_gnnload.plugin.commands import plan as plan_command
from lightning_gnnload.plugin.planning import measure
from lightning_gnnload.plugin.planning.measure import RunMeasurement, _begin_training
from tests.unit.pipeline.forecast.runs import measured_run
from tests.unit.pipeline.forecast.test_recorded import trace_of

CONFIG = """
seed_everything: 3
trainer:
  accelerator: cpu
  devices: 1
  max_epochs: 2
  limit_val_batches: 0
  gradient_clip_val: 0.5
  logger: false
  enable_checkpointing: false
  enable_progress_bar: false
  default_root_dir: ROOT
model: {class_path: SAGE, init_args: {hidden: 128}}
data:
  data:
    class_path: Synthetic
    init_args: {kind: citation, num_nodes: 4000, num_edges: 40000, num_features: 32, train_fraction: 0.5, root: ROOT}
  sampler: {class_path: NeighborSampler, init_args: {fanouts: [8, 4]}}
  batch_size: 256
"""


def run(command: Any, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["gnnload", *arguments])
    return command.main(arguments[1:])


def test_a_plan_comes_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    config, machine, out = (tmp_path / name for name in ("run.yaml", "machine.yaml", "out"))
    config.write_text(CONFIG.replace("ROOT", str(tmp_path)))
    machine.write_text("{cores: 1, memory_gib: 64}")  # on which no rank has to be started for the test
    monkeypatch.setattr(measure, "find_spec", lambda library: None)  # to import DGL takes seconds
    events: list[str] = []

    @contextmanager
    def kept() -> Iterator[bool]:
        events.append("kept")
        yield True
        events.append("back")

    monkeypatch.setattr(plan_command, "freed_memory_kept", kept)
    run_measurement = RunMeasurement.run
    monkeypatch.setattr(RunMeasurement, "run", lambda self: (events.append("measured"), run_measurement(self))[1])
    arguments = ["--config", str(config), "--machine", str(machine), "--data.seed", "5", "--seconds", "1"]
    assert run(plan_command, monkeypatch, "plan", *arguments, "--out", str(out / "plan.png")) == 0
    assert events == ["kept", "measured", "back"]  # as gnnload fit has it, which makes steps faster
    printed = " ".join(capsys.readouterr().out.split())
    for text in (
        "A mini-batch of 256 seeds: sampling",
        "Conversion to each batch format (and an epoch of the best layout with it): blocks",
        "limited by",
        "yours",
    ):
        assert text in printed
    assert (out / "plan.png").read_bytes().startswith(b"\x89PNG")
    plan = read_plan(out / "plan.json")
    measured = plan.measured
    assert {*measured.works} == {256, 128}
    assert measured.works[256].sample_ms > 0
    assert measured.sizes[128].num_nodes < measured.sizes[256].num_nodes
    assert (measured.data.num_nodes, measured.data.row_bytes, measured.data.mapped) == (4000, 128, True)
    assert measured.cache.hit_rates[0] < measured.cache.hit_rates[-1] < 1
    # The written configuration differs in ranks and threads alone.
    written = yaml.safe_load((out / "plan.yaml").read_text())
    assert (written["data"]["seed"], written["trainer"]["gradient_clip_val"]) == (5, 0.5)
    assert written["trainer"]["callbacks"][0]["init_args"]["plan"] == str(out / "plan.json")

    _begin_training(torch.device("cpu"))
    before = resident_memory().private
    assert run(fit_command, monkeypatch, "fit", "--config", str(out / "plan.yaml")) == 0
    assert f"Planned for {plan.recommended.layout}: epoch" in " ".join(capsys.readouterr().out.split())
    report = tmp_path / "where_the_time_went.json"
    actual = json.loads(report.read_text())
    # What planning has left in this process is none of the run's.
    took_bytes = measured.data.process_bytes + actual["peak_private_bytes"] - before
    assert trainer_bytes(plan.recommended.layout, plan.recommended.parts) == pytest.approx(took_bytes, rel=0.1)
    assert actual["planned"]["step"]["predicted"] == pytest.approx(plan.recommended.step.step_ms)

    assert run(plan_command, monkeypatch, "plan", "--compare", str(report), "--out", str(out / "plan.json")) == 0
    assert "Predicted beside actual" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give --config FILE"),
        (["--config", "run.yaml", "--seconds", "0"], "seconds from 1 to 3600"),
        (["--config", "run.yaml", "--out", "plan.txt"], "ends in .json, .yaml or .png"),
        (["--config", "run.yaml", "--link", "fast"], "a rate such as 100Gb, 500Mb or 12GB/s is needed"),
        (["--config", "run.yaml", "--placement", "here"], "invalid choice: 'here'"),
        (["--compare", "report.json", "--data.seed", "1"], "unrecognized arguments: --data.seed 1"),
        (["--measured", "plan.json", "--data.seed", "1"], "unrecognized arguments: --data.seed 1"),
    ],
)
def test_arguments_that_cannot_work(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        plan_command.main(arguments)
    assert end.value.code == 2
    assert message in capsys.readouterr().err


def test_files_that_are_not_there_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = str(tmp_path / "none.yaml")
    assert plan_command.main(["--config", "run.yaml", "--machine", missing]) == 2
    assert f"PlanError: {missing} cannot be read" in capsys.readouterr().err
    assert plan_command.main(["--compare", missing, "--out", missing]) == 2
    assert "PlanError: the plan" in capsys.readouterr().err


@pytest.fixture
def planned(tmp_path: Path) -> Path:
    file = tmp_path / "plan.json"
    machine = Machine(cores=1, memory_gib=1)
    values = Plan.of(measured_run(), machine).to_json() | {"costs": asdict(MessageCosts(ask_ms=1.0))}
    file.write_text(json.dumps(values))
    return file


def test_an_earlier_plan_is_simulated_without_measuring(
    planned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(plan_command, "RunMeasurement", None)
    monkeypatch.setattr(plan_command, "measure_costs", None)
    machines = ["--machines", "4", "--link", "4Gb", "--hot", "0.05", "--owners", "2", "--staleness", "1"]
    arguments = ["--measured", str(planned), *machines, "--out", str(tmp_path / "out" / "plan")]
    assert run(plan_command, monkeypatch, "plan", *arguments) == 0
    printed = " ".join(capsys.readouterr().out.split())
    # Of one GiB of memory, neither a copy nor a half of graph and rows has room.
    assert "Take a part on each machine, whose ranks sample together:" in printed
    assert "A copy of the graph on each machine: does not fit:" in printed
    assert "Links twice as fast would give:" in printed
    assert "One more GB of hot rows on each machine would give:" in printed
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["plan.machines.png"]

    # The stages of a trace take their places: steps of 400 ms, of a sixteenth of the seeds.
    (tmp_path / "trace.json").write_text(json.dumps(trace_of([400.0] * 6)))
    assert run(plan_command, monkeypatch, "plan", *arguments, "--trace", str(tmp_path / "trace.json")) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "training, torch threads 1 6400.00 ms" in printed
    assert "Links twice as fast would give: hardly anything." in printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--trace", "none.json"], "PlanError: the trace none.json cannot be read"),
        (["--costs", "none.json"], "PlanError: the costs none.json cannot be read"),
        (["--replicas", "2"], "PlanError: replicas is 2 with 3 owners"),
        (["--sampler-nodes", "-1"], "PlanError: sampler_nodes is -1"),
        (["--staleness", "-1"], "PlanError: --staleness is -1"),
    ],
)
def test_what_no_machines_can_be(
    arguments: list[str], message: str, planned: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--measured", str(planned), "--machines", "2", "--owners", "3"]
    assert plan_command.main([*given, *arguments]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
