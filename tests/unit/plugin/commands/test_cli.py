"""``gnnload``: help that waits for nothing, and commands and options that are almost right."""

from __future__ import annotations

import os
import pickle
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

import pytest
import torch

from lightning_gnnload import __version__
from lightning_gnnload.plugin.accelerate import Accelerate
from lightning_gnnload.plugin.commands import cli, fit
from lightning_gnnload.plugin.commands.fit import GraphCLI
from lightning_gnnload.plugin.compat import pl
from lightning_gnnload.plugin.module.datamodule import GraphDataModule

COMMANDS = ("fit", "validate", "test", "predict", "infer", "conform", "cache", "partition", "plan", "doctor")


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> object:
    """The exit status."""
    monkeypatch.setattr(sys, "argv", ["gnnload", *arguments])
    monkeypatch.setattr(sys, "path", list(sys.path))
    try:
        cli.main()
    except SystemExit as ended:
        return ended.code
    return 0


def test_ctrl_c_while_a_command_is_imported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "import_module", lambda name: os.kill(os.getpid(), signal.SIGINT))
    assert run(monkeypatch, "doctor") == 130
    assert capsys.readouterr().err == "gnnload doctor: ended by SIGINT\n"


def test_help_names_all_commands_and_loads_neither_torch_nor_numpy() -> None:
    code = "import sys\nfrom lightning_gnnload.plugin.commands.cli import main\nmain()\n"
    code += "sys.exit(bool({'numpy', 'torch', 'yaml', 'rich'} & {*sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert all(f"\n  {command} " in done.stdout for command in COMMANDS)


def test_version(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "--version") == 0
    told = capsys.readouterr().out
    assert told.startswith(f"gnnload {__version__} (Python {sys.version_info.major}.")
    assert f", torch {torch.__version__}, " in told
    assert " pytorch-lightning " in told or " lightning " in told


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["fti"], "there is no command 'fti'; did you mean fit?"),
        (["Partition"], "there is no command 'Partition'; did you mean partition?"),
        (["study"], "there is no command 'study'."),
        ([], "give a command."),
    ],
)
def test_a_wrong_command_is_told_with_all_that_there_are(
    given: list[str], told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, *given) == 2
    said = capsys.readouterr().err
    assert said.endswith(f"gnnload: {told}\n")
    assert all(f"\n  {command} " in said for command in COMMANDS)


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["fit", "--data.smapler", "NeighborSampler"], "--data.sampler"),
        (["predict", "--otu", "FILE"], "--out"),
        (["conform", "--sampler=S", "--promsie={}"], "--promise"),
        (["cache", "--data.data", "Synthetic", "--tabel", "x"], "--table"),
        (["cache", "--data.data", "Synthetic", "--data.bathc_size", "3"], "--data.batch_size"),
        (["partition", "Debian", "--part", "2"], "--parts"),
        (["doctor", "--jsn"], "--json"),
    ],
)
def test_a_wrong_option_is_told_with_the_nearest(
    arguments: list[str], meant: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, *arguments) == 2
    (last,) = capsys.readouterr().err.splitlines()[-1:]
    assert last.endswith(f"; did you mean {meant}?")


@pytest.mark.parametrize("in_file", [False, True])
def test_an_option_that_was_renamed_is_told_by_its_new_name(
    in_file: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.yaml").write_text("predictions: FILE\n")
    given = ["--config", str(tmp_path / "run.yaml")] if in_file else ["--predictions", "FILE"]
    assert run(monkeypatch, "predict", *given) == 2
    assert capsys.readouterr().err.endswith("; --predictions is now called --out\n")


def test_without_kernels_a_command_says_so_in_a_line() -> None:
    code = "import sys; sys.modules['lightning_gnnload.ops._kernels'] = None\n"
    code += "from lightning_gnnload.ops import installed; installed._compiled = lambda: iter(())\n"
    code += "from lightning_gnnload.plugin.commands.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code, "cache", "--help"], capture_output=True, text=True)
    assert done.returncode == 1
    assert re.fullmatch(r"gnnload: KernelsMissingError: .*compiled.*kernels.*\n", done.stderr)


def test_options_and_completions_before_a_command_are_lightnings(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[list[str]] = []
    fit = import_module("lightning_gnnload.plugin.commands.fit")
    monkeypatch.setattr(fit, "main", lambda arguments: ran.append(sys.argv[1:]) or 0)
    assert run(monkeypatch, "--config", "run.yaml", "fit") == 0
    monkeypatch.setenv("_ARGCOMPLETE", "1")
    assert run(monkeypatch) == 0
    assert ran == [["--config", "run.yaml", "fit"], []]


def test_spawned_ranks_get_the_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["gnnload"])
    data = {"data": "Debian", "sampler": {"class_path": "NeighborSampler", "init_args": {"fanouts": [2]}}}
    made = GraphCLI(pl.LightningModule, GraphDataModule, run=False, args={"data": data, "trainer": {"logger": False}})
    assert pickle.loads(pickle.dumps(made.parser)).error.args[0].prog == made.parser.prog  # noqa: S301


def test_fit_keeps_freed_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    events = []

    @contextmanager
    def kept() -> Iterator[bool]:
        events.append("kept")
        yield True
        events.append("given back")

    monkeypatch.setattr(fit.malloc, "freed_memory_kept", kept)
    monkeypatch.setattr(fit, "GraphCLI", lambda *_, **__: events.append("run"))
    assert fit.main([]) == 0
    assert events == ["kept", "run", "given back"]


@pytest.mark.parametrize(("value", "bf16"), [(False, []), (True, [False]), ("bf16", [True])])
def test_accelerate_adds_its_callback(monkeypatch: pytest.MonkeyPatch, value: object, bf16: list[bool]) -> None:
    monkeypatch.setattr(sys, "argv", ["gnnload"])
    data = {"data": "Debian", "sampler": {"class_path": "NeighborSampler", "init_args": {"fanouts": [2]}}}
    config = {"data": data, "trainer": {"logger": False}, "accelerate": value}
    made = GraphCLI(pl.LightningModule, GraphDataModule, run=False, args=config)
    assert [callback.bf16 for callback in made.trainer.callbacks if isinstance(callback, Accelerate)] == bf16
