"""A short campaign on owners and on trainings over them, and what tells its good trials from bad ones."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.cluster.delay import compiler
from tests.faults.campaign.cases import Client, expected
from tests.faults.campaign.trainings import SAME, OwnedJob
from tests.integration.scripts import launch

NUM_TRIALS, SEED = 6, 43


class Written(Client):
    """A client that has ended, after writing these lines."""

    def __init__(self, file: Path, lines: list[dict[str, Any]], num_steps: int, code: int = 0) -> None:
        self.written, self.num_steps = file, num_steps
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        self.process = SimpleNamespace(wait=lambda _: code, poll=lambda: code)


@pytest.mark.parametrize(
    ("change", "came"),
    [
        (lambda lines: lines, "the same batches"),
        (lambda lines: [*lines[:1], {"digest": "another"}, *lines[2:]], "other batches"),
        (lambda lines: lines[1:], "other batches"),
        (lambda lines: [*lines[:2], lines[-1]], "ended early"),
        (lambda lines: [*lines[:2], {"end": "OwnerLostError: no owner"}], "OwnerLostError"),
        (lambda lines: [{"digest": "another"}, {"end": "OwnerLostError: no owner"}], "other batches"),
        (lambda lines: lines[:-1], "crashed (-11)"),
    ],
)
def test_clients_are_judged_by_all_they_wrote(tmp_path: Path, change: Any, came: str) -> None:
    lines = [*({"digest": digest} for digest in expected(3)), {"end": "ended"}]
    assert Written(tmp_path / "client", change(lines), 3, code=-11).ends() == came


@pytest.mark.parametrize(
    ("records", "came"),
    [
        ({"0": (["a", "b"], "w")}, SAME),
        ({"0": (["b"], "w")}, SAME),  # resumed
        ({"0": (["b"], "v")}, "other batches or weights"),
        ({"0": (["x", "b"], "w")}, "other batches or weights"),
        ({"0": ([], "w")}, "other batches or weights"),
        ({}, "other batches or weights"),
    ],
)
def test_trainings_are_judged_by_batches_and_weights(tmp_path: Path, records: dict[str, Any], came: str) -> None:
    job = OwnedJob("alone", tmp_path, "head", tmp_path, tmp_path)
    (tmp_path / "machine-0").mkdir()
    for rank, (seen, weights) in records.items():
        record = {"seen": seen, "weights": weights}
        (tmp_path / "machine-0" / f"record-{rank}.json").write_text(json.dumps(record))
    ended: Any = SimpleNamespace(wait=lambda _: 0.0, returncode=0)
    assert job.came([ended], {"record-0.json": {"seen": ["a", "b"], "weights": "w"}}) == came


@pytest.mark.matrix
@pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler, for links that are slow or cut")
@pytest.mark.timeout(300 * launch.PATIENCE)
def test_a_short_campaign_sees_nothing_bad(tmp_path: Path) -> None:
    arguments = ["--attacks", "owners", "trainings", "--trials", str(NUM_TRIALS), "--seed", str(SEED)]
    command = [sys.executable, "-m", "tests.faults.campaign", *arguments, "--json", str(tmp_path / "told.json")]
    # Not a fork of the tests' server: it moves to a network of its own before anything else.
    done = subprocess.run(command, cwd=launch.ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(done.stdout)
    assert done.returncode == 0, done.stdout
    assert (
        len(json.loads((tmp_path / "told.json").read_text())["trials"]) + done.stdout.count(": skipped: ")
        == 2 * NUM_TRIALS
    )
