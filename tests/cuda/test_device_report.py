"""``gnnload doctor --gpu``, whole, on the emulated device: each part in its process, the file, and the words."""

from __future__ import annotations

import getpass
import json
import platform
import time
from pathlib import Path

import psutil
import pytest
import torch

from lightning_gnnload.plugin.commands import doctor
from lightning_gnnload.plugin.device_report import figures, parts
from lightning_gnnload.plugin.device_report import report as report_module
from lightning_gnnload.plugin.device_report.outcomes import run_part
from lightning_gnnload.plugin.device_report.parts import PARTS
from lightning_gnnload.plugin.device_report.report import FORMAT, DeviceReport

from .emulated_report import COMMAND, VARIABLE, emulated_examined
from .ranks import wait_until


def only(*names: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_module, "PARTS", {name: PARTS[name] for name in names})


pytestmark = pytest.mark.timeout(900)  # of seven processes that import torch


@pytest.fixture(scope="module")
def report() -> DeviceReport:
    """All parts, once."""
    said: list[str] = []
    report = DeviceReport.make(emulated_examined(), said.append)
    assert len(said) == 2 * len(PARTS)
    assert said[0].startswith("[1/7] What the device is (at most 600 s)")
    return report


def test_all_parts_run_to_their_end(report: DeviceReport) -> None:
    assert {name: outcome.why for name, outcome in report.parts.items() if outcome.outcome != "done"} == {}
    assert report.is_sound
    assert len(report.comparisons) > 25


def test_every_figure_of_the_h200_has_one_beside_it(report: DeviceReport) -> None:
    measured = {verdict.figure.name: verdict for verdict in report.verdicts}
    assert figures.H200.keys() <= measured.keys()
    assert all(verdict.figure.value > 0 for verdict in measured.values())
    for name, reference in figures.H200.items():
        assert (measured[name].h200, measured[name].figure.unit) == (reference.value, reference.unit)
        assert (measured[name].answer == "not judged") == (reference.bound_by == "")


def test_processes_read_each_others_memory_or_say_why_not(report: DeviceReport) -> None:
    answers = report.parts["sharing"].result["read by another process on"]
    assert answers["the same device"] == "equal"
    assert "cudaErrorPeerAccessUnsupported" in answers["device 1"]
    assert report.parts["sharing"].result["freed afterwards"]
    assert any("Processes cannot share its memory (read on device 1)" in line for line in report.lines())


def test_the_file_holds_all_of_it_and_no_names(report: DeviceReport, tmp_path: Path) -> None:
    report.save(tmp_path / "gpu.json")
    assert [file.name for file in tmp_path.iterdir()] == ["gpu.json"]
    text = (tmp_path / "gpu.json").read_text()
    values = json.loads(text)
    assert values["format"] == FORMAT
    assert values["parts"].keys() == PARTS.keys()
    assert values["summary"] == list(report.lines())
    for name in {platform.node(), getpass.getuser(), str(Path.home()), str(Path.cwd())} - {"root"}:
        assert f'"{name}' not in text
        assert f"{name}/" not in text


@pytest.mark.parametrize(
    ("how", "outcome", "why"),
    [
        ("hang", "stopped", "it took longer than 20 s"),
        ("crash", "failed", "its process ended with signal SIGSEGV: no room at /home/somebody/"),
        ("print", "done", ""),
    ],
)
def test_a_part_that_breaks_is_told_and_leaves_nothing_behind(
    how: str, outcome: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, f"attributes {how}")
    began = time.monotonic()
    result = run_part([*COMMAND, "attributes", "0"], 20 if how == "hang" else 300)
    assert result.outcome == outcome
    assert result.why.startswith(why)
    assert time.monotonic() - began < 300
    wait_until(lambda: not any(VARIABLE in (p.info["environ"] or ()) for p in psutil.process_iter(["environ"])))


def test_what_breaks_is_no_sound_report_but_a_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "attributes crash")
    only("attributes", "host costs", monkeypatch=monkeypatch)
    report = DeviceReport.make(emulated_examined(), lambda line: None)
    assert not report.is_sound
    assert report.parts["host costs"].outcome == "done"
    (line,) = [line for line in report.lines() if "attributes" in line]
    assert "SIGSEGV" in line
    assert "/home/somebody" not in line


def test_a_device_that_cannot_be_opened_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    examined = parts.ExaminedDevice(command=(*COMMAND[:2], "lightning_gnnload.plugin.device_report"), patience=10)
    only("host costs", monkeypatch=monkeypatch)
    report = DeviceReport.make(examined, lambda line: None)
    assert report.parts["host costs"].outcome == ("done" if torch.cuda.is_available() else "failed")
    assert "CudaUnavailableError" in report.parts["host costs"].why or torch.cuda.is_available()


def test_the_command_writes_the_file_and_says_what_is_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(doctor, "ExaminedDevice", emulated_examined)
    only("attributes", "host costs", monkeypatch=monkeypatch)
    assert doctor.main(["--gpu", "--out", str(tmp_path / "gpu.json")]) == 0
    said = capsys.readouterr()
    assert f"Written to {tmp_path / 'gpu.json'}" in said.out
    assert "[2/2] Calls of the host" in said.err
    assert json.loads((tmp_path / "gpu.json").read_text())["is_sound"]


def test_without_such_a_gpu_no_file_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(doctor, "_NVIDIA_DRIVER", tmp_path / "none")
    assert doctor.main(["--gpu"]) == 1
    assert "GPU 0 cannot be examined: none; everything runs on the CPU" in capsys.readouterr().err
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert doctor.main(["--gpu", "2"]) == 1
    assert "there are 2 GPUs, numbered from 0" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
    with pytest.raises(SystemExit) as ended:
        doctor.main(["--out", "x.json"])
    with pytest.raises(SystemExit):
        doctor.main(["--gpu", "--json"])
    assert ended.value.code == 2
