"""A lost machine of samplers, or one of its samplers, is taken over: batches and weights are those of one machine."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.faults.takeover import STALL_TIMEOUT_S
from tests.faults.test_faults import await_files
from tests.faults.test_takeover import HERE, KILLED, LIMIT_S, SCRIPT, Trainings, records
from tests.integration.scripts import launch
from tests.integration.scripts.meeting import by_lightning, free_port
from tests.integration.scripts.namespaces import ADDRESSES, two_machines

pytestmark = pytest.mark.timeout(240 * launch.PATIENCE)
LOSSES = {
    "one of two killed": (("killed:middle:1",), (f"sampler rank 3 {KILLED}", "rank 2 takes its work over"), 0, 3),
    "the machine": (("killed:middle:0",), (f"sampler rank 2 {KILLED}", HERE), -9, 2),
    "one of two raises": (
        ("raises:middle:1",),
        ("sampler rank 3 failed in stage 'sample (train", "    raise ArithmeticError"),
        0,
        4,
    ),
}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Trainings:
    return Trainings(tmp_path_factory.mktemp("undisturbed"))


@contextmanager
def machines(
    folder: Path,
    *arguments: str,
    prefixes: Sequence[Sequence[str]] = ((), ()),
    address: str = "127.0.0.1",
    own: Sequence[Mapping[str, str]] = (),
    **variables: str,
) -> Iterator[list[launch.Job]]:
    """Two trainers on one machine, and two samplers on each other one, which are lost as told. ``own`` are variables of
    each machine."""
    secret, port = folder / "secret", free_port()
    secret.write_text("thirty-two characters of a secret")
    secret.chmod(0o600)
    nodes = {"NUM_NODES": str(len(prefixes)), "SAMPLER_NODES": str(len(prefixes) - 1)}
    common = {**nodes, "GNNLOAD_SECRET_FILE": str(secret), **variables}
    with ExitStack() as stack:
        jobs = []
        for node, (prefix, others) in enumerate(zip(prefixes, own or [{}] * len(prefixes), strict=True)):
            environment = {**by_lightning(node, port, address)["environment"], **common, **others}
            where: Any = {"folder": folder / f"node-{node}", "prefix": prefix, "environment": environment}
            jobs.append(stack.enter_context(launch.start(SCRIPT, 0, *arguments, num_devices=2, **where)))
        yield jobs


@pytest.mark.parametrize("name", LOSSES)
def test_trainers_go_on_with_the_same_batches(tmp_path: Path, undisturbed: Trainings, name: str) -> None:
    losses, says, code, num_left = LOSSES[name]
    with machines(tmp_path, *losses) as jobs:
        for job in jobs:
            job.wait(LIMIT_S)
    output = "\n".join(job.output for job in jobs)
    print(output)
    assert records(tmp_path / "node-0", 2) == undisturbed.of(2), output
    assert [job.returncode for job in jobs] == [0, code], output
    for part in says:
        assert jobs[0].output.count(part) == 1, f"{part!r}\n{output}"
    # Whoever is left goes on with the script, and waits in no later launch for who was seen to go.
    hands = [json.loads(file.read_text()) for file in tmp_path.glob("node-*/hands-*.json")]
    assert len(hands) == num_left
    assert [each["metrics"] for each in hands] == [hands[0]["metrics"]] * num_left
    if code == 0:
        assert max(each["test_s"] for each in hands) < 20 * launch.PATIENCE


def test_a_machine_that_is_stopped_is_given_up_and_ends_by_itself(tmp_path: Path, undisturbed: Trainings) -> None:
    with machines(tmp_path, "stopped:middle:0", "stopped:middle:1", CONNECT_TIMEOUT_S="10") as jobs:
        jobs[0].wait(LIMIT_S)
        for process in jobs[1].processes():
            process.resume()
        jobs[1].wait(LIMIT_S)
    output = "\n".join(job.output for job in jobs)
    assert records(tmp_path / "node-0", 2) == undisturbed.of(2), output
    for rank in (2, 3):
        assert jobs[0].output.count(f"nothing came from sampler rank {rank} for {STALL_TIMEOUT_S:.0f} s") == 1, output
    assert HERE in jobs[0].output, output
    assert [job.returncode for job in jobs] == [0, 0], output


def test_without_a_secret_nothing_is_waited_for(tmp_path: Path) -> None:
    with machines(tmp_path, GNNLOAD_SECRET_FILE="", HOME=str(tmp_path), XDG_CONFIG_HOME="") as jobs:
        seconds = [job.wait(LIMIT_S) for job in jobs]
    print(seconds)
    for job in jobs:
        assert "SecretError" in job.output, job.output
        assert job.returncode != 0


def test_another_secret_is_told_to_the_trainers(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("another secret of as many characters")
    other.chmod(0o600)
    own = [{}, {"GNNLOAD_SECRET_FILE": str(other), "CONNECT_TIMEOUT_S": "3"}]
    with machines(tmp_path, own=own) as jobs:
        for job in jobs:
            job.wait(LIMIT_S)
    assert "QueueProtocolError: the other end does not take this secret" in jobs[0].output, jobs[0].output
    assert "who connected does not know the secret" in jobs[1].output, jobs[1].output
    for job in jobs:
        assert job.returncode != 0
        assert "thirty-two characters" not in job.output
        assert "another secret of" not in job.output


def test_what_a_sampler_raises_is_raised_by_trainers(tmp_path: Path) -> None:
    with machines(tmp_path, "raises:middle:1", TAKEOVER="no") as jobs:
        for job in jobs:
            job.wait(LIMIT_S)
    for said in ("SamplerFailedError: sampler rank 3 failed in stage 'sample (train", "ArithmeticError: cannot draw"):
        assert said in jobs[0].output, jobs[0].output
    assert [job.returncode != 0 for job in jobs] == [True, True]
    assert not list(tmp_path.glob("node-0/test-*.json"))


def test_a_killed_trainer_ends_the_job_on_all_machines(tmp_path: Path) -> None:
    with machines(tmp_path, "50") as jobs:
        await_files(jobs[1], tmp_path / "node-1", ("sampler-0", "sampler-1"))
        time.sleep(1)
        [trainer] = [each for each in jobs[0].processes() if each.environ().get("LOCAL_RANK") == "1"]
        trainer.kill()
        began = time.monotonic()
        for job in jobs:
            job.wait(LIMIT_S)
        ended_s = time.monotonic() - began
    output = "\n".join(job.output for job in jobs)
    assert ended_s < 20 * launch.PATIENCE, output
    assert "trainer rank 1" in output, output
    assert [job.returncode != 0 for job in jobs] == [True, True], output


@pytest.mark.parametrize("what", ["slow", "lost"])
def test_one_of_two_machines_that_sample(tmp_path: Path, undisturbed: Trainings, what: str) -> None:
    """It takes a fifth of a second for each mini-batch, or is lost amid the first epoch, with all its ranks."""
    own = [{}, {}, {"DRAW_MS": "200" if what == "slow" else "0"}]
    with machines(tmp_path, "100", prefixes=((), (), ()), own=own) as jobs:
        if what == "lost":
            await_files(jobs[2], tmp_path / "node-2", ("sampler-0", "sampler-1"))
            time.sleep(1)
            jobs[2].kill()
        for job in jobs:
            job.wait(LIMIT_S)
    output = "\n".join(job.output for job in jobs)
    assert records(tmp_path / "node-0", 2) == undisturbed.of(2), output
    assert [job.returncode for job in jobs[:2]] == [0, 0], output
    assert jobs[0].output.count("takes its work over") == (2 if what == "lost" else 0), output
    assert HERE not in jobs[0].output, output


def test_a_pulled_cable_is_no_failure(tmp_path: Path, undisturbed: Trainings) -> None:
    with ExitStack() as stack:
        try:
            prefixes = stack.enter_context(two_machines())
        except PermissionError as error:
            pytest.skip(str(error))
        # A fifth of a second a step, so that there is time to pull it amid the first epoch.
        jobs = stack.enter_context(machines(tmp_path, "200", prefixes=prefixes, address=ADDRESSES[0]))
        await_files(jobs[1], tmp_path / "node-1", ("sampler-0", "sampler-1"))
        time.sleep(2)
        cable = [*prefixes[1], "ip", "link", "set", "cable1"]
        subprocess.run([*cable, "down"], check=True)
        jobs[0].wait(LIMIT_S)
        subprocess.run([*cable, "up"], check=True)
        # Its machine asks after half a minute of silence whether theirs are there.
        jobs[1].wait(2 * LIMIT_S)
    output = "\n".join(job.output for job in jobs)
    assert records(tmp_path / "node-0", 2) == undisturbed.of(2), output
    assert HERE in jobs[0].output, output
    assert [job.returncode for job in jobs] == [0, 0], output
