"""A fork of the server is to who starts it, and to itself, what a new interpreter is."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests import forkserver

TELLS = """
import atexit, json, os, subprocess, sys
import torch, psutil

def tell():
    this = psutil.Process()
    return {"argv": sys.argv, "parent": os.getppid(), "folder": os.getcwd(), "main": __name__, "spec": __spec__,
            "file": __file__, "path": sys.path[0], "shown": list(filter(None, this.cmdline()))[-2:],
            "own": os.environ.get("OWN"), "own_shown": this.environ().get("OWN"), "others": os.environ.get("OTHERS"),
            "session": os.getsid(0) == os.getpid(), "files": len(os.listdir("/proc/self/fd")), "pid": os.getpid()}

if __name__ == "__main__":
    print(json.dumps(tell()))
    if sys.argv[1] == "first":
        assert subprocess.run([sys.executable, __file__, "second"], env=os.environ | {"OWN": "theirs"}).returncode == 3
        atexit.register(print, '"the end"')
    sys.exit({"first": 0, "second": 3}[sys.argv[1]])
"""


@pytest.mark.parametrize("popen", [forkserver.Popen, subprocess.Popen])
def test_a_process_finds_what_a_new_interpreter_would(popen: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("OTHERS", "not for it")
    variables = {name: value for name, value in os.environ.items() if name != "OTHERS"} | {"OWN": "mine"}
    script = tmp_path / "tells.py"
    script.write_text(TELLS)
    command = [sys.executable, str(script), "first"]
    process = popen(command, cwd=tmp_path, env=variables, stdout=subprocess.PIPE, text=True, start_new_session=True)
    lines = process.communicate()[0].splitlines()
    assert process.returncode == 0
    assert lines[2:] == ['"the end"']
    first, second = map(json.loads, lines[:2])
    files = first.pop("files"), second.pop("files")
    assert max(files) <= 5, "none but the three, the listing, and the server's"
    alike = {"folder": str(tmp_path), "main": "__main__", "spec": None, "file": str(script), "path": str(tmp_path)}
    assert first == alike | {
        "argv": [str(script), "first"],
        "parent": os.getpid(),
        "shown": [str(script), "first"],
        "own": "mine",
        "own_shown": "mine",
        "others": None,
        "session": True,
        "pid": process.pid,
    }
    assert second.pop("pid") != process.pid
    assert second == alike | {
        "argv": [str(script), "second"],
        "parent": process.pid,
        "shown": [str(script), "second"],
        "own": "theirs",
        "own_shown": "theirs",
        "others": None,
        "session": False,
    }


def test_how_it_ended_is_told() -> None:
    with forkserver.Popen([sys.executable, "-c", "raise ValueError('mine')"], stderr=subprocess.PIPE) as process:
        assert process.communicate()[1].endswith(b"\nValueError: mine\n")
    assert process.returncode == 1
    with forkserver.Popen([sys.executable, "-c", "import os; os.abort()"]) as process:
        assert process.wait() == -signal.SIGABRT


def test_its_server_ends_with_it() -> None:
    code = "import time; print('there', flush=True); time.sleep(60)"
    with forkserver.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "there\n"
        (server,) = psutil.Process(process.pid).children()
        process.kill()
    _, left = psutil.wait_procs([server], timeout=10)
    assert not [each for each in left if each.status() != psutil.STATUS_ZOMBIE]


def test_what_is_no_interpreter_is_started_as_ever() -> None:
    with forkserver.Popen(["echo", "said"], stdout=subprocess.PIPE) as process:
        assert process.communicate()[0] == b"said\n"


def test_where_imports_start_threads_processes_are_new_interpreters(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on machines whose libraries do so. A fork would lack the threads, so the server refuses, and says which."""
    thread = "import threading, time; threading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
    server = forkserver.started(thread)
    monkeypatch.setattr(forkserver, "_known", {os.getpid(): server})
    with pytest.warns(UserWarning, match=r"no forks: (.|\n)*a fork would lack all but one"):
        process = forkserver.Popen([sys.executable, "-c", "print(7)"], stdout=subprocess.PIPE, text=True)
    assert process.communicate(timeout=60)[0] == "7\n"
    assert process.returncode == 0
    server.close()


def test_a_server_that_is_gone_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    server = forkserver.started("import os; os._exit(1)")
    monkeypatch.setattr(forkserver, "_known", {os.getpid(): server})
    with pytest.raises(OSError, match="the server of forks is gone"):
        forkserver.Popen([sys.executable, "-c", "print(7)"])
    server.close()
