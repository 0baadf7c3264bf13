"""Where ranks meet."""

from __future__ import annotations

import threading

import pytest
from torch.distributed import HashStore

from lightning_gnnload.errors import RoleConfigError
from lightning_gnnload.plugin.job import RolePlan
from lightning_gnnload.plugin.strategy.rendezvous import check_machines, is_loopback


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.1.1", "localhost", "::1"])
def test_loopback_is_known(address: str) -> None:
    assert is_loopback(address)


@pytest.mark.parametrize("address", ["10.0.0.1", "node17", "localhost.example.org", "fe80::1"])
def test_a_name_is_not_taken_for_loopback(address: str) -> None:
    """Each machine may resolve it in its own way: a group on loopback would never form."""
    assert not is_loopback(address)


def test_machines_with_other_numbers_of_ranks_are_refused_on_all_of_them() -> None:
    store, said = HashStore(), {}

    def check(node: int, num_devices: int) -> None:
        try:
            check_machines(store, node, RolePlan(num_devices, 1, num_nodes=2))
        except RoleConfigError as error:
            said[node] = str(error)

    threads = [threading.Thread(target=check, args=args) for args in ((0, 3), (1, 2))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert said[0] == said[1]
    assert "node 0 has 2 trainers and 1 samplers; node 1 has 1 trainers and 1 samplers" in said[0]
