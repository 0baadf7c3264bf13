"""GroupSettings: the learning rates and other settings of an optimizer's groups, as each late update must find them.

Trainers apply the same update at different steps, between which schedulers change the groups. Two timelines keep their
parameters equal: outside of updates, groups have the values of plain DDP; an update finds in them those of the step
that launched its gradient, and what earlier updates wrote there, as optimizers that count in their groups do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from torch import Tensor
from torch.optim import Optimizer


class _Mark(NamedTuple):
    """A value, and how often it was changed in place, as a scheduler changes a rate that is a tensor."""

    value: Any
    version: int

    @classmethod
    def of(cls, value: Any) -> _Mark:
        return cls(value, value._version if isinstance(value, Tensor) else 0)

    def is_still(self, value: Any) -> bool:
        now = _Mark.of(value)
        return now.value is self.value and now.version == self.version


_NEVER = _Mark(object(), 0)


class GroupSettings:
    """Keeps the settings of one optimizer's groups for updates that come late.

    Example:
        >>> import torch
        >>> optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0)
        >>> settings, (group,) = GroupSettings(optimizer), optimizer.param_groups
        >>> settings.launch()
        >>> group["lr"] = 0.5
        >>> with settings.of_oldest_launch():
        ...     group["lr"]
        1.0
        >>> group["lr"]
        0.5
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self._marks: list[dict[str, _Mark]] = []
        self._for_updates: list[dict[str, Any]] = []
        self._changes: deque[list[dict[str, Any]]] = deque()  # of each launch that no update has applied

    def launch(self) -> None:
        """Notes what was changed since the last launch, other than by updates."""
        new = len(self._optimizer.param_groups) - len(self._marks)
        self._marks += [{} for _ in range(new)]
        self._for_updates += [{} for _ in range(new)]
        self._changes.append([])
        for group, marks in zip(self._optimizer.param_groups, self._marks, strict=True):
            changed = {
                key: value
                for key, value in group.items()
                if key != "params" and not marks.get(key, _NEVER).is_still(value)
            }
            marks.update((key, _Mark.of(value)) for key, value in changed.items())
            self._changes[-1].append({key: _copy(value) for key, value in changed.items()})

    @contextmanager
    def of_oldest_launch(self) -> Iterator[None]:
        """Within it, the groups are as the update with the oldest launch's gradient must find them."""
        changes, present = self._changes.popleft(), []
        # A group that was added since that launch has no gradient in it, and stays as it is.
        for group, settings, its in zip(self._optimizer.param_groups, self._for_updates, changes, strict=False):
            settings.update(its)
            present.append({key: group[key] for key in settings})
            group.update(settings)
        before = [{key: _Mark.of(value) for key, value in group.items()} for group in self._for_updates[: len(changes)]]
        yield
        for group, settings, marks, then, now in zip(
            self._optimizer.param_groups, self._for_updates, self._marks, before, present, strict=False
        ):
            for key, value in now.items():
                if then[key].is_still(group[key]):
                    group[key] = value
                else:
                    settings[key] = group[key]
                    group[key] = _copy(group[key])
                    marks[key] = _Mark.of(group[key])


def _copy(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value
