"""Samplers on machines of their own: mini-batches come over TCP, and weights are those of one machine."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from lightning_gnnload import partition_graph
from tests.cluster.certificates import can_make, make_certificate
from tests.integration.scripts import launch
from tests.integration.scripts.meeting import by_lightning, by_meeting_agents, by_static_agents, free_port
from tests.integration.scripts.toy import toy_data
from tests.integration.test_owned import owned  # noqa: F401  a fixture
from tests.integration.test_slurm import srun
from tests.rings import mostly_matrix
from tests.unit.partition.by_id import ById

pytestmark = pytest.mark.timeout(200)
SCRIPT = Path(__file__).parent / "scripts" / "nodes.py"
STARTS = {
    "Lightning": by_lightning,
    "torchrun, static": by_static_agents,
    "torchrun, c10d": by_meeting_agents,
    "spawn": lambda node, port: {"how": "spawn", **by_lightning(node, port)},
}


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "secret"
    file.write_text("a secret of thirty-two characters")
    file.chmod(0o600)
    return file


def load(folder: Path, file: str, case: str = "after") -> Any:
    return json.loads((folder / case / file).read_text())


def run_on(
    folder: Path,
    secret: Path,
    *cases: str,
    num_nodes: int = 2,
    num_devices: int = 2,
    num_samplers: int = 0,
    sampler_nodes: int = 1,
    how: str = "Lightning",
    variables: Mapping[str, str] = {},
    data: Mapping[str, Any] = {},
    **strategy: Any,
) -> list[Path]:
    """Runs a job of several machines to its end; the folders that these wrote to."""
    port, folders = free_port(), [folder / f"node-{node}" for node in range(num_nodes)]
    common = {
        "GNNLOAD_SECRET_FILE": str(secret),
        "STRATEGY": json.dumps({"sampler_nodes": sampler_nodes, **strategy}),
        "DATA": json.dumps(data),
        **variables,
    }
    with ExitStack() as stack:
        jobs = []
        for node, place in enumerate(folders):
            options = STARTS[how](node, port)
            options["environment"] = {**options.get("environment", {}), **common}
            arguments = (SCRIPT, num_nodes, num_samplers, *cases)
            jobs.append(stack.enter_context(launch.start(*arguments, folder=place, num_devices=num_devices, **options)))
        for job in jobs:
            job.wait(120 * launch.PATIENCE)
    print("\n".join(job.output for job in jobs))
    assert [job.returncode for job in jobs] == [0] * num_nodes
    return folders


def check_equal(folders: list[Path], one_node: Path, case: str = "after", num_samplers: int = 2) -> None:
    """The trainers of the first machine are those of one that samples for itself, and the last machine's scripts go on
    as theirs do."""
    for rank in range(2):
        assert load(folders[0], f"trainer-{rank}.json", case) == load(one_node, f"trainer-{rank}.json", case)
    for rank in range(num_samplers):
        assert load(folders[-1], f"hands-{rank}.json", case) == load(one_node, "hands-2.json", case)


@pytest.mark.parametrize("is_encrypted", mostly_matrix([True, False], True))
def test_a_machine_samples_for_the_trainers_of_another_one(
    one_node: Path, tmp_path: Path, secret: Path, is_encrypted: bool
) -> None:
    variables: dict[str, str] = {}
    if is_encrypted and can_make():
        certificate = make_certificate(tmp_path, hosts="DNS:any")
        variables = {
            "GNNLOAD_CERTIFICATE_FILE": str(certificate.certificate),
            "GNNLOAD_KEY_FILE": str(certificate.key),
        }
    check_equal(run_on(tmp_path, secret, "after", variables=variables), one_node)


@pytest.mark.matrix
@pytest.mark.parametrize("how", [how for how in STARTS if how != "Lightning"])
def test_whoever_starts_the_ranks(one_node: Path, tmp_path: Path, secret: Path, how: str) -> None:
    # torchrun's agents that meet agree on who is the first machine: either may be the one that samples.
    case = "max_steps" if how == "spawn" else "after"
    folders = run_on(tmp_path, secret, case, how=how)
    if (folders[1] / case / "trainer-0.json").exists():
        folders.reverse()
    check_equal(folders, one_node, case, 0 if how == "spawn" else 2)


@pytest.mark.matrix
def test_tasks_of_slurm(one_node: Path, tmp_path: Path, secret: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GNNLOAD_SECRET_FILE", str(secret))
    monkeypatch.setenv("STRATEGY", '{"sampler_nodes": 1}')
    with srun(SCRIPT, 2, 0, "after", folder=tmp_path, num_nodes=2) as (jobs, folders):
        for job in jobs:
            job.wait(120 * launch.PATIENCE)
    assert [job.returncode for job in jobs] == [0] * 4, "\n".join(job.output for job in jobs)
    check_equal(folders, one_node)


@pytest.mark.matrix
def test_samplers_of_the_machine_and_of_another_one(one_node: Path, tmp_path: Path, secret: Path) -> None:
    folders = run_on(tmp_path, secret, "after", num_devices=3, num_samplers=1)
    check_equal(folders, one_node, num_samplers=3)
    assert load(folders[0], "hands-2.json") == load(one_node, "hands-2.json")


@pytest.mark.matrix
def test_several_machines_sample_for_several(one_node: Path, tmp_path: Path, secret: Path) -> None:
    folders = run_on(tmp_path, secret, "after", num_nodes=4, num_devices=1, sampler_nodes=2)
    for rank in range(2):
        assert load(folders[rank], f"trainer-{rank}.json") == load(one_node, f"trainer-{rank}.json")
        assert load(folders[2 + rank], "hands-0.json") == load(one_node, "hands-2.json")


@pytest.mark.matrix
def test_late_gradients_train_on_the_same_batches(one_node: Path, tmp_path: Path, secret: Path) -> None:
    folders = run_on(tmp_path, secret, "after", staleness=2)
    for rank in range(2):
        stale, plain = (load(folder, f"trainer-{rank}.json") for folder in (folders[0], one_node))
        assert [seen[:-1] for seen in stale["seen"]] == [seen[:-1] for seen in plain["seen"]]
        assert stale["updates"] == plain["updates"]
        assert stale["weights"] == load(folders[0], "trainer-0.json")["weights"] != plain["weights"]


@pytest.mark.matrix
def test_an_epoch_is_resumed_where_it_was_cut(tmp_path: Path, secret: Path) -> None:
    """Only the machine that trains has the checkpoint."""
    cases = ("uninterrupted", "interrupted", "resumed")
    folders = run_on(tmp_path, secret, *cases)
    assert not (folders[1] / "checkpoints").exists()
    for rank in range(2):
        whole, cut, resumed = (load(folders[0], f"trainer-{rank}.json", case) for case in cases)
        assert resumed["weights"] == whole["weights"] != cut["weights"]
        trained = [[seen for seen in each["seen"] if seen[0] == "train"] for each in (whole, resumed)]
        assert trained[1] == trained[0][7:]


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of two: in ``alone``, what each needs to sample by itself; in ``together``, each list once."""
    folder = tmp_path_factory.mktemp("parts")
    partition_graph(toy_data(), folder / "alone", 2, ById(), hops=2, phases=("train", "val"), progress=False)
    partition_graph(toy_data(), folder / "together", 2, ById(), hops=0, progress=False)
    return folder


@pytest.mark.matrix
@pytest.mark.parametrize(("how", "setting"), [("alone", "partition"), ("together", "partition"), ("together", "data")])
def test_parts(parts: Path, tmp_path: Path, secret: Path, how: str, setting: str) -> None:
    """As samplers of the machine make them, by as many of them; as ``data``, nobody has the whole graph."""
    data = {setting: str(parts / how)}
    environment = {"environment": {"DATA": json.dumps(data)}}
    with launch.start(SCRIPT, 1, 2, "after", folder=tmp_path / "one", num_devices=4, **environment) as job:
        job.wait(120 * launch.PATIENCE)
    assert job.returncode == 0, job.output
    check_equal(run_on(tmp_path, secret, "after", data=data), tmp_path / "one")


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("made_by", "gathered_by"),
    [("ranks", "samplers"), ("owners", "samplers"), ("ranks", "trainers"), ("owners", "trainers")],
)
def test_samplers_that_ask_owners(
    one_node: Path,
    owned: Iterator[tuple[Path, dict[str, str]]],  # noqa: F811
    tmp_path: Path,
    secret: Path,
    made_by: str,
    gathered_by: str,
) -> None:
    """Nobody in the job has a list or a row; trainers may ask for rows while samplers ask for lists."""
    head, variables = owned
    data = {"data": str(head), "graph": "remote", "features": "remote", "made_by": made_by}
    check_equal(run_on(tmp_path, secret, "after", variables=variables, data=data, gathered_by=gathered_by), one_node)
