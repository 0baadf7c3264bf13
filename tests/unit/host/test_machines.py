"""What a machine's process answers, and addresses of no cluster; tests/integration/test_ray_tables.py has clusters."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from lightning_gnnload.errors import CudaCallError, LaunchError, MissingExtraError, TableError
from lightning_gnnload.host.machines import FailedCall, MachineProcess, Machines
from tests.runif import RunIf


class Reader:
    def __init__(self, error: Exception | None = None) -> None:
        if error is not None:
            raise error

    def read(self, error: Exception | None) -> str:
        if error is not None:
            raise error
        return "rows"


@pytest.mark.parametrize(
    "error",
    [
        TableError("nodes.a: 3 rows have no id."),
        FileNotFoundError(2, "No such file", "a.parquet"),
        MissingExtraError("ray", "ray", "gnnload build --engine ray", ImportError("ray")),
        CudaCallError("cudaErrorMemoryAllocation", "out of memory"),
    ],
)
def test_errors_of_users_are_answers(error: Exception) -> None:
    process = MachineProcess()
    for answer in (
        process.call("reader", (Reader, ()), "read", error),
        process.call("other", (Reader, (error,)), "read", None),
    ):
        assert isinstance(answer, FailedCall)
        received = pickle.loads(pickle.dumps(answer)).error  # noqa: S301  our own
        assert (type(received), str(received), vars(received)) == (type(error), str(error), vars(error))
    assert process.call("reader", (Reader, ()), "read", None) == "rows"


def test_faults_of_ours_are_raised() -> None:
    with pytest.raises(KeyError):
        MachineProcess().call("reader", (Reader, ()), "read", KeyError("x"))


@RunIf(extras="ray")
@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("nonsense", "RAY_ADDRESS=nonsense cannot be joined: it is no HOST:PORT. Give HOST:PORT, as ray start"),
        ("local", "RAY_ADDRESS=local cannot be joined: it is no HOST:PORT"),  # it would start a cluster
        ("ray://127.0.0.1:10001", "RAY_ADDRESS=ray://127.0.0.1:10001 cannot be joined: it is no HOST:PORT"),
        ("127.0.0.1:1", "RAY_ADDRESS=127.0.0.1:1 cannot be joined: .*Connection refused"),
        ("no-host.invalid:6379", "RAY_ADDRESS=no-host.invalid:6379 cannot be joined: "),
    ],
)
def test_addresses_of_no_cluster_are_told_at_once(
    address: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(LaunchError, match=f"purpose: the Ray cluster of {told}"):
        Machines("purpose", [tmp_path])
