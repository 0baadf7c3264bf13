"""Warnings of the package, and where they point."""

from __future__ import annotations

from typing import Any

import pytest

from lightning_gnnload.errors import warn


@pytest.mark.parametrize("library", ["torch_geometric.loader", "lightning_fabric.utilities.data", "dgl", "functools"])
def test_a_warning_points_at_the_users_line_beyond_libraries(library: str) -> None:
    between: dict[str, Any] = {"__name__": library}
    exec("def call(function):\n    function('odd\\x1b')", between)
    with pytest.warns(UserWarning, match=r"odd\\x1b") as caught:
        between["call"](warn)
    assert [each.filename for each in caught] == [__file__]
