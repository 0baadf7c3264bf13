"""Notices: how the reason why a job ends gets from one machine to the others.

On one machine, the ranks hear of each other through the queue. A trainer elsewhere sees no more than a collective
that failed; whoever knows the reason leaves it in the job's store, and it looks there.
"""

from __future__ import annotations

import json
import socket
import time
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from torch.distributed import DistError, Store

from lightning_gnnload.errors import PeerError
from lightning_gnnload.pipeline.failure import Failure

if TYPE_CHECKING:
    from lightning_gnnload.plugin.strategy.factored import FactoredStrategy

NOTICE_S = 2.0
"""By then a rank that ends has told its sampler, and the sampler has left a notice."""
_KEY = "failure"
_POLL_S = 0.1


class Notices:
    """Failures of one launch. On a single machine there are none to leave, and none to find."""

    def __init__(self, strategy: FactoredStrategy) -> None:
        self._strategy = strategy

    def leave(self, failure: Failure) -> None:
        """For ranks on other machines. The first notice counts."""
        with suppress(DistError):  # the one who keeps the store is gone, which the others will see for themselves
            if (store := self._store()) is not None:
                store.compare_set(_KEY, "", json.dumps(failure.to_json()))

    def find(self, timeout_s: float = 0.0) -> PeerError | None:
        """The reason why a collective failed, if any rank has left it by then."""
        deadline = time.monotonic() + timeout_s
        try:
            if (store := self._store()) is None:
                return None
            while not store.check([_KEY]):
                if time.monotonic() > deadline:
                    return None
                time.sleep(_POLL_S)
            return Failure.from_message(json.loads(store.get(_KEY))).error()
        except DistError as error:
            text = f"Nobody answers where rank 0, or its launcher, kept the job's store: {error}"
            return Failure("trainer", 0, True, "train", text).error()

    def _store(self) -> Store | None:
        if self._strategy.num_nodes == 1:
            return None
        # Samplers come here for the first time, maybe after the store's end: they must not wait for it, as torch's
        # client would, for seconds more than it is told.
        environment = self._strategy.cluster_environment
        assert environment is not None
        try:
            socket.create_connection((environment.main_address, environment.main_port), NOTICE_S).close()
        except OSError as error:
            raise DistError(str(error)) from error
        return self._strategy.store(timedelta(seconds=NOTICE_S))
