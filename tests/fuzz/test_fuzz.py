"""Some fuzz cases of every target, always the same; and faults on purpose, which must be found."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import pytest

from lightning_gnnload import ops
from lightning_gnnload.errors import SeedError
from tests.fuzz import __main__ as command
from tests.fuzz import case
from tests.fuzz.case import Finding, Target, limits, run_case
from tests.fuzz.targets import TARGETS
from tests.fuzz.targets.arguments import OPS
from tests.runif import RunIf


@pytest.mark.hunt
@pytest.mark.parametrize(
    "target", [pytest.param(target, marks=RunIf(extras=target.extras), id=name) for name, target in TARGETS.items()]
)
def test_only_results_and_our_errors_come_out(target: Target, tmp_path: Path) -> None:
    with limits():
        outcomes = {run_case(target, 0, number, tmp_path) for number in range(target.num_quick)}
    # Where all is refused, or all is taken, little can be found.
    assert outcomes == {True, False}


def test_every_op_is_a_target() -> None:
    # What they return, or are made by a target here; and what takes no argument from outside.
    others = {
        "ARENA_ALIGNMENT",
        "LAYER_METHODS",
        "WHOLE_LAYER",
        "ArenaTooSmall",
        "HopLayout",
        "SampleLayout",
        "AliasTable",
    }
    others |= {"Adjacency", "Draw"}
    others |= {
        "TypedLists",
        "are_type_numbers",
        "InducedEdges",
        "as_integer",
        "check_type_of_starts",
        "check_visits",
        "instruction_sets",
        "use_instruction_set",
    }
    others |= {"MAX_SHARDS", "SLOT_BITS", "SLOT_BYTES", "EVICTIONS", "MOST_IN_FLIGHT", "watch_map", "unwatch_map"}
    others |= {"MAX_IDS", "NULL", "UNKNOWN", "FoundRows", "NO_TIME", "Bucket", "Records", "SpillLists"}
    others |= {"LineItems", "LineUnits", "ENDS", "GOES_ON", "RESTARTS", "STUCK"}
    others |= {"DealtSeeds", "MAX_CLOSED_PARTS", "MAX_LINKED_BLOCKS"}
    others |= {"CORRUPT", "Corrupt", "num_corrupt_dst", "MAX_EDGE_TYPES", "MAX_NODES", "WalkRuns"}
    others |= {"EdgeList", "NodesOfType", "Runs", "SplitEdgeList", "SplitEdges", "SplitNodes"}
    missing = set(ops.__all__) - others - OPS.keys()
    assert not missing, "add them to tests/fuzz/sampling_ops.py or data_ops.py, with arguments that are right"


def raises_another_error(random: Random, folder: Path) -> None:
    raise KeyError("shape")


def warns(random: Random, folder: Path) -> None:
    warnings.warn("invalid value encountered in cast", RuntimeWarning, stacklevel=1)


def never_ends(random: Random, folder: Path) -> None:
    while True:
        try:
            while True:
                pass
        except Exception:  # as a reader may have, around a parser
            continue


def asks_for_much_memory(random: Random, folder: Path) -> None:
    np.empty(1 << 31, np.uint8)


@pytest.mark.parametrize("fault", [raises_another_error, warns, never_ends, asks_for_much_memory])
def test_a_fault_is_found_and_named(
    fault: Callable[[Random, Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(case, "CASE_SECONDS", 0.2)
    again = "python -m tests.fuzz --target planted --seed 5 --case 9"
    with limits(), pytest.raises(Finding, match=again):
        run_case(Target("planted", fault, 1), 5, 9, tmp_path)
    assert not list(tmp_path.iterdir())


def test_our_errors_are_no_findings(tmp_path: Path) -> None:
    def refuses(random: Random, folder: Path) -> None:
        raise SeedError("seeds[0] is -1")

    assert not run_case(Target("planted", refuses, 1), 0, 0, tmp_path)


def test_a_case_depends_on_its_name_seed_and_number_alone(tmp_path: Path) -> None:
    drawn = []
    target = Target("planted", lambda random, folder: drawn.append(random.random()), 1)
    for seed, number in [(0, 0), (0, 1), (1, 0), (0, 0)]:
        run_case(target, seed, number, tmp_path)
    assert drawn[0] == drawn[3]
    assert len(set(drawn)) == 3


def test_the_command_counts_cases_and_ends_at_a_finding(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command.main(["--target", "message", "--cases", "20"])
    assert "fuzz: 20 cases of 1 targets" in capsys.readouterr().out
    command.main(["--target", "message", "--case", "1234567"])
    assert "fuzz: 1 cases" in capsys.readouterr().out
    monkeypatch.setitem(TARGETS, "planted", Target("planted", raises_another_error, 1))
    with pytest.raises(Finding, match=r"KeyError: 'shape'\n.*--target planted --seed 3 --case 0"):
        command.main(["--seconds", "5", "--seed", "3"])
