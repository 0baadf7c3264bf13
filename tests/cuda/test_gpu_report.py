"""``make gpu-report``, as far as it goes without a GPU: steps are apart, limited, and leave what they said."""

from __future__ import annotations

import importlib.util
import re
import shlex
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from types import ModuleType

import psutil
import pytest
import torch

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "gpu_report.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gpu_report", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    sys.modules["gpu_report"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def report(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, timeout=150, cwd=ROOT
    )


def test_all_that_it_names_is_there() -> None:
    shown = report("--dry-run")
    assert shown.returncode == 0
    limits = [float(limit) for limit in re.findall(r"at most (\d+) s", shown.stdout)]
    assert sum(limits[:3]) > 300 > limits[1] + limits[2]  # with a build there, both have all of their time
    for line in shown.stdout.splitlines():
        command = shlex.split(line.partition(": ")[2])
        for name in command:
            if name.startswith("tests/"):
                assert (ROOT / name).exists()
        module = command[command.index("-m") + 1]
        assert importlib.util.find_spec(module) is not None


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU, for which it takes minutes")
def test_without_a_gpu_it_says_so_step_by_step(tmp_path: Path) -> None:
    done = report("--out", str(tmp_path), "--steps", "build", "doctor", "gather")
    assert done.returncode == 1
    assert "==> build: done: it was built" in done.stdout
    assert "==> doctor: status 1" in done.stdout
    assert "GPU 0 cannot be examined" in (tmp_path / "doctor.txt").read_text()
    assert "==> gather: not run: torch sees no GPU" in done.stdout
    assert not (tmp_path / "gnnload-gpu.json").exists()


def test_the_tests_that_it_runs_are_found(script: ModuleType, tmp_path: Path) -> None:
    (step,) = (step for step in script.steps(sys.executable, tmp_path, 16) if step.name == "tests")
    command = [*step.command, "--collect-only"]
    del command[command.index("--numprocesses") : command.index("load") + 1]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=150, cwd=ROOT).stdout
    assert "tests/gpu/test_bit_identity.py::" in shown
    assert "tests/cuda/test_gather.py::" in shown
    assert "emulated" not in shown
    assert "sanitizer" not in shown


def test_a_step_that_hangs_is_asked_to_end_and_then_ended(script: ModuleType, tmp_path: Path) -> None:
    polite = "import time\nprint('begun', flush=True)\ntry: time.sleep(60)\nexcept KeyboardInterrupt: print('summary')"
    step = script.Step("polite", 60, [sys.executable, "-c", polite])
    began = time.monotonic()
    assert script.run(step, 2, tmp_path) == "stopped after 2 s"
    assert (tmp_path / "polite.txt").read_text() == "begun\nsummary\n"
    rude = "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\ntime.sleep(60)"
    script.ENDING_S = 0.5
    assert script.run(script.Step("rude", 60, [sys.executable, "-c", rude]), 1, tmp_path) == "stopped after 1 s"
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_and_its_step(number: signal.Signals, tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "--out", str(tmp_path), "--steps", "doctor"]
    restored = partial(signal.signal, signal.SIGINT, signal.default_int_handler)  # which shells may have had ignored
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=restored) as running:
        while not (steps := [each for each in psutil.Process(running.pid).children() if "--gpu" in each.cmdline()]):
            time.sleep(0.02)
        time.sleep(0.5)
        running.send_signal(number)
        assert "ended by a signal" in running.communicate(timeout=60)[1]
    assert running.returncode == 1
    assert not steps[0].is_running()


def test_a_step_that_fails_says_its_status(script: ModuleType, tmp_path: Path) -> None:
    step = script.Step(
        "bad", 60, [sys.executable, "-c", "import os, sys; sys.exit(f'{os.environ[\"X\"]}')"], {"X": "no"}
    )
    assert script.run(step, 30, tmp_path) == "status 1"
    assert (tmp_path / "bad.txt").read_text() == "no\n"


def test_no_step_is_begun_without_time(tmp_path: Path) -> None:
    done = report("--out", str(tmp_path), "--steps", "gather", "--minutes", "0")
    assert (done.returncode, "==> gather: not run: no time was left" in done.stdout) == (1, True)
    assert report("--steps", "nothing").returncode == 2


def test_mpi_is_hidden_from_all_steps(script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "there")
    monkeypatch.setenv("PYTHONUNBUFFERED", "")
    monkeypatch.setenv("CMAKE_BUILD_PARALLEL_LEVEL", "1")
    script.prepare(tmp_path, None)
    step = script.Step("mpi", 60, [sys.executable, "-c", "import mpi4py"])
    assert script.run(step, 30, tmp_path) == "status 1"
    assert "ImportError: mpi4py is hidden" in (tmp_path / "mpi.txt").read_text()
