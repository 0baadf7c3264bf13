"""Mistakes in a job of several ranks are told once, in the user's own frames."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.scripts import launch, mistakes

pytestmark = pytest.mark.timeout(170)
SCRIPT = Path(mistakes.__file__)


def output_of(folder: Path, *arguments: object, how: str, num_devices: int, status: int) -> str:
    with launch.start(SCRIPT, *arguments, folder=folder, how=how, num_devices=num_devices) as job:
        job.wait(120 * launch.PATIENCE)
    assert (job.returncode != 0) == bool(status), job.output
    return job.output


@pytest.mark.parametrize(
    ("how", "num_devices", "samplers", "happens", "first"),
    [
        ("script", 4, 2, "1", "trainer rank 1 failed"),  # a started rank, while the first one waits for it
        pytest.param("script", 4, 2, "all", r"trainer rank", marks=pytest.mark.matrix),
        pytest.param("spawn", 3, 1, "1", "trainer rank 1 failed in stage 'fit'", marks=pytest.mark.matrix),
        pytest.param("ddp", 2, 0, "1", "rank 1 failed", marks=pytest.mark.matrix),
        pytest.param("ddp", 2, 0, "all", "rank", marks=pytest.mark.matrix),
    ],
)
def test_an_error_of_a_users_step_is_told_once(
    tmp_path: Path, how: str, num_devices: int, samplers: int, happens: str, first: str
) -> None:
    output = output_of(tmp_path, samplers, happens, how=how, num_devices=num_devices, status=1)
    assert output.count("Traceback (most recent call last)") == 1, output
    told = output[output.index(first) :]
    frames = [line for line in told.splitlines() if line.startswith('  File "')]
    frames = [frame for frame in frames if "forkserver.py" not in frame and "<string>" not in frame]  # the test's
    assert 2 <= len(frames) <= 4, output
    assert all("mistakes.py" in frame for frame in frames), output
    assert "in training_step" in frames[-2]
    assert "in my_loss" in frames[-1]
    assert "\nArithmeticError: my loss is wrong\n" in told
    others = [line for line in output.splitlines() if " ends too: " in line]
    assert len(others) == (0 if how == "spawn" else num_devices - 1), output
    assert all("my loss is wrong" in line or "Connection closed" in line for line in others)


def test_data_that_every_rank_refuses_are_told_once(tmp_path: Path) -> None:
    output = output_of(tmp_path, 1, "labels", how="script", num_devices=2, status=1)
    assert output.count("GraphDataError: of ") == 1 + output.count(" ends too: ")
    assert output.count("Traceback") == 1, output
    assert "3 have a label that is none, first node" in output


@pytest.mark.matrix
@pytest.mark.parametrize(("num_devices", "samplers", "advised"), [(2, 1, False), (3, 1, True)])
def test_one_trainer_is_not_advised_to_sync_with_others(
    tmp_path: Path, num_devices: int, samplers: int, advised: bool
) -> None:
    output = output_of(tmp_path, samplers, "nothing", how="script", num_devices=num_devices, status=0)
    assert ("sync_dist=True" in output) == advised, output
