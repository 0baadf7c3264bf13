"""What updates find in an optimizer's groups, whenever they come."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import nn

from lightning_gnnload.plugin.gradients.group_settings import GroupSettings


def seen_by_updates(applied_after: Sequence[int], *, rate_is_tensor: bool) -> list[tuple[float, int]]:
    """What each update finds, and what is there in the end, where update n is done after launch ``applied_after[n]``.

    A scheduler halves the rate after each launch; updates count, and the third takes a rate of its own.
    """
    rate = torch.tensor(1.0) if rate_is_tensor else 1.0
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=rate)
    settings, (group,) = GroupSettings(optimizer), optimizer.param_groups
    group["count"] = torch.zeros((), dtype=torch.int64) if rate_is_tensor else 0
    found: list[tuple[float, int]] = []
    for launch in range(len(applied_after)):
        settings.launch()
        while len(found) < len(applied_after) and applied_after[len(found)] == launch:
            with settings.of_oldest_launch():
                found.append((float(group["lr"]), int(group["count"])))
                group["count"] += 1
                if len(found) == 3:
                    group["lr"] = 7.0
        scheduled = 0.5 ** (launch + 1)
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(scheduled)
        else:
            group["lr"] = scheduled
    return [*found, (float(group["lr"]), int(group["count"]))]


@pytest.mark.parametrize("rate_is_tensor", [False, True], ids=["floats", "tensors"])
@pytest.mark.parametrize("applied_after", [[0, 1, 2, 3, 4], [2, 2, 4, 4, 4], [1, 1, 2, 4, 4], [4] * 5], ids=str)
def test_an_update_finds_the_same_whenever_it_comes(applied_after: list[int], rate_is_tensor: bool) -> None:
    """As without any delay: the schedule of its own step, and the counts of all updates before it."""
    at_once = [(0.5**step, step) for step in range(6)]
    found = seen_by_updates(applied_after, rate_is_tensor=rate_is_tensor)
    assert found == at_once


def test_a_group_that_is_added_later_keeps_its_own() -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1.0)
    settings = GroupSettings(optimizer)
    settings.launch()
    optimizer.add_param_group({"params": [nn.Parameter(torch.ones(1))], "lr": 3.0})
    optimizer.param_groups[0]["lr"] = 2.0
    settings.launch()
    for wanted in ([1.0, 3.0], [2.0, 3.0]):
        with settings.of_oldest_launch():
            assert [group["lr"] for group in optimizer.param_groups] == wanted
