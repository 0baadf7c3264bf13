"""PackedEpochs: the window of each mini-batch, packed when it is needed first, and the next one while it trains."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from pathlib import Path

import numpy as np

from lightning_gnnload.cache.packed.pack import NoRoomError, Packer, StoppedError
from lightning_gnnload.cache.packed.store import ColdRows, rows_from
from lightning_gnnload.cache.packed.stretch import Stretch, StretchReader
from lightning_gnnload.cache.packed.window import (
    Window,
    open_window,
    remove_window,
    stays,
    window_numbers,
    window_path,
)
from lightning_gnnload.data.features import TierReads
from lightning_gnnload.data.plan import BatchRequest
from lightning_gnnload.errors import StoreFormatError, warn
from lightning_gnnload.host.heartbeat import HEARTBEAT
from lightning_gnnload.host.threads import check_process, start_thread
from lightning_gnnload.storage.targets import folder_lock

_POLL_S = 0.05
_PATIENCE_S = 30.0
"""How long a mini-batch waits for its window; then it is read from the table, as a trainer takes a sampler that is
silent for two minutes for lost."""


WithoutRoom = Callable[[], ColdRows]


class PackedEpochs(ColdRows):
    """The packed rows of coming mini-batches, for all threads of a rank.

    Whoever needs a window that is missing packs it, if it gets the folder's lock; others, in this process or another,
    wait until it is there, or take over from one that was killed. A thread of this process packs the next window while
    mini-batches of this one are gathered: it is a thread because the graph and the sampler are here, and because its
    work, reading, copying and writing, leaves the interpreter to others.

    Args:
        packer: packs.
        reader: reads.
        without_room: makes what serves from then on if the disk has no room for a window.
        leave: called when it is closed; the last job removes the windows that were packed for it alone.
        progress: show a bar while the first window is packed.
    """

    def __init__(
        self,
        packer: Packer,
        reader: StretchReader,
        without_room: WithoutRoom,
        *,
        leave: Callable[[], None] = lambda: None,
        progress: bool = False,
    ) -> None:
        self.packer = packer
        packer.should_stop = lambda: self._is_closed
        self.timeline = packer.timeline
        self._reader = reader
        self._without_room = without_room
        self._instead: ColdRows | None = None
        self._leave = leave
        self._progress = progress
        self._pid = os.getpid()
        self._packing: list[threading.Thread] = []
        self._changed = threading.Lock()
        self._windows: dict[int, Future[Window]] = {}
        self._here = threading.local()
        self._latest, self._stride = -1, 0
        self._is_closed = self._has_warned = False
        self._is_set_up = False  # else the first window is under way, which may take long
        self._late: set[int] = set()  # windows that are no longer waited for

    def open(self, epoch: int, step: int) -> None:
        """Packs the window of the step that a run begins with, or waits for it, before a mini-batch does so."""
        # Without a stretch of it, as another thread may gather.
        self._window_of(BatchRequest(epoch, step, self.timeline.ranks[0], self.timeline.num_ranks))

    def announce(self, request: BatchRequest) -> None:
        """Waits for the mini-batch's window, and begins to read what comes next.

        Raises FeatureFileError: the table cannot be read, or the folder not be written to.
        """
        if self._instead is not None:
            self._instead.announce(request)
            return
        if getattr(self._here, "request", None) == request:
            return  # for another table
        self._give_back()
        self._here.request, self._here.num_left = request, len(self.packer.tables)
        window = self._window_of(request)
        if window is None:
            return
        time_of = self.timeline.time_of(request)
        self._here.stretch = self._reader.take(window, time_of - self._begin_of(window))
        coming = self._coming(time_of)
        if coming is not None:
            self._reader.read_ahead(*coming)

    def read(
        self, table: int, request: BatchRequest, ids: np.ndarray, positions: np.ndarray, out: np.ndarray
    ) -> TierReads | None:
        if self._instead is not None:
            return self._instead.read(table, request, ids, positions, out)
        stretch: Stretch | None = getattr(self._here, "stretch", None)
        if stretch is None or self._here.request != request:
            return None
        packed = self.packer.tables[table]
        try:
            read = rows_from(stretch, table, packed.store.dtype if packed.halves else None, ids, positions, out)
        except StoreFormatError as error:
            self._replace(stretch.window, error)
            return None
        if read is None and not self._has_warned:
            self._has_warned = True
            warn(
                f"a mini-batch gathers other rows of {packed.name!r} than {self.packer.folder} has for it, and reads "
                "the table. If the sampler's code has changed since they were packed, remove that folder."
            )
        self._here.num_left -= 1
        if not self._here.num_left:
            stretch.window.fresh.discard(stretch.number)
            self._give_back()
        return read

    def close(self) -> None:
        """Ends the threads within the time of one chunk, and leaves the folder."""
        with self._changed:
            if self._is_closed:
                return
            self._is_closed = True
        for thread in self._packing:
            thread.join()
        self._reader.close()
        for window in self._windows.values():
            if window.done() and not window.cancelled() and window.exception() is None:
                window.result().file.close()
        if self._instead is not None:
            self._instead.close()
        self._leave()

    def _give_back(self) -> None:
        stretch, self._here.stretch = getattr(self._here, "stretch", None), None
        self._here.request = None
        if stretch is not None:
            self._reader.give_back(stretch)

    def _begin_of(self, window: Window) -> int:
        return window.steps.start * len(self.timeline.ranks)

    def _coming(self, time_of: int) -> tuple[Window, int] | None:
        """Returns the mini-batch that this process is likely to gather next, as far behind this one as this is behind
        the last one: its window, where that is there, and its number in it."""
        ranks = len(self.timeline.ranks)
        with self._changed:
            step, self._latest = time_of - self._latest, max(time_of, self._latest) if self._latest >= 0 else time_of
            self._stride = step if 0 < step <= 2 * ranks else self._stride or ranks
            coming = time_of + self._stride
            future = self._windows.get(self.timeline.number_of(coming // ranks))
        if future is None or not future.done() or future.exception() is not None:
            return None
        window = future.result()
        number = coming - self._begin_of(window)
        return (window, number) if 0 <= number < len(window.stretches) else None

    def _window_of(self, request: BatchRequest) -> Window | None:
        """Returns the window of a mini-batch, and has the next one packed; None where the mini-batch is in none, or has
        waited long enough."""
        step = self.timeline.step_of(request)
        if step is None:
            return None  # of an epoch that was not foreseen
        number = self.timeline.number_of(step)
        with self._changed:
            if self._is_closed:
                return None
            future = self._windows.get(number)
            if future is None:
                future = self._begin(number, is_first=not self._windows)
            self._forget(number)
            following = self.timeline.following(number)
            if following is not None and following not in self._windows:
                self._begin(following)
        check_process(self._pid, "What threads pack (gnnload-pack)")
        if number in self._late and not future.done():
            return None
        began = time.monotonic()
        while not future.done():
            wait([future], _POLL_S)
            if time.monotonic() > began + _PATIENCE_S and self._is_set_up:
                self._late.add(number)
                return None
        try:
            return future.result()
        except NoRoomError as error:
            self._go_without_room(request, error)
            return None
        except StoppedError:
            return None  # the run ends

    def _forget(self, number: int) -> None:
        """Lets go of the windows that this process reads no more: all but this one, the last one, and what follows on
        it, where another thread may be. Their files close with their last stretch. Under the lock."""
        neighbors = {number - 1, number, following := self.timeline.following(number)}
        neighbors.add(None if following is None else self.timeline.following(following))
        for distant in self._windows.keys() - neighbors:
            del self._windows[distant]

    def _begin(self, number: int, is_first: bool = False) -> Future[Window]:
        """Starts a thread that opens a window, and packs it before where need be. Of several, one packs at a time, as
        the folder has one lock. Under the lock of this object."""
        future = self._windows[number] = Future[Window]()

        def ready() -> None:
            try:
                future.set_result(self._ready(number, is_first))
            except BaseException as error:  # raised where the window is waited for
                future.set_exception(error)
            self._is_set_up = True

        self._packing = [thread for thread in self._packing if thread.is_alive()]
        self._packing.append(start_thread("gnnload-pack", ready))
        return future

    def _ready(self, number: int, is_first: bool) -> Window:
        """Opens a window, and packs it before where that is needed."""
        path = window_path(self.packer.folder, number)
        keep = range(number - 1, number + 2)
        problems = set[str]()  # that were warned of, as a window is looked up again and again until it is there
        while True:
            if self._is_closed or number not in self._windows:  # nobody needs it any more
                raise StoppedError
            if (window := self._open(path, number, problems)) is not None:
                return window
            with folder_lock(self.packer.folder, fcntl.LOCK_EX | fcntl.LOCK_NB) as is_ours:
                if is_ours:
                    # Looked up again: it may have come before the lock was free.
                    if (window := self._open(path, number, problems)) is not None:
                        return window
                    remove_window(path)  # a damaged one
                    self._remove(keep)
                    self.packer.pack(number, num_threads=None if is_first else 1, progress=self._progress and is_first)
                    if (window := self._open(path, number, problems)) is not None:
                        window.fresh.update(range(len(window.stretches)))
                        return window
            if not self._is_there:  # nobody gets its lock any more
                raise NoRoomError("the folder was removed, or may not be read")
            HEARTBEAT.beat()
            time.sleep(_POLL_S)

    @property
    def _is_there(self) -> bool:
        return self.packer.folder.is_dir() and os.access(self.packer.folder, os.R_OK | os.X_OK)

    def _open(self, path: Path, number: int, problems: set[str]) -> Window | None:
        steps = self.timeline.span(number)
        row_bytes = [table.packed_bytes for table in self.packer.tables]
        try:
            return open_window(path, self.packer.key, steps, row_bytes, len(self.timeline.ranks))
        except StoreFormatError as error:
            if str(error) not in problems:
                problems.add(str(error))
                warn(f"{error} It is packed anew.")
            return None

    def _replace(self, window: Window, error: StoreFormatError) -> None:
        """Packs a damaged window anew; mini-batches read the table meanwhile."""
        number = self.timeline.number_of(window.steps.start)
        with self._changed:
            future = self._windows.get(number)
            if self._is_closed or future is None or not future.done() or future.result() is not window:
                return  # another thread was faster
            warn(f"{error} The window is packed anew; until then mini-batches are read from the table.")
            remove_window(window_path(self.packer.folder, number))
            self._begin(number)
            self._late.add(number)

    def _go_without_room(self, request: BatchRequest, error: NoRoomError) -> None:
        with self._changed:
            if self._instead is None:
                warn(
                    f"there is no room for packed mini-batches in {self.packer.folder}: {error}. From here on rows are "
                    "read from the table, which takes longer."
                )
                self._instead = self._without_room()
        self._instead.announce(request)

    def _remove(self, keep: range) -> None:
        """Removes windows that were packed for this run alone."""
        for number in window_numbers(self.packer.folder):
            path = window_path(self.packer.folder, number)
            if number not in keep and not stays(path):
                remove_window(path)
