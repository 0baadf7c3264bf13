"""Fuzz cases: made from (target, seed, number) alone, run within limits, judged by what comes out."""

from __future__ import annotations

import contextlib
import resource
import shutil
import signal
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import FrameType

from lightning_gnnload.errors import GnnLoadError

CASE_SECONDS = 20.0
MEMORY_BYTES = 1 << 30  # on top of what is mapped before; inputs are of some kilobytes


@dataclass(frozen=True)
class Target:
    """What is fuzzed.

    Attributes:
        name: for messages and ``--target``.
        run: makes an input of the choices, in a folder that is empty at first, and hands it to the code under test.
            What it raises is judged; an outcome that is right, though no error of ours, it catches itself.
        num_quick: cases that take a second or two together.
        extras: of the package, that it needs.
    """

    name: str
    run: Callable[[Random, Path], None]
    num_quick: int
    extras: tuple[str, ...] = ()


class Finding(Exception):  # noqa: N818  what a fuzzer is there for, not an error
    """A case whose outcome is neither a result nor an error of ours; the cause is chained."""


class TimeLimit(BaseException):
    """No Exception, so that no handler in the code under test takes it for an error of its own."""


def run_case(target: Target, seed: int, number: int, folder: Path) -> bool:
    """Runs one case, below ``folder``; whether it came to a result, and not to an error of ours.

    Raises:
        Finding: anything else came out, warnings included.
    """
    place = folder / "case"
    place.mkdir()
    signal.setitimer(signal.ITIMER_REAL, CASE_SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            target.run(Random(f"{target.name} {seed} {number}"), place)
        return True
    except GnnLoadError:
        return False
    except (Exception, TimeLimit) as error:
        raise Finding(
            f"{target.name}: {type(error).__name__}: {error}\n"
            f"The same again: python -m tests.fuzz --target {target.name} --seed {seed} --case {number}"
        ) from error
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        shutil.rmtree(place)


@contextlib.contextmanager
def limits() -> Iterator[None]:
    """Around cases: an endless one is ended, and one that asks for far too much memory does not get it."""

    def end(number: int, frame: FrameType | None) -> None:
        raise TimeLimit(f"a case takes more than {CASE_SECONDS:.0f} s")

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    timer = signal.getitimer(signal.ITIMER_REAL)  # pytest's own time limit
    handler = signal.signal(signal.SIGALRM, end)
    resource.setrlimit(resource.RLIMIT_AS, (_mapped_bytes() + MEMORY_BYTES, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, *timer)


def _mapped_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
