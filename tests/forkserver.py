"""New interpreters within milliseconds, for the hundreds of ranks that tests start.

An interpreter takes four seconds of a core to import torch and Lightning. :class:`Popen` starts ``python script.py``,
``python -m module`` and ``python -c code`` as forks of a server, which has imported them and done nothing else. Such a
process is a child of the one that asked, as if that had started it: it has its own argv, environment (in /proc, too),
working directory, open files and session, runs the script as ``__main__``, and ends as an interpreter does. What it
starts itself by :mod:`subprocess` or by "spawn" is started so, too, from a server of its own; and, once it has called
:func:`serve_spawn`, what the tests' own process starts by "spawn".

What is read when Python starts or torch is imported is the server's, such as the seed of hashes. Where that matters,
where a GPU is used, and where the start of ranks is itself tested, :class:`subprocess.Popen` starts them
(``launch.start(anew=True)``). Where an import starts threads, which a fork would lack, nothing is forked, and a warning
says so: everything is a new interpreter then.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import ctypes
import faulthandler
import fcntl
import gc
import importlib
import inspect
import itertools
import json
import multiprocessing.util
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import types
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from tests.guards import HIDDEN

ROOT = Path(__file__).parents[1]
_IMPORTED = (
    *("torch.distributed.launcher.api", "torchmetrics", "pytorch_lightning", "jsonargparse"),
    *("lightning_gnnload.plugin.commands.cli", "lightning_gnnload.plugin.commands.fit"),
)
# Both are overwritten in place, where the kernel laid them out at exec: the server is started with padding.
_ROOM = {"argv": 1 << 13, "environment": 1 << 16}  # bytes that a process can show in /proc
# PR_SET_CHILD_SUBREAPER of <linux/prctl.h>.
_SET_CHILD_SUBREAPER = 36
_MOST_FILES = 64  # of a process that is started
_MOST_ANSWER_BYTES = 1 << 14
_libc = ctypes.CDLL(None, use_errno=True)
_execute_child = subprocess.Popen._execute_child
_SIGNATURE = inspect.signature(_execute_child)
_spawnv_passfds = multiprocessing.util.spawnv_passfds


class NoForksError(Exception):
    """The server cannot fork, and says why."""


class Popen(subprocess.Popen):
    """Starts an interpreter as a fork of the server; ``preexec_fn`` is not called. Anything else as its base does."""

    def _execute_child(self, *given: Any) -> None:
        bound = _SIGNATURE.bind(self, *given).arguments
        command = [os.fsdecode(part) for part in bound["args"]] if isinstance(bound["args"], list | tuple) else []
        if not command or bound["shell"] or _parsed(command) is None:
            _execute_child(self, *given)
            return
        pipes = [bound[name] for name in ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")]
        files = {0: bound["p2cread"], 1: bound["c2pwrite"], 2: bound["errwrite"]}
        files = {number: number if given == -1 else given for number, given in files.items()}
        files |= {number: number for number in bound["pass_fds"]}
        environment = bound["env"] if bound["env"] is not None else os.environ
        session = bool(bound["start_new_session"])
        try:
            self.pid = _server().start(command, dict(environment), str(bound["cwd"] or os.getcwd()), files, session)
        except NoForksError as error:
            _warn(error)
            _execute_child(self, *given)
            return
        self._child_created = True
        self._close_pipe_fds(*pipes)


def serve_spawn() -> None:
    """Has the processes that this one starts by "spawn" be forks of its server."""
    multiprocessing.util.spawnv_passfds = _spawn


class Server:
    """The asking side of a server: a socket to a process that forks."""

    def __init__(self, channel: socket.socket, pid: int) -> None:
        self._channel, self._pid = channel, pid
        self._lock = threading.Lock()

    def start(
        self, command: list[str], environment: dict[str, str], folder: str, files: dict[int, int], session: bool
    ) -> int:
        """Starts a child of this process and returns its id. ``files``: its open files, and which of ours they are."""
        request = {"command": command, "environment": environment, "folder": folder, "session": session}
        request |= {"parent": os.getpid(), "files": list(files)}
        with self._lock, _adopting():
            descriptors = array.array("i", files.values()).tobytes()
            self._channel.sendmsg([json.dumps(request).encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
            try:
                answer = self._channel.recv(_MOST_ANSWER_BYTES)
            except ConnectionResetError:  # it ended before it had read the request
                answer = b""
        if not answer:
            raise OSError("the server of forks is gone; what it wrote above may say why")
        if not answer.isdigit():
            raise NoForksError(answer.decode(errors="replace"))
        return int(answer)

    def close(self) -> None:
        """Ends the server, not what it has started."""
        self._channel.close()
        os.waitpid(self._pid, 0)


_set_by_imports: dict[str, str] = {}  # variables that a process has once it has imported what a server has
_known: dict[int, Server] = {}  # by process: a fork has none, or its own


def _server() -> Server:
    """Returns this process's server, which ends when this process does."""
    if os.getpid() not in _known:
        _known[os.getpid()] = started()
    return _known[os.getpid()]


def started(before: str = "") -> Server:
    """Starts a server, which runs the code ``before`` all else."""
    # Packets keep a request and its descriptors together; to receive nothing means that the other end is gone.
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environment = os.environ | {
        # A pool of threads, started by an import, would be missing in every fork.
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT, HIDDEN))),
        "GNNLOAD_TEST_ROOM": "-" * _ROOM["environment"],
    }
    code = f"{before}\nfrom tests import forkserver; forkserver.main({theirs.fileno()})"
    command = [sys.executable, "-c", code, "-" * _ROOM["argv"]]
    pid = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=environment).pid
    theirs.close()
    return Server(ours, pid)


@contextlib.contextmanager
def _adopting() -> Iterator[None]:
    """Makes this process the parent of its children's children, once their own parent has ended."""
    _libc.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        _libc.prctl(_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def main(descriptor: int) -> None:
    """Runs the server; and, in each fork, what it was asked to run."""
    channel = socket.socket(fileno=descriptor)
    try:
        before = dict(os.environ)
        for name in _IMPORTED:
            importlib.import_module(name)
        _set_by_imports.update({name: os.environ[name] for name in os.environ.keys() - before.keys()})
        threads = [Path(f"/proc/self/task/{task}/comm").read_text().strip() for task in os.listdir("/proc/self/task")]
        assert len(threads) == 1, f"{threads} run: a fork would lack all but one, and hang where one held a lock"
        # Without it, a fork's first collection would write to every object, and so copy all pages that forks share.
        gc.collect()
        gc.freeze()
        del before["GNNLOAD_TEST_ROOM"]
        _become(["tests.forkserver"], before)
    except BaseException:
        _refuse(channel, traceback.format_exc())
    _serve(channel)


def _serve(channel: socket.socket) -> None:
    """Forks for each request. Returns in a fork, when that has run; the interpreter's end is then the process's."""
    for number in (signal.SIGINT, signal.SIGTERM):  # sent to the group that it is in, and not meant for it
        signal.signal(number, signal.SIG_IGN)
    while True:
        message, files, _, _ = socket.recv_fds(channel, 1 << 20, _MOST_FILES)
        if not message:
            # Not sys.exit(): what imports have registered for the end of a process is not to run here.
            os._exit(0)
        read, write = os.pipe()
        if (between := os.fork()) == 0:  # ends at once, so that its child is adopted
            if pid := os.fork():
                os.write(write, str(pid).encode())
                os._exit(0)
            # Detached, or the socket would close its number again when another file may have it.
            for file in (channel.detach(), read, write):
                os.close(file)
            _run(json.loads(message), files)
            return
        for file in (*files, write):
            os.close(file)
        pid = os.read(read, 64)
        os.close(read)
        os.waitpid(between, 0)
        channel.send(pid)


def _refuse(channel: socket.socket, why: str) -> NoReturn:
    """Answers each request so."""
    while True:
        message, files, _, _ = socket.recv_fds(channel, 1 << 20, _MOST_FILES)
        if not message:
            os._exit(0)
        for file in files:
            os.close(file)
        channel.send(why.encode()[-_MOST_ANSWER_BYTES:])


def _warn(error: NoForksError) -> None:
    warnings.warn(f"New interpreters are started, as there can be no forks: {error}", stacklevel=2)


def _run(request: dict[str, Any], files: list[int]) -> None:
    limit = time.monotonic() + 60
    while os.getppid() != request["parent"]:  # until adopted
        if time.monotonic() > limit:
            os._exit(1)
        time.sleep(0.001)
    if request["session"]:
        os.setsid()
    above = [fcntl.fcntl(file, fcntl.F_DUPFD, 256) for file in files]  # none lies where another belongs
    for file in files:
        os.close(file)
    for number, file in zip(request["files"], above, strict=True):
        os.dup2(file, number)
        os.close(file)
    os.chdir(request["folder"])
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if (own := os.fork()) == 0:  # the server of what this process will start, and in the end that
        ours.close()
        _serve(theirs)
        return
    theirs.close()
    _known[os.getpid()] = Server(ours, own)
    atexit.register(_end, os.getpid(), own)
    # The server ignores both, and its forks inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _become(request["command"], request["environment"])
    # In the class itself, which torchrun has imported by name.
    subprocess.Popen._execute_child = Popen._execute_child  # type: ignore[attr-defined]
    serve_spawn()
    kind, what, sys.argv[1:] = _parsed(request["command"]) or ("", "", [])
    if kind == "module":
        sys.path[0] = os.getcwd()
        runpy.run_module(what, run_name="__main__", alter_sys=True)
        return
    sys.modules["__main__"] = script = types.ModuleType("__main__")
    if kind == "script":
        sys.argv[0] = script.__file__ = what
        sys.path[0] = os.path.dirname(os.path.abspath(what))
        source = Path(what).read_text()
    else:
        sys.argv[0], sys.path[0], source = "-c", "", what
    exec(compile(source, getattr(script, "__file__", "<string>"), "exec"), script.__dict__)


def _end(owner: int, server: int) -> None:
    # A fork of the owner inherits this hook, but the server is not its child.
    if os.getpid() == owner:
        os.kill(server, signal.SIGKILL)
        os.waitpid(server, 0)


def _parsed(command: Sequence[str]) -> tuple[str, str, list[str]] | None:
    """Tells whether a command runs a script, a module or code; which; and the arguments. None if that is not all."""
    rest = list(itertools.dropwhile(("-u", "-B").__contains__, command[1:]))
    if command[0] != sys.executable or not rest:
        return None
    if not rest[0].startswith("-"):
        return "script", rest[0], rest[1:]
    kinds = {"-m": "module", "-c": "code"}
    return (kinds[rest[0]], rest[1], rest[2:]) if rest[0] in kinds else None


def _become(command: Sequence[str], environment: dict[str, str]) -> None:
    """Makes the environment this process's, and shows it and the command in /proc."""
    environment = _set_by_imports | environment
    os.environ.clear()  # nothing of the C library points to where the first one lies from here on
    os.environ.update(environment)
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    variables = [f"{name}={value}" for name, value in environment.items()]
    for strings, begin, end in ((command, *fields[45:47]), (variables, *fields[47:49])):
        shown = b"".join(os.fsencode(string) + b"\0" for string in strings)
        room = int(end) - int(begin)
        assert len(shown) < room, f"{len(shown)} bytes to show, and room for {room}"
        ctypes.memmove(int(begin), shown.ljust(room, b"\0"), room)
    # The server's may be another than this environment's TMPDIR.
    tempfile.tempdir = None
    # A fork inherits the generator: without this, all would draw the same numbers.
    np.random.seed()
    if "PYTHONFAULTHANDLER" in environment:
        faulthandler.enable()
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(write_through="PYTHONUNBUFFERED" in environment)


def _spawn(path: str, command: Sequence[bytes | str], files: Sequence[int]) -> int:
    """Replaces :func:`multiprocessing.util.spawnv_passfds`, but not for trackers of resources, which import nothing."""
    decoded = [os.fsdecode(part) for part in command]
    if _parsed(decoded) is None or "--multiprocessing-fork" not in decoded:
        return _spawnv_passfds(path, command, files)
    try:
        return _server().start(
            decoded, dict(os.environ), os.getcwd(), {file: file for file in (0, 1, 2, *files)}, False
        )
    except NoForksError as error:
        _warn(error)
        return _spawnv_passfds(path, command, files)
