"""The campaign's attacks see the harm that they look for, and a short campaign runs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import pytest

from lightning_gnnload import load_graph_data, save_graph_data
from tests.faults.campaign import __main__ as main
from tests.faults.campaign import damage, damaged, overwriters, resumes, stranger, versions
from tests.faults.campaign.attack import Attack, Verdict
from tests.faults.campaign.jobs import Jobs
from tests.guards import footprint
from tests.integration.scripts import launch


class Planted(Attack):
    """Sees good and bad by turns; one way cannot be tried."""

    name = "planted"
    good = frozenset({"all is well"})
    ways: ClassVar = ("one", "another", "impossible")

    def obstacle(self, way: str) -> str:
        return "no such thing here" if way == "impossible" else ""

    def trial(self, way: str, choose: Random, folder: Path) -> Verdict:
        folder.mkdir()
        what = {"one": "all is well", "another": "a crash"}[way]
        return Verdict(what, f"drew {choose.random()}", {"s": 1.0})


def run_planted(folder: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> list[main.Row]:
    monkeypatch.setitem(main.ATTACKS, "planted", Planted)
    options = main.parse(["--attacks", "planted", "--seed", "3", *arguments])
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return main.campaign([Planted(Jobs("script", folder))], options, folder)


def test_a_bad_trial_is_told_with_the_command_that_repeats_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = run_planted(tmp_path / "first", monkeypatch, "--trials", "3")
    said = capsys.readouterr().out
    assert sorted((row.way, row.is_good) for row in rows) == [("another", False), ("one", True)]
    assert "impossible: skipped: no such thing here" in said
    [bad] = [row for row in rows if not row.is_good]
    [drawn] = [line for line in said.splitlines() if "| drew" in line]
    again = f"--attacks planted --seed 3 --trial {bad.trial} --how script"
    assert f"seen: python -m tests.faults.campaign {again}" in said
    # A trial that depended on those before it would draw something else alone.
    repeated = run_planted(tmp_path / "second", monkeypatch, "--trial", str(bad.trial))
    assert [row.way for row in repeated] == ["another"]
    assert drawn in capsys.readouterr().out


def test_the_exit_code_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(main.ATTACKS, "planted", Planted)
    monkeypatch.setattr(main.network, "leave", lambda: None)  # it could not come back
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    arguments = ["--attacks", "planted", "--trials", "3", "--json", str(tmp_path / "told.json")]
    codes = [main.main([*arguments, "--ways", way]) for way in ("one", "another", "impossible")]
    # A campaign that could try nothing has shown nothing.
    assert codes == [0, 1, 1]
    assert json.loads((tmp_path / "told.json").read_text())["trials"] == []


def test_what_a_trial_leaves_is_seen(tmp_path: Path) -> None:
    before = footprint()
    (tmp_path / "half a folder").mkdir()
    with subprocess.Popen(["sleep", "600"]) as left:
        found = main.leftovers(tmp_path, before, grace_s=0.1)
        assert left.wait(10) < 0, "what is left must be ended, or it would disturb the next trial"
    assert [name for name in found if "half a folder" in name]
    assert [name for name in found if "child process still there" in name]


def test_a_mixture_made_by_hand_is_seen(tmp_path: Path) -> None:
    for version in (1, 2):
        save_graph_data(versions.data_of(version), tmp_path / str(version))
        assert versions.versions_in(load_graph_data(tmp_path / str(version))) == {version}
    for name in ("indptr", "indices", "x", "y", "train", "val", "test"):
        mixed = shutil.copytree(tmp_path / "1", tmp_path / name)
        shutil.copy(tmp_path / "2" / f"{name}.bin", mixed)
        assert versions.versions_in(load_graph_data(mixed)) == {1, 2}, name
    told = {"counts": {"loads": 5, "mixtures": 1}, "examples": {"mixtures": "[1, 2]"}}
    assert overwriters.judged(told).what not in overwriters.Overwriters.good


@pytest.mark.parametrize("way", damage.AT_REST)
def test_damage_damages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    monkeypatch.chdir(tmp_path)
    damaged.save("graph")
    for number in range(20):
        folder = shutil.copytree(damaged.FOLDER, tmp_path / str(number))
        named = damage.AT_REST[way](folder, Random(number))
        before = damaged.FOLDER / named.relative_to(folder)
        assert not named.is_file() or named.is_symlink() or named.read_bytes() != before.read_bytes(), number


SOUND = {"digests": ["a", "b", "c"]}


@pytest.mark.parametrize(
    ("told", "code", "is_good"),
    [
        (SOUND, 0, True),
        ({"digests": ["a"], "error": "GraphFormatError: ..."}, 0, True),
        ({"digests": ["a", "x"], "error": "GraphFormatError: ..."}, 0, False),
        ({"digests": ["a", "b", "x"]}, 0, False),
        ({}, -11, False),
        ({}, 1, False),
    ],
)
def test_damage_in_use_is_judged_by_the_batches(told: dict[str, Any], code: int, is_good: bool) -> None:
    assert (damage.judged_in_use(SOUND, told, code) in damage.Damage.good) == is_good


WHOLE = {"seen": [["train", 0, 0, step, step, f"{step}", "0"] for step in range(40)], "weights": "w"}


def cut(change: Callable[[list[Any]], Any]) -> dict[str, Any]:
    seen = json.loads(json.dumps(WHOLE["seen"][30:]))
    change(seen)
    return {"seen": seen, "weights": "w"}


@pytest.mark.parametrize(
    ("resumed", "is_same", "is_good"),
    [
        (cut(lambda seen: None), True, True),
        (cut(lambda seen: seen.pop(0)), True, False),  # a batch is left out
        (cut(lambda seen: seen[3].__setitem__(5, "other")), True, False),
        (cut(lambda seen: None) | {"weights": "other"}, True, False),
        ({"error": "CheckpointError: ...", "seen": []}, True, False),
        ({"error": "CheckpointError: ...", "seen": []}, False, True),
        (cut(lambda seen: None), False, False),
    ],
)
def test_resumed_runs_are_judged(resumed: dict[str, Any], is_same: bool, is_good: bool) -> None:
    assert (resumes.judged(WHOLE, resumed, 30, is_same=is_same) in resumes.Resumes.good) == is_good


def test_strangers_count_on_from_what_they_see(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = [(b"\0gnnload-0-0123456789abcdef-1-0", 5), (b"\0other-7", 1)]
    monkeypatch.setattr(stranger, "abstract_sockets", lambda: seen)
    names = set(stranger.Stranger(Random(0))._predicted("gnnload-{uid}-{run}-{session}-{number}"))
    assert {b"\0gnnload-0-0123456789abcdef-2-0", b"\0gnnload-0-0123456789abcdef-1-1", b"\0other-8"} <= names
    assert all(name.startswith(b"\0") for name in names)


@pytest.mark.timeout(400 * launch.PATIENCE)
def test_a_short_campaign_sees_nothing_bad(tmp_path: Path) -> None:
    arguments = ["--trials", "2", "--minutes", "0.7", "--json", str(tmp_path / "told.json")]
    command = [sys.executable, "-m", "tests.faults.campaign", *arguments]
    # Not a fork of the tests' server: it moves to a network of its own before anything else.
    done = subprocess.run(command, cwd=launch.ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(done.stdout)
    assert done.returncode == 0, done.stdout
    tried = {row["attack"] for row in json.loads((tmp_path / "told.json").read_text())["trials"]}
    for name in main.ATTACKS.keys() - tried:
        assert f"{name} 0: " in done.stdout or f"{name}: no time was left for trial 0" in done.stdout
