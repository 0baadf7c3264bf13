"""Damage to files and to what is parsed from them: what broken disks, other programs and attackers do."""

from __future__ import annotations

import contextlib
import copy
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

ODD_NUMBERS = (-1, 0, 1, 2, 3, 2**31 - 1, 2**31, 2**47, 2**63, 2**64, -(2**63), 10**30, 0.5, float("nan"), 1e300)
ODD_TEXTS = ("", ".", "..", "../x.bin", "/etc/hostname", "x.bin", "y.bin", "\0", "\ud800", "ä", "a" * 5000, "int32")


def damage_file(random: Random, file: Path, outside: Path) -> None:
    """Damages one file of a folder; ``outside`` is a file elsewhere, of the same size or not."""
    random.choice(_WAYS)(random, file, outside)


def damage_json(random: Random, value: Any) -> Any:
    """``value`` with something in it changed, removed, added or buried."""
    places = list(_places(value))
    holder, key = random.choice(places) if places else (None, None)
    way = random.randrange(5)
    if holder is None or way == 0:
        return random.choice([None, [], {}, 3, "text", [value], {"a": value}])
    if way == 1:
        del holder[key]
    elif way == 2 and isinstance(holder, dict):
        holder[random.choice([*holder, *ODD_TEXTS])] = copy.deepcopy(holder[key])
    elif way == 3:
        other_holder, other_key = random.choice(places)
        holder[key] = copy.deepcopy(other_holder[other_key])
    else:
        holder[key] = odd_value(random)
    return value


def odd_value(random: Random, depth: int = 0) -> Any:
    """A JSON value that is likely to be wrong wherever it stands."""
    kind = random.randrange(7 if depth < 3 else 5)
    if kind < 2:
        return random.choice(ODD_NUMBERS)
    if kind < 4:
        return random.choice(ODD_TEXTS)
    if kind == 4:
        return random.choice([None, True, False])
    inner = [odd_value(random, depth + 1) for _ in range(random.randrange(4))]
    return inner if kind == 5 else {random.choice(["file", "dtype", "shape", "crc32", "a"]): v for v in inner}


def damage_bytes(random: Random, content: bytes) -> bytes:
    """Some bits flipped, bytes lost, bytes added, a stretch repeated, or set to one value."""
    content = bytearray(content)
    at = random.randrange(len(content) + 1)
    length = random.choice([1, 1, 2, 4, 8, 64, 512])
    way = random.randrange(6)
    if way == 0:
        del content[at:]
    elif way == 1:
        content[at:at] = random.randbytes(length)
    elif way == 2:
        del content[at : at + length]
    elif way == 3:
        content[at:at] = content[at : at + length]
    elif way == 4:
        content[at : at + length] = bytes([random.choice([0, 0x7F, 0x80, 0xFF])]) * len(content[at : at + length])
    else:
        for _ in range(random.choice([1, 1, 2, 8])):
            if content:
                content[random.randrange(len(content))] ^= 1 << random.randrange(8)
    return bytes(content)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from _places(value[key])


def _spoil(random: Random, file: Path, outside: Path) -> None:
    if file.is_file():
        file.write_bytes(damage_bytes(random, file.read_bytes()))


def _remove(random: Random, file: Path, outside: Path) -> None:
    with contextlib.suppress(OSError):
        shutil.rmtree(file) if file.is_dir() and not file.is_symlink() else file.unlink()


def _swap(random: Random, file: Path, outside: Path) -> None:
    other = random.choice(sorted(file.parent.iterdir()))
    if other != file and file.exists():
        spare = file.parent / "spare"
        os.rename(file, spare)
        os.rename(other, file)
        os.rename(spare, other)


def _replace_by(make: Callable[[Random, Path, Path], None]) -> Callable[[Random, Path, Path], None]:
    def replace(random: Random, file: Path, outside: Path) -> None:
        _remove(random, file, outside)
        make(random, file, outside)

    return replace


def _link(random: Random, file: Path, outside: Path) -> None:
    places: list[str | Path] = [
        outside,
        file.parent / "x.bin",
        file,
        "nowhere",
        "/dev/zero",
        "/dev/full",
        "/proc/self/mem",
    ]
    file.symlink_to(random.choice(places))


_WAYS: list[Callable[[Random, Path, Path], None]] = [
    *[_spoil] * 8,
    _remove,
    _swap,
    _replace_by(_link),
    _replace_by(lambda random, file, outside: file.mkdir()),
    _replace_by(lambda random, file, outside: os.mkfifo(file)),
]
