"""Debian: the packages of Debian 12 and their relations; small, real, and part of this package."""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.graphdata import SPLITS, GraphData
from lightning_gnnload.data.userids import UserIds
from lightning_gnnload.datasets.base import default_root
from lightning_gnnload.datasets.stored import StoredDataset
from lightning_gnnload.errors import DatasetError

EDGE_TYPES = ("Depends", "Pre-Depends", "Recommends", "Suggests", "Enhances")
# What packages have in common, and how it relates to them: node types of the graph with types.
GROUPS = {"source": "builds", "maintainer": "maintains"}
SOURCE = Path(__file__).with_name("debian_bookworm.npz")  # written by scripts/make_debian.py
_RECIPE = 3  # part of the settings: raise it when the same source would give other arrays


@dataclass(frozen=True)
class Debian(StoredDataset):
    """Provides the packages of Debian 12 (bookworm, main, amd64); the task is to predict a package's archive section.

    An edge ``b -> a`` of type ``"Depends"`` says that package ``a`` depends on ``b``: the in-neighbours of a
    package are what it needs. With ``both_directions``, ``"rev_Depends"`` edges run the other way. There are
    no self-loops, and no edge comes twice under one type. Node ids follow the alphabet.

    Features are float32 ``[63436, 128]``: the words of the one-line description, without the package's own
    name, as a TF-IDF vector reduced to 128 dimensions and scaled to a mean square of one (zeros where no word
    is left). Labels are int64, 58 classes, which have the sections' names; the names of packages are the user's ids. A
    fixed random 60 / 20 / 20 per cent of the packages train, validate and test.

    With ``typed``, the 34,169 sources and 2,248 maintainers of the packages are nodes as well, without features. The
    graph then has types, ``Graph.types``: its edge types are ``("package", "Depends", "package")`` and so on,
    ``("source", "builds", "package")`` and ``("maintainer", "maintains", "package")``, and their reverses, ``rev_...``.

    Args:
        root: the folder to keep prepared graphs in; a per-user cache folder by default.
        edge_types: relations to keep, of ``EDGE_TYPES``; their order does not matter.
        both_directions: add the reverse of each edge, under a type of its own.
        typed: a graph with types of nodes.

    Raises:
        DatasetError: an unknown edge type, or none.

    Example:
        >>> Debian(edge_types=["Pre-Depends", "Depends"]).edge_type_names
        ('Depends', 'Pre-Depends', 'rev_Depends', 'rev_Pre-Depends')
    """

    root: str | Path | None = None
    edge_types: tuple[str, ...] = EDGE_TYPES
    both_directions: bool = True
    typed: bool = False

    def __post_init__(self) -> None:
        names = self.edge_types
        unknown = [names] if isinstance(names, str) else [name for name in names if name not in EDGE_TYPES]
        if unknown or not names:
            problem = f"has no edge type {unknown[0]!r}" if unknown else "needs at least one edge type"
            raise DatasetError(f"Debian {problem}; edge_types must be a tuple of some of {', '.join(EDGE_TYPES)}.")
        # One order, so that equal sets of types share a folder.
        object.__setattr__(self, "edge_types", tuple(name for name in EDGE_TYPES if name in names))

    @property
    def edge_type_names(self) -> tuple[str, ...]:
        """What each value of ``graph.edge_type`` stands for, where the graph has no types of nodes."""
        reverse = [f"rev_{name}" for name in self.edge_types if self.both_directions]
        return (*self.edge_types, *reverse)

    @property
    def class_names(self) -> tuple[str, ...]:
        """The archive section that each label stands for."""
        return _lines(_read_source("class_names")["class_names"])

    def names(self) -> tuple[str, ...]:
        """Returns the package that each node stands for. Reads the source each time: keep what you need often."""
        return _lines(_read_source("names")["names"])

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "dataset": "debian-bookworm",
            "recipe": _RECIPE,
            "source_sha256": _source_checksum(),
            "edge_types": list(self.edge_types),
            "both_directions": self.both_directions,
            "typed": self.typed,
        }

    @property
    def folder(self) -> Path:
        # The source's checksum stays out: a new release replaces the folder of the one before.
        bits = "".join("01"[name in self.edge_types] for name in EDGE_TYPES)
        directions = "both" if self.both_directions else "one"
        types = "-typed" if self.typed else ""
        return Path(self.root or default_root()) / f"debian-bookworm-{bits}-{directions}{types}"

    def build(self, scratch: Path) -> GraphData:
        arrays = [f"{part}.{name}" for name in self.edge_types for part in ("degrees", "neighbors")]
        arrays += [f"group.{name}" for name in GROUPS] if self.typed else []
        source = _read_source("names", "class_names", "labels", "split", "words", "num_words", "word_vectors", *arrays)
        columns: dict[str, Any] = {"x": _features(source), "y": source["labels"].astype(np.int64)}
        columns |= {name: np.flatnonzero(source["split"] == code) for code, name in enumerate(SPLITS)}
        columns["user_ids"] = UserIds.of(_lines(source["names"]), column="package")
        class_names = _lines(source["class_names"])
        classes: dict[str, Any] = {"num_classes": len(class_names), "class_names": class_names}
        if self.typed:
            by_type: dict[str, Any] = {name: {"package": rows} for name, rows in columns.items()}
            return GraphData(self._typed_graph(source), **by_type, **classes)
        return GraphData(self._graph(source), **columns, **classes)

    def _pairs(self, source: dict[str, np.ndarray]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Returns of each relation what packages name, and the packages that name it: int32 ``[E]`` each."""
        packages = np.arange(len(source["labels"]), dtype=np.int32)
        return {
            name: (source[f"neighbors.{name}"].astype(np.int32), np.repeat(packages, source[f"degrees.{name}"]))
            for name in self.edge_types
        }

    def _graph(self, source: dict[str, np.ndarray]) -> Graph:
        pairs = list(self._pairs(source).values())
        if self.both_directions:
            pairs += [(package, related) for related, package in pairs]
        src, dst = (np.concatenate(side) for side in zip(*pairs, strict=True))
        edge_type = np.repeat(np.arange(len(pairs), dtype=np.int8), [len(pair[0]) for pair in pairs])
        return Graph.from_coo(src, dst, len(source["labels"]), edge_type=edge_type)

    def _typed_graph(self, source: dict[str, np.ndarray]) -> Graph:
        packages = np.arange(len(source["labels"]), dtype=np.int32)
        groups = {name: source[f"group.{name}"].astype(np.int32) for name in GROUPS}
        # PyG makes names of modules of these, which a hyphen cannot be in.
        pairs = {name.replace("-", "_"): pair for name, pair in self._pairs(source).items()}
        edges = {("package", name, "package"): pair for name, pair in pairs.items()}
        edges |= {(name, GROUPS[name], "package"): (group, packages) for name, group in groups.items()}
        if self.both_directions:
            edges |= {(dst, f"rev_{name}", src): pair[::-1] for (src, name, dst), pair in edges.items()}
        num_nodes = {"package": len(packages)} | {name: int(group.max()) + 1 for name, group in groups.items()}
        return Graph.from_hetero(num_nodes, edges, keep_order=True)


def _features(source: dict[str, np.ndarray]) -> torch.Tensor:
    """Returns float32 ``[N, F]``: the sum of each description's word vectors, scaled to length ``sqrt(F)``."""
    vectors = torch.from_numpy(source["word_vectors"].astype(np.float32))
    words = torch.from_numpy(source["words"].astype(np.int64))
    end = np.cumsum(source["num_words"], dtype=np.int64)
    start = torch.from_numpy(end - source["num_words"])
    x = F.embedding_bag(words, vectors, start, mode="sum")
    return F.normalize(x) * float(vectors.shape[1]) ** 0.5


def _read_source(*names: str) -> dict[str, np.ndarray]:
    try:
        with np.load(SOURCE, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in names}
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise _source_error(error) from error


def _source_checksum() -> str:
    try:
        return hashlib.sha256(SOURCE.read_bytes()).hexdigest()
    except OSError as error:
        raise _source_error(error) from error


def _source_error(error: Exception) -> DatasetError:
    return DatasetError(
        f"Debian cannot read {SOURCE}, which is part of this package: {error}. Install the package again."
    )


def _lines(text: np.ndarray) -> tuple[str, ...]:
    return tuple(text.tobytes().decode().split("\n"))
