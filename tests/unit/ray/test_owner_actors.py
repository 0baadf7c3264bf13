"""Where Ray shall put owners, and what it is told of machines that it does not have."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("ray")

from lightning_gnnload.errors import RoleConfigError
from lightning_gnnload.ray.owner_actors import _options


def node(**resources: float) -> dict[str, Any]:
    return {"Alive": True, "Resources": resources}


def test_without_storage_machines_owners_are_anywhere() -> None:
    assert _options([node(CPU=2)], 3, 1) == [{"scheduling_strategy": "SPREAD"}] * 3


def test_owners_want_a_storage_machine_each() -> None:
    # A machine's second unit of the resource is no second machine.
    with pytest.raises(RoleConfigError, match=r"owners=2, but 1 machines of this cluster have the resource 'storage'"):
        _options([node(storage=2), node(CPU=4)], 2, 1)
