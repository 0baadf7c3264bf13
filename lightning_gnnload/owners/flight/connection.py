"""The connection to an owner by Arrow Flight."""

from __future__ import annotations

import numpy as np

from lightning_gnnload import ops
from lightning_gnnload.owners.address import Address
from lightning_gnnload.owners.connection import Connection
from lightning_gnnload.owners.flight.call import FlightCall


class FlightConnection(Connection):
    """A connection to a :class:`.FlightFront`. It waits ``connect_s`` seconds for what the owner says of itself,
    ``deadline_s`` for each answer to begin, and for each MiB of it.

    Args:
        address: of the owner.
        secret: the one that it has.
        authority: content of the PEM file that vouches for the owner's certificate; None: the system's own.

    Raises:
        StrangerError: the owner has another secret.
        OSError: no owner listens there, or it is late.
        ForkError: this process is a fork of one that has used Arrow Flight.
    """

    def __init__(
        self,
        address: Address,
        secret: bytes,
        connect_s: float,
        deadline_s: float,
        authority: bytes | None = None,
    ) -> None:
        self._call = FlightCall(address, secret, min(connect_s, deadline_s), authority)
        super().__init__(self._call, connect_s, deadline_s)

    def read_rows(self, out: np.ndarray, positions: np.ndarray) -> None:
        # Out of the messages themselves, without a copy between.
        begin, row_bytes = 0, out.shape[1]
        while row_bytes and begin < len(positions):
            some = self._call.receive_some((len(positions) - begin) * row_bytes, self._deadline_s, row_bytes)
            rows = some.reshape(-1, row_bytes)
            ops.gather_rows(rows, np.arange(len(rows)), out, positions[begin : begin + len(rows)])
            begin += len(rows)
