"""Parcel: what one rank brings another to one turn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from lightning_gnnload.errors import ExchangeError
from lightning_gnnload.sample.messages import Message

OPEN, LEAVING, FAILED = range(3)
"""States of a rank: it asks and serves; it only serves, until all do; it does neither."""


@dataclass
class Parcel:
    """Tasks and results, each uint8 ``[bytes]`` by the ticket that its asker gave it.

    Attributes:
        state: of the rank that brings it.
        reason: why that rank has failed.
        is_busy: the rank brings somebody something to this turn, here or to another rank.
    """

    state: int = OPEN
    reason: str = ""
    tasks: dict[int, np.ndarray] = field(default_factory=dict)
    results: dict[int, np.ndarray] = field(default_factory=dict)
    is_busy: bool = False

    @property
    def is_empty(self) -> bool:
        return not self.tasks and not self.results

    def to_bytes(self) -> np.ndarray:
        """uint8 ``[bytes]``; none at all from a rank that is idle."""
        if self.state == OPEN and not self.is_busy:
            return np.empty(0, np.uint8)
        arrays = {f"task {ticket}": data for ticket, data in self.tasks.items()}
        arrays |= {f"result {ticket}": data for ticket, data in self.results.items()}
        about = {"state": self.state, "reason": self.reason, "busy": self.is_busy}
        return Message(about, arrays).to_bytes()

    @classmethod
    def from_bytes(cls, data: np.ndarray) -> Parcel:
        """Raises ExchangeError: these bytes are no parcel."""
        if not len(data):
            return cls()
        message = Message.from_bytes(data)
        try:
            about, tasks, results = message.about, _called("task", message.arrays), _called("result", message.arrays)
            if about["state"] not in (OPEN, LEAVING, FAILED):
                raise ValueError(f"state {about['state']}")
            return cls(int(about["state"]), str(about["reason"]), tasks, results, bool(about["busy"]))
        except (LookupError, ValueError, TypeError) as error:
            raise ExchangeError(f"a rank sent a message that is no parcel ({error!r}).") from error


def _called(kind: str, arrays: Mapping[str, np.ndarray]) -> dict[int, np.ndarray]:
    found = {}
    for name, data in arrays.items():
        which, ticket = name.split()
        if which == kind:
            found[int(ticket)] = data
    return found
