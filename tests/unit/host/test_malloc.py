"""Freed memory stays where malloc is glibc's and nobody has set it: faults are counted, in processes of their own."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lightning_gnnload.host import malloc
from tests.faulted import PAGES

FILE = Path(malloc.__file__)
ROOT = FILE.parents[2]
pytestmark = pytest.mark.skipif(malloc.glibc_release() is None, reason="malloc is not glibc's here")


def run(code: str, **environment: str) -> str:
    """Runs code in an interpreter of its own, as nothing takes back what a process has told malloc."""
    kept = {name: value for name, value in os.environ.items() if not re.match("GLIBC_|MALLOC_|GNNLOAD_KEEP", name)}
    code = f"from lightning_gnnload.host.malloc import freed_memory_kept\nfrom tests.faulted import *\n{code}"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=kept | environment, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_freed_memory_is_used_again_and_goes_back_at_the_end() -> None:
    printed = run(
        "before = faults_of_a_step()\n"
        "with freed_memory_kept() as kept:\n"
        "    during, most = faults_of_a_step(), resident_pages()\n"
        "print(kept, before, during, most - resident_pages())"
    )
    kept, *counts = printed.split()
    before, during, returned = map(int, counts)
    assert kept == "True"
    assert before > 0.9 * PAGES
    assert during < 0.01 * PAGES
    assert returned > 0.9 * PAGES


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("GNNLOAD_KEEP_MEMORY", "off"),
        ("MALLOC_TRIM_THRESHOLD_", "131072"),
        ("MALLOC_MMAP_MAX_", "100"),
        ("GLIBC_TUNABLES", "glibc.malloc.mmap_threshold=131072"),
    ],
)
def test_what_the_user_has_set_stands(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    printed = run("with freed_memory_kept() as kept:\n    print(kept, faults_of_a_step())", **{name: value})
    kept, faults = printed.split()
    assert kept == "False"
    assert int(faults) > 0.9 * PAGES
    monkeypatch.setenv(name, value)
    assert malloc.setting_in_environment() == f"{name}={value}"


def test_other_settings_of_malloc_are_no_decision_on_this(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1")
    monkeypatch.setenv("MALLOC_ARENA_MAX", "2")
    monkeypatch.setenv("GNNLOAD_KEEP_MEMORY", "1")
    assert malloc.setting_in_environment() == ""


def test_another_malloc_is_left_alone(tmp_path: Path) -> None:
    """As jemalloc and tcmalloc come, with a mallopt of their own, which ours must not call."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    source, library = tmp_path / "other.c", tmp_path / "libothermalloc.so"
    source.write_text(
        "#include <stddef.h>\n#include <stdlib.h>\nvoid *__libc_malloc(size_t);\n"
        "void *malloc(size_t bytes) { return __libc_malloc(bytes); }\n"
        "int mallopt(int name, int value) { abort(); }\nint malloc_trim(size_t pad) { abort(); }\n"
    )
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    code = f"import runpy; m = runpy.run_path({str(FILE)!r}); k = m['freed_memory_kept']()\n"
    code += "with k as kept: print(kept, m['glibc_release'](), m['allocator']())"
    environment = {**os.environ, "LD_PRELOAD": str(library)}
    done = subprocess.run([sys.executable, "-S", "-c", code], env=environment, capture_output=True, text=True)
    assert done.stdout == "False None libothermalloc.so\n", done.stderr


def test_old_releases_that_refuse_the_threshold_map_no_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before 2.35 a threshold above 32 MiB is refused: 0 is what mallopt returns then."""
    calls = []

    class Old:
        def mallopt(self, name: int, value: int) -> int:
            calls.append((name, value))
            return int(name != -3 or value <= 32 << 20)

        def malloc_trim(self, pad: int) -> int:
            return 1

    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    monkeypatch.setattr(malloc, "glibc_release", lambda: "2.31")
    monkeypatch.setattr(ctypes, "CDLL", lambda _: Old())
    with malloc.freed_memory_kept() as kept:
        assert kept
    assert (-4, 0) in calls
    assert (-1, -1) in calls
