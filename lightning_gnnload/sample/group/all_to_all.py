"""AllToAll: one thread a rank carries the tasks of all its sampling threads to other ranks, and serves theirs.

All ranks go through the same rounds: in each they meet once, in one all-to-all, to which every rank brings the tasks
that are ready, and the results of those that the round before brought it. Nobody else communicates over the exchange,
so there is one launching order on all ranks by construction (DSP, PPoPP'23, section 5, has a leader decide on one), and
ranks may be at any step, in any phase, or idle.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Mapping

import numpy as np

from lightning_gnnload.errors import ExchangeError
from lightning_gnnload.host.threads import check_process, start_thread
from lightning_gnnload.sample.group.exchange import Exchange
from lightning_gnnload.sample.group.messages import FAILED, LEAVING, OPEN, Parcel

Serve = Callable[[int, np.ndarray], np.ndarray]
"""Makes the result of a rank's task: ``(rank, task) -> result``, uint8 ``[bytes]`` both."""

# A task wakes its own rank alone: the longest pause is what it may wait for the others.
SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.2e-3, 5e-3
"""Seconds to pause after a round to which no rank brought anything: the pause doubles from one to the other."""
_EXIT_S = 5.0


class Pending:
    """The results that one sampling thread waits for."""

    def __init__(self, num_tasks: int) -> None:
        # Changed with AllToAll's lock held; wait reads without it, since the event is set last.
        self._left = num_tasks
        self._results: dict[int, np.ndarray] = {}
        self._error: BaseException | None = None
        self._settled = threading.Event()
        if not num_tasks:
            self._settled.set()

    def wait(self) -> dict[int, np.ndarray]:
        """Waits for the results, by the rank that made them. ExchangeError: the rounds ended, or this rank closed."""
        self._settled.wait()
        if self._error is not None:
            raise ExchangeError(str(self._error)) from self._error
        return self._results

    def settle(self, rank: int, result: np.ndarray) -> None:
        self._results[rank] = result
        self._left -= 1
        if not self._left:
            self._settled.set()

    def fail(self, error: BaseException) -> None:
        self._error = error
        self._settled.set()


class AllToAll:
    """Runs the rounds of the exchange in one thread of a rank; any other thread may :meth:`ask`.

    A rank without tasks still serves, until all have closed. Where one fails, or is gone, the tasks of all end in an
    ExchangeError. A process that exits without closing tells the others that it fails. ``serve`` is called for each
    task that comes; what it raises ends the rounds of all ranks.
    """

    def __init__(self, exchange: Exchange, serve: Serve) -> None:
        self.num_rounds = 0
        self._exchange = exchange
        self._serve = serve
        self._pid = os.getpid()
        # Guards what follows, which sampling threads share with the thread that calls the exchange.
        self._changed = threading.Condition()
        self._state = OPEN
        self._end: ExchangeError | None = None
        self._outgoing = self._empty_parcels()
        self._pending: dict[int, Pending] = {}
        self._num_asked = 0
        # A daemon: the interpreter joins other threads before atexit's calls, of which _exit is to end this one.
        self._thread = start_thread("gnnload-all-to-all", self._run)
        atexit.register(self._exit)

    def ask(self, tasks: Mapping[int, np.ndarray]) -> Pending:
        """Sends tasks (uint8 by rank) with the next round, and returns at once. ExchangeError: the rounds have
        ended."""
        check_process(self._pid, "The exchange between ranks")
        with self._changed:
            if self._end is not None:
                raise ExchangeError(str(self._end)) from self._end
            if self._state != OPEN:
                raise ExchangeError("this rank has closed its exchange: it still serves others, but asks no more.")
            pending = Pending(len(tasks))
            for rank, task in tasks.items():
                self._outgoing[rank].tasks[self._num_asked] = task
                self._pending[self._num_asked] = pending
                self._num_asked += 1
            self._changed.notify()
        return pending

    def close(self) -> None:
        """Asks no more, and serves until all ranks close. Safe to call twice. ExchangeError, at the first call: a rank
        failed."""
        if self._pid != os.getpid():
            return  # a fork has not the thread, and its parent goes on
        with self._changed:
            # The larger state, so that a rank that has failed does not leave as if in order.
            was_open, self._state = self._state == OPEN, max(self._state, LEAVING)
            self._drop_pending(ExchangeError("this rank closed its exchange while it sampled."))
            self._changed.notify()
        self._thread.join()
        atexit.unregister(self._exit)
        if was_open and self._end is not None:
            raise ExchangeError(str(self._end)) from self._end

    def fail(self, reason: str) -> None:
        """Tells all ranks that this one cannot go on, and waits for none of them. Safe to call twice."""
        self._give_up(f"rank {self._exchange.global_rank(self._exchange.rank)}: {reason}")
        self._thread.join(_EXIT_S)
        atexit.unregister(self._exit)

    def _exit(self) -> None:
        if self._pid != os.getpid():
            return  # a fork's end is not its parent's
        self.fail("its process ended without closing its exchange.")

    # The thread that calls the exchange.

    def _run(self) -> None:
        try:
            self._run_rounds()
        except BaseException as error:
            with self._changed:
                self._end = error if isinstance(error, ExchangeError) else ExchangeError(repr(error))
                self._drop_pending(self._end)
        finally:
            self._exchange.close()  # so that whoever still waits for this rank need not wait for long

    def _run_rounds(self) -> None:
        pause_s = SHORTEST_PAUSE_S
        while True:
            parcels = self._run_round()
            # States travel with the round, so all ranks see this in the same one, and none is left waiting in the next.
            if all(parcel.state == LEAVING for parcel in parcels):
                return
            if any(parcel.is_busy for parcel in parcels):
                # Results of what came with this round go with the next, which therefore follows at once.
                pause_s = SHORTEST_PAUSE_S
                continue
            with self._changed:
                if self._state != FAILED and all(parcel.is_empty for parcel in self._outgoing):
                    self._changed.wait(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _run_round(self) -> list[Parcel]:
        """Brings what is ready, takes what the others brought, and serves."""
        # Taken as a whole: what is asked from here on goes into the next round, and needs no lock while these travel.
        with self._changed:
            outgoing, self._outgoing = self._outgoing, self._empty_parcels()
            for parcel in outgoing:
                parcel.state, parcel.reason = self._state, str(self._end or "")
        # If this rank brings anyone anything, it tells everyone: all must find the same rounds idle.
        is_busy = not all(parcel.is_empty for parcel in outgoing)
        for parcel in outgoing:
            parcel.is_busy = is_busy
        parcels = list(map(Parcel.from_bytes, self._exchange.all_to_all([parcel.to_bytes() for parcel in outgoing])))
        self.num_rounds += 1
        if reasons := [parcel.reason for parcel in parcels if parcel.state == FAILED]:
            raise ExchangeError("; ".join(reasons))
        for rank, parcel in enumerate(parcels):
            self._settle(rank, parcel)
            self._serve_all(rank, parcel)
        return parcels

    def _settle(self, rank: int, parcel: Parcel) -> None:
        with self._changed:
            for number, result in parcel.results.items():
                if number in self._pending:  # else this rank has closed meanwhile
                    self._pending.pop(number).settle(rank, result)

    def _serve_all(self, rank: int, parcel: Parcel) -> None:
        for number, task in parcel.tasks.items():
            try:
                result = self._serve(rank, task)
            except Exception as error:
                this_rank, asking = map(self._exchange.global_rank, (self._exchange.rank, rank))
                # Not raised: the next round has to tell the others first.
                self._give_up(f"rank {this_rank}: it cannot serve rank {asking}: {type(error).__name__}: {error}")
                return
            with self._changed:
                self._outgoing[rank].results[number] = result

    # With the lock.

    def _give_up(self, reason: str) -> None:
        with self._changed:
            if self._end is None and self._thread.is_alive():
                self._state, self._end = FAILED, ExchangeError(reason)
                self._drop_pending(self._end)
                self._changed.notify()

    def _drop_pending(self, error: ExchangeError) -> None:
        for pending in self._pending.values():
            pending.fail(error)
        self._pending.clear()
        # Tasks alone: other ranks wait for the results.
        for parcel in self._outgoing:
            parcel.tasks.clear()

    def _empty_parcels(self) -> list[Parcel]:
        return [Parcel() for _ in range(self._exchange.num_ranks)]
