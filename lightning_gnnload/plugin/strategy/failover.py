"""Failover: a sampler whose rank must not be seen to die serves in a child process first.

torchrun, and whoever spawns ranks, ends the whole job when one rank ends badly. There, a sampler's rank forks: the
child samples, and the rank waits. If the child is killed, the rank samples in its stead, at the same listening socket.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch

from lightning_gnnload.host.memfd import MemoryFile
from lightning_gnnload.host.sockets import receive_fds
from lightning_gnnload.pipeline.queue.failure import Failure
from lightning_gnnload.pipeline.queue.sealed import adopt_sealed
from lightning_gnnload.pipeline.queue.service import SamplerService

_PR_SET_PDEATHSIG = 1
_POLL_MS = 500
_log = logging.getLogger(__name__)


def serve(service: SamplerService, *, with_failover: bool, ignore: Sequence[signal.Signals] = ()) -> MemoryFile | None:
    """Serves the trainers until they end; returns the sealed outcome, if trainer 0 sent one.

    With ``with_failover`` a child process serves first, and this one only if that is killed. ``ignore`` are signals
    meant for trainers alone. Raises PeerError if a trainer ended badly, and whatever the sampler or its child raised.
    """
    with _handlers(dict.fromkeys(ignore, signal.SIG_IGN)):
        return _serve(service, with_failover)


def _serve(service: SamplerService, with_failover: bool) -> MemoryFile | None:
    # CUDA's context does not survive a fork.
    if with_failover and torch.cuda.is_initialized():
        _log.warning("This sampler uses CUDA, and cannot fork: should its process be killed, the job ends.")
        with_failover = False
    if with_failover:
        words, outcome = _serve_in_child(service)
        if words is not None:
            service.close()
            if "failure" in words:
                raise Failure(**words["failure"]).error()
            return outcome
    with _signals_to(lambda number: _interrupt_unless_served(service)):
        return service.serve(is_successor=with_failover)


def _serve_in_child(service: SamplerService) -> tuple[dict[str, Any] | None, MemoryFile | None]:
    """Returns the child's last message, and the outcome that it received; None for both when it was killed."""
    parent_end, child_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    rank_pid, child = os.getpid(), 0
    early: list[int] = []

    def pass_on(number: int) -> None:
        if child:
            os.kill(child, number)
        else:
            early.append(number)

    for stream in (sys.stdout, sys.stderr):
        stream.flush()  # else what is buffered is written twice
    with _signals_to(pass_on):
        # The service's threads start in ``serve``: a fork would copy none of them.
        pid = os.fork()
        if pid == 0:
            parent_end.close()
            _run_child(service, rank_pid, child_end)
        child_end.close()
        with parent_end:
            parent_end.recv(1)  # it has its own handlers now, or is gone; an earlier signal would have been lost
            child = pid
            for number in early:
                os.kill(child, number)
            poll = select.poll()
            poll.register(parent_end, select.POLLIN)
            while not poll.poll(_POLL_MS):
                pass  # in pieces: Python hears of a signal that comes just before a wait only after it
            message, fds, _ = receive_fds(parent_end)
            child = 0
        os.waitpid(pid, 0)
    if not message:
        return None, None
    words = json.loads(message)
    return words, adopt_sealed(fds[0], words["num_bytes"]) if fds else None


def _run_child(service: SamplerService, rank_pid: int, rank: socket.socket) -> None:
    """Runs the child to its end. It skips exit handlers, which are the rank's to run."""
    words: dict[str, Any] = {}
    fds: list[int] = []
    try:
        _end_with(rank_pid)
        with _signals_to(lambda number: _interrupt_unless_served(service)):
            rank.send(b"\n")
            outcome = service.serve()
            words = {"num_bytes": 0 if outcome is None else len(outcome.array)}
            fds = [] if outcome is None else [outcome.fd]
    except BaseException as error:
        words = {"failure": Failure.of(error, role="sampler", rank=service.rank, stage="serve").to_json()}
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        socket.send_fds(rank, [json.dumps(words).encode()], fds)
        os._exit(0)


def _end_with(parent: int) -> None:
    """Has the kernel kill this process when its parent's main thread ends, and thus the parent."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it has ended in between
        os._exit(1)


def _interrupt_unless_served(service: SamplerService) -> None:
    """Ends a sampler that has no trainers yet. Others ignore Ctrl-C and SIGTERM, as trainers that stop gracefully still
    need batches: a goodbye or a closed connection ends them."""
    if not service.has_all_trainers:
        raise KeyboardInterrupt


def _signals_to(handle: Callable[[int], None]) -> AbstractContextManager[None]:
    """Has Ctrl-C and SIGTERM call ``handle`` within the context."""

    def handler(number: int, frame: Any) -> None:
        handle(number)

    return _handlers({signal.SIGINT: handler, signal.SIGTERM: handler})


@contextmanager
def _handlers(handlers: dict[signal.Signals, Any]) -> Iterator[None]:
    """Sets handlers of signals. Python lets the main thread alone do so: in another one, as Ray Train runs functions,
    signals stay with whoever started the process."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)
