"""Builds the package on a machine with a GPU, examines it, tests it and measures it, in one command of five minutes.

    python scripts/gpu_report.py [--out FOLDER] [--minutes 5] [--steps doctor tests ...] [--wheels FOLDER] [--dry-run]

``make gpu-report`` runs it in the environment of the repository, where nothing is left to build. Elsewhere it builds
with what the interpreter has (torch, CuPy, scikit-build-core, nanobind, pytest-xdist), without a network; ``--wheels``
are installed beside that. Each step is apart: it prints as it goes, has a time limit, and leaves FOLDER/STEP.txt, by
default in $OUT, else build/gpu-report; FOLDER/gnnload-gpu.json is the report of ``gnnload doctor --gpu``. The exit
status is 1 where a step failed, or found no time.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TextIO

ROOT = Path(__file__).resolve().parents[1]
ENDING_S = 5.0  # for pytest to say what it has seen
LEAST_S = 5.0  # a step with less is not begun


@dataclass(frozen=True)
class Step:
    """What runs, and for how long at most."""

    name: str
    limit_s: float
    command: Sequence[str]
    environment: dict[str, str] = field(default_factory=dict)


def steps(python: str, out: Path, cores: int) -> list[Step]:
    """All steps, in their order: what is worth most comes first."""
    pytest = [python, "-m", "pytest", "-p", "no:cacheprovider", "-q", "--tb=short", "--timeout", "60"]
    # Those of the emulated device say nothing of this one, and compute-sanitizer takes minutes.
    left_out = ["-k", "not emulated and not sanitizer", "--ignore", "tests/cuda/test_device_report.py"]
    workers = ["--numprocesses", str(max(min(cores - 2, 12), 1)), "--dist", "load"]
    one_thread = {"OMP_NUM_THREADS": "1"}
    doctor = [python, "-m", "lightning_gnnload.plugin.commands.cli", "doctor", "--gpu"]
    return [
        Step("build", 90, [python, "-m", "pip", "install", "-q", "-e", ".", "--no-build-isolation", "--no-deps"]),
        Step("doctor", 130, [*doctor, "--out", str(out / "gnnload-gpu.json")]),
        Step("tests", 100, [*pytest, "tests/gpu", "tests/cuda", *left_out, *workers], one_thread),
        Step("gather", 40, [python, "-m", "tests.benchmarks.gpu_gather", "--turns", "10"]),
        Step("sampling", 40, [python, "-m", "tests.benchmarks.gpu_sampling", "--turns", "20"]),
        Step("epochs", 60, [python, "-m", "tests.benchmarks.gpu_epochs", "--quick"]),
        Step("sanitizer", 60, [*pytest, "tests/gpu/test_sanitizer.py", "-k", "planted"], one_thread),
    ]


def run(step: Step, limit_s: float, out: Path) -> str:
    """Runs a step and prints what it says; returns "done", or what became of it."""
    with open(out / f"{step.name}.txt", "w") as log:
        process = subprocess.Popen(
            step.command,
            cwd=ROOT,
            env={**os.environ, **step.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        assert process.stdout is not None
        tee = threading.Thread(target=_tee, args=(process.stdout, log), daemon=True)
        try:
            tee.start()
            status: int | None = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            status = None
            with suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(process.pid, signal.SIGINT)
                process.wait(ENDING_S)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        tee.join(ENDING_S)  # what left the session may hold the pipe
    return "done" if status == 0 else f"stopped after {limit_s:.0f} s" if status is None else f"status {status}"


def _tee(lines: TextIO, log: TextIO) -> None:
    with suppress(ValueError):  # the log is closed: see above
        for line in lines:
            print("  " + line, end="", flush=True)
            log.write(line)
            log.flush()


def is_built() -> bool:
    """Whether the kernels of this repository can be imported."""
    probe = f"import lightning_gnnload.ops, sys; sys.exit(not lightning_gnnload.__file__.startswith({str(ROOT)!r}))"
    return subprocess.run([sys.executable, "-c", probe], capture_output=True, cwd=ROOT).returncode == 0


def sees_gpu() -> bool:
    """Whether torch can use a GPU here."""
    probe = "import torch, sys; sys.exit(not torch.cuda.is_available())"
    return subprocess.run([sys.executable, "-c", probe], capture_output=True, cwd=ROOT).returncode == 0


def prepare(out: Path, wheels: Path | None) -> None:
    """Sets what all steps see: wheels, and no mpi4py, by which Lightning would start a daemon that outlives them."""
    folders = [str(ROOT / "tests" / "hidden")]
    if wheels is not None:
        beside = out / "wheels"
        install = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target", str(beside)]
        subprocess.run([*install, *map(str, sorted(wheels.glob("*.whl")))], check=True)
        folders.append(str(beside))
    os.environ["PYTHONPATH"] = os.pathsep.join([*folders, *filter(None, [os.environ.get("PYTHONPATH")])])
    os.environ["PYTHONUNBUFFERED"] = "1"
    os.environ.setdefault("CMAKE_BUILD_PARALLEL_LEVEL", str(os.cpu_count() or 1))


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python scripts/gpu_report.py", description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT") or ROOT / "build" / "gpu-report"))
    parser.add_argument("--minutes", type=float, default=5.0, help="for all steps together")
    parser.add_argument("--steps", nargs="+", metavar="STEP", help="some of them; all by default")
    parser.add_argument("--wheels", type=Path, metavar="FOLDER", help="wheels to install beside the package")
    parser.add_argument("--dry-run", action="store_true", help="print the commands, and run none")
    options = parser.parse_args(arguments)
    out = options.out.resolve()
    known = steps(sys.executable, out, len(os.sched_getaffinity(0)))
    if strangers := set(options.steps or ()) - {step.name for step in known}:
        parser.error(f"--steps {' '.join(sorted(strangers))}: known are {' '.join(step.name for step in known)}")
    chosen = [step for step in known if options.steps is None or step.name in options.steps]
    if options.dry_run:
        for step in chosen:
            print(f"{step.name} (at most {step.limit_s:g} s): {shlex.join(step.command)}")
        return 0
    out.mkdir(parents=True, exist_ok=True)
    prepare(out, options.wheels)
    began, results = time.monotonic(), {}
    for step in chosen:
        left_s = 60 * options.minutes - (time.monotonic() - began)
        print(f"==> {step.name}, {time.monotonic() - began:.0f} s after the beginning", flush=True)
        if step.name == "build" and is_built():
            results[step.name] = "done: it was built"
        elif step.name == "tests" and find_spec("xdist") is None:
            results[step.name] = "not run: pytest-xdist is missing"
        elif left_s < LEAST_S:
            results[step.name] = "not run: no time was left"
        elif step.name not in ("build", "doctor") and not sees_gpu():  # doctor says why
            results[step.name] = "not run: torch sees no GPU"
        else:
            results[step.name] = run(step, min(step.limit_s, left_s), out)
        print(f"==> {step.name}: {results[step.name]}", flush=True)
    print(
        f"\nAfter {time.monotonic() - began:.0f} s, in {out}:", *(f"  {k}: {v}" for k, v in results.items()), sep="\n"
    )
    return int(not all(result.startswith("done") for result in results.values()))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that what runs ends, too
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit("\ngpu_report: ended by a signal; each step that ran has left its file")
