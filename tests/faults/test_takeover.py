"""A lost sampler's work is taken over: the job's batches and weights are those of an undisturbed one."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.faults.takeover import STALL_TIMEOUT_S
from tests.integration.scripts import launch
from tests.integration.scripts.meeting import by_lightning, free_port
from tests.rings import mostly_matrix

SCRIPT = Path(__file__).with_name("takeover.py")
LIMIT_S = 60.0 * launch.PATIENCE
KILLED = "is gone without a word (killed, out of memory, or crashed)"
HERE = "The trainers sample themselves from here on"


@dataclass(frozen=True)
class Loss:
    """What is lost, with how many samplers on how many devices, and what the output says of it."""

    losses: tuple[str, ...]
    num_samplers: int
    num_devices: int
    says: tuple[str, ...]


LOSSES = {
    "the only one, at the begin": Loss(("killed:begin:0",), 1, 2, (f"rank 1 {KILLED}", HERE)),
    "the only one, with two trainers": Loss(("killed:middle:0",), 1, 3, (f"rank 2 {KILLED}", HERE)),
    "one of two": Loss(("killed:middle:0",), 2, 3, (f"rank 1 {KILLED}", "rank 2 takes its work over")),
    "in the last batches": Loss(("killed:end:1",), 2, 3, (f"rank 2 {KILLED}", "rank 1 takes its work over")),
    "in the sanity check": Loss(("killed:sanity:0",), 1, 2, (f"rank 1 {KILLED}", HERE)),
    "in validation": Loss(("killed:validation:1",), 2, 3, (f"rank 2 {KILLED}", "rank 1 takes its work over")),
    "both, one after the other": Loss(
        ("killed:middle:0", "killed:second_epoch:1"),
        2,
        3,
        (f"rank 1 {KILLED}", f"rank 2 {KILLED}"),
    ),
    "stopped": Loss(
        ("stopped:middle:0",),
        1,
        3,
        (
            f"nothing came from sampler rank 2 for {STALL_TIMEOUT_S:.0f} s",
            "raise FactoredStrategy(stall_timeout_s=...)",
        ),
    ),
    "raises": Loss(
        ("raises:middle:1",),
        2,
        3,
        (
            "sampler rank 2 failed in stage 'sample (train, epoch 0, step ",
            "ArithmeticError: cannot draw",
            "rank 1 takes",
        ),
    ),
    "out of memory": Loss(
        ("memory:middle:0",), 1, 2, ("sampler rank 1 failed", "    raise MemoryError\nMemoryError\n", HERE)
    ),
    "raises in setup": Loss(("raises:setup:0",), 1, 2, ("sampler rank 1 failed in stage 'setup'", HERE)),
    "never starts": Loss(("killed:start:0",), 2, 3, ("sampler rank 1 did not start", "Its process has ended")),
}
ELSEWHERE = [
    *(("torchrun", name) for name in ("the only one, at the begin", "one of two", "stopped", "raises")),
    *(("fork", name) for name in ("one of two", "both, one after the other", "stopped", "raises in setup")),
    ("spawn", "in validation"),
]


class Trainings:
    """What trainers saw and have, without losses; by number of trainers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._found: dict[int, list[Any]] = {}

    def of(self, num_trainers: int) -> list[Any]:
        if num_trainers not in self._found:
            folder = self.folder / str(num_trainers)
            launch.run(SCRIPT, 1, folder=folder, num_devices=num_trainers + 1, timeout_s=LIMIT_S)
            self._found[num_trainers] = records(folder, num_trainers)
        return self._found[num_trainers]


def records(folder: Path, num_trainers: int) -> list[Any]:
    return [json.loads((folder / f"fit-{rank}.json").read_text()) for rank in range(num_trainers)]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Trainings:
    return Trainings(tmp_path_factory.mktemp("undisturbed"))


@pytest.mark.timeout(180 * launch.PATIENCE)
@pytest.mark.parametrize(
    ("how", "name"),
    mostly_matrix(
        [*(("script", name) for name in LOSSES), *ELSEWHERE],
        *(("script", name) for name in ("the only one, with two trainers", "both, one after the other")),
        ("fork", "raises in setup"),
    ),
)
def test_training_goes_on_with_the_same_batches(tmp_path: Path, undisturbed: Trainings, how: str, name: str) -> None:
    loss = LOSSES[name]
    num_trainers = loss.num_devices - loss.num_samplers
    job = launch.run(
        SCRIPT,
        loss.num_samplers,
        *loss.losses,
        folder=tmp_path,
        how=how,
        num_devices=loss.num_devices,
        timeout_s=LIMIT_S,
    )
    assert records(tmp_path, num_trainers) == undisturbed.of(num_trainers)
    for part in loss.says:
        assert job.output.count(part) == 1, f"{part!r}\n{job.output}"
    # Every rank that lives goes on with its script, and with the next launch: no sampler is waited for that is gone.
    hands = [json.loads(file.read_text()) for file in tmp_path.glob("hands-*.json")]
    died = sum(each.startswith(("killed", "stopped")) for each in loss.losses)
    assert len(hands) == {"script": loss.num_devices - died, "torchrun": loss.num_devices}.get(how, 1)
    assert [each["metrics"] for each in hands] == [hands[0]["metrics"]] * len(hands)
    assert hands[0]["metrics"]
    if how in ("script", "torchrun"):  # which start no process for the second launch
        assert max(each["test_s"] for each in hands) < 20 * launch.PATIENCE


@pytest.mark.matrix
@pytest.mark.timeout(180 * launch.PATIENCE)
def test_a_machine_that_loses_its_sampler_keeps_up_with_the_others(tmp_path: Path, undisturbed: Trainings) -> None:
    port = free_port()
    with ExitStack() as stack:
        jobs = []
        for node, losses in enumerate(((), ("killed:middle:0",))):
            environment = {"NUM_NODES": "2", **by_lightning(node, port)["environment"]}
            folder = tmp_path / f"node-{node}"
            job = launch.start(SCRIPT, 1, *losses, folder=folder, num_devices=2, environment=environment)
            jobs.append(stack.enter_context(job))
        for job in jobs:
            job.wait(LIMIT_S)
    assert [job.returncode for job in jobs] == [0, 0], "\n".join(job.output for job in jobs)
    for rank, wanted in enumerate(undisturbed.of(2)):
        assert json.loads((tmp_path / f"node-{rank}" / f"fit-{rank}.json").read_text()) == wanted
    assert [HERE in job.output for job in jobs] == [False, True]
