"""Encoders of text: each turns texts into rows of numbers, by words alone or by a model that is installed."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from functools import lru_cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from lightning_gnnload.errors import GnnLoadError, MissingExtraError, TableError
from lightning_gnnload.ingest.settings import did_you_mean

HASHING = "hashing"
"""The encoder by words alone, which needs no model."""
GROUP = "lightning_gnnload.text_encoders"
"""Where an installed package registers encoders, as entry points: callables that return a :class:`TextEncoder`."""
_PROBE = "The quick brown fox jumps over the lazy dog."
_PROBED = 8  # numbers of its row, which tell models apart
_PICKLES = {".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".joblib"}


class TextEncoder(Protocol):
    """What turns texts into rows, as models of sentence-transformers do."""

    def encode(self, texts: list[str]) -> Any:
        """Returns numbers ``[n, width]`` for n texts: the same for the same text."""


class Hashing:
    """Counts words: each adds 1 or -1 to a column that its hash names, and rows get the length 1.

    Texts that share words have similar rows. No table of words is kept, so that new ones need no other build.

    Source: Weinberger et al., Feature hashing for large scale multitask learning (ICML'09).

    Example:
        >>> rows = Hashing(64).encode(["Red shoes", "red, red shoes!", "a lamp"])
        >>> [f"{number:.2f}" for number in rows[0] @ rows.T]
        ['1.00', '0.95', '0.00']
    """

    def __init__(self, width: int) -> None:
        self.width = width

    def encode(self, texts: list[str]) -> np.ndarray:
        import pyarrow as pa
        import pyarrow.compute as pc

        words = pc.split_pattern_regex(pc.utf8_lower(pa.array(texts, pa.large_string())), r"[^\pL\pN]+")
        coded = words.flatten().dictionary_encode()
        # Python counts distinct words alone, which are few.
        distinct = coded.dictionary.to_pylist()
        hashes = np.array([zlib.crc32(word.encode("utf-8", "surrogateescape")) for word in distinct], np.int64)
        signs = np.where(np.array(distinct, object) == "", 0, 1 - 2 * (hashes >> 31)).astype(np.float32)
        index = coded.indices.to_numpy(zero_copy_only=False)
        rows = np.zeros((len(texts), self.width), np.float32)
        at = np.repeat(np.arange(len(texts)), pc.list_value_length(words).to_numpy(zero_copy_only=False))
        np.add.at(rows, (at, hashes[index] % self.width), signs[index])
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        return rows / np.where(lengths == 0, 1, lengths)


@lru_cache(maxsize=4)
def open_encoder(name: str, home: Path, width: int) -> TextEncoder:
    """Opens an encoder: ``"hashing"`` of ``width`` columns, one that a package has registered, or a model of
    sentence-transformers: a folder, which counts from ``home``, or one that was downloaded before.

    Raises:
        MissingExtraError: sentence-transformers is needed, and not installed.
        TableError: there is no such model on this machine; or it brings code or pickles.
    """
    if name == HASHING:
        return Hashing(width)
    registered = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name in registered:
        encoder: TextEncoder = registered[name].load()()
        return encoder
    folder = home / name
    names = [HASHING, *registered]
    if not folder.is_dir() and "/" not in name and did_you_mean(name, names) != ".":
        raise TableError(f"text: {name!r} is no encoder{did_you_mean(name, names)}")
    return _sentence_model(name, folder)


def encoded(encoder: TextEncoder, texts: list[str], name: str, width: int | None = None) -> np.ndarray:
    """Returns the rows of texts, float32 ``[n, width]``; raises TableError where the encoder gives others."""
    if not texts:
        return np.zeros((0, width or 1), np.float32)
    try:
        rows = np.asarray(encoder.encode(texts)).astype(np.float32)
    except GnnLoadError:
        raise
    except Exception as error:  # a model's own, whatever it is
        raise TableError(f"text: the encoder {name!r} failed: {type(error).__name__}: {error}") from error
    if rows.shape != (len(texts), width or rows.shape[-1]) or not np.isfinite(rows).all():
        raise TableError(
            f"text: the encoder {name!r} gave {list(rows.shape)} for {len(texts)} texts, or numbers that are not "
            f"finite. Needed are rows of {width or 'one'} width."
        )
    return rows


def probe_of(encoder: TextEncoder, name: str) -> tuple[int, tuple[float, ...]]:
    """Returns the width of an encoder's rows, and the first numbers of one that tells models apart."""
    row = encoded(encoder, [_PROBE], name)[0]
    return len(row), tuple(float(f"{number:.5g}") for number in row[:_PROBED])


def check_probe(encoder: TextEncoder, name: str, width: int, probe: Sequence[float]) -> None:
    """Raises TableError: it is another model than the one of this name that rows were made with."""
    new_width, new_probe = probe_of(encoder, name)
    if new_width != width or not np.allclose(new_probe, probe, rtol=1e-3, atol=1e-4):
        raise TableError(
            f"text: the encoder {name!r} is another than that of the transforms: it gives other rows ({new_width} "
            f"numbers, of {width}). Install the same model, or build without transforms and train again."
        )


def _sentence_model(name: str, folder: Path) -> TextEncoder:
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise MissingExtraError("sentence_transformers", "text", f"The text encoder {name!r}", error) from error
    if folder.is_dir():
        _check_harmless(folder, name)
    try:
        # Nothing is fetched while a graph is built, and a description brings no code.
        model: TextEncoder = SentenceTransformer(
            str(folder) if folder.is_dir() else name,
            device="cpu",
            local_files_only=True,
            trust_remote_code=False,
            model_kwargs={"use_safetensors": True},
        )
    except Exception as error:  # of several libraries
        if folder.is_dir():
            reason = (str(error).strip().splitlines() or [repr(error)])[0]
            raise TableError(f"text: the model in {folder} cannot be read: {reason}") from error
        raise TableError(
            f"text: there is no model {name!r} on this machine, neither a folder {folder} nor one that was downloaded. "
            f"Nothing is fetched while a graph is built: download it before, or say text: {HASHING}, which needs none."
        ) from error
    return model


def _check_harmless(folder: Path, name: str) -> None:
    """Raises TableError: the folder of a model has files that can run code when they are read, or names code."""
    for file in sorted(folder.rglob("*")):
        if file.suffix in _PICKLES:
            raise TableError(
                f"text: {name!r} has {file.relative_to(folder)}, which may be a pickle: reading it could run code. "
                "Save the model with safetensors, and leave that file out."
            )
    modules = folder / "modules.json"
    try:
        entries = json.loads(modules.read_text(encoding="utf-8")) if modules.is_file() else []
        types = [str(entry["type"]) for entry in entries]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TableError(f"text: {modules} cannot be read: {error!r}.") from error
    if foreign := [type_ for type_ in types if not type_.startswith("sentence_transformers.")]:
        raise TableError(f"text: {name!r} is made of {foreign[0]!r}, but only code of sentence_transformers is run.")
