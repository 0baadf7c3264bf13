"""Makes the file behind the ``Debian`` dataset from the package index that apt keeps.

    apt-get update
    python scripts/make_debian.py /var/lib/apt/lists/*_dists_bookworm_main_binary-amd64_Packages*

Indexes are read as plain text, ``.gz``, ``.xz``, or ``.lz4`` (by apt's own ``apt-helper``). The same indexes,
and versions of NumPy and SciPy, give the same bytes. docs/guides/debian.md says what is kept and why.
"""

from __future__ import annotations

import argparse
import gzip
import io
import lzma
import re
import subprocess
import zipfile
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix, diags
from scipy.sparse.linalg import svds

from lightning_gnnload.datasets import debian

APT_HELPER = "/usr/lib/apt/apt-helper"
NUM_BUCKETS = 8192  # of the word hash; more costs 128 bytes each in the file
NUM_FEATURES = 128
SEED = 20230610  # bookworm's release day
TRAIN_SHARE, VAL_SHARE = 0.6, 0.2

Package = dict[str, str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "indexes",
        nargs="+",
        type=Path,
        help="apt's Packages files; a later one replaces packages of an earlier one",
    )
    parser.add_argument("--out", type=Path, default=debian.SOURCE, help="file to write (default: %(default)s)")
    options = parser.parse_args()
    packages = parse_index("\n\n".join(read_index(path) for path in options.indexes))
    arrays = make_arrays(packages)
    write_npz(options.out, arrays)
    edges = sum(len(arrays[f"neighbors.{field}"]) for field in debian.EDGE_TYPES)
    print(f"{options.out}: {len(packages)} packages, {edges} edges, {options.out.stat().st_size} bytes")


def read_index(path: Path) -> str:
    """The text of one Packages file."""
    if path.suffix == ".lz4":
        return subprocess.run([APT_HELPER, "cat-file", str(path)], check=True, capture_output=True).stdout.decode()
    opener = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)
    with opener(path, "rb") as file:
        return file.read().decode()


def parse_index(text: str) -> dict[str, Package]:
    """Packages by name, in alphabetical order. Of several versions of one, the last in the index counts."""
    packages: dict[str, Package] = {}
    for paragraph in re.split(r"\n(?:[ \t]*\n)+", text.strip()):
        # A line that begins with a blank continues the one before.
        lines = re.sub(r"\n[ \t]+", " ", paragraph).split("\n")
        fields = dict(line.split(":", 1) for line in lines if ":" in line)
        package = {key: value.strip() for key, value in fields.items()}
        if "Package" in package and "Section" in package:
            packages[package["Package"]] = package
    return dict(sorted(packages.items()))


def relation_names(field: str) -> Iterator[str]:
    """Names in a relation field: all alternatives; versions, architectures and build profiles are dropped."""
    for relation in re.split(r"[,|]", field):
        name = re.split(r"[\s:(\[<]", relation.strip(), maxsplit=1)[0]
        if name:
            yield name


def relations(packages: Mapping[str, Package], field: str) -> set[tuple[int, int]]:
    """Pairs (package, related package) of one field, as positions in ``packages``.

    A virtual package, one that exists only in others' Provides, stands for every package that provides it, as
    if these were alternatives. Names of no package are dropped, as are relations of a package to itself.
    """
    ids = {name: position for position, name in enumerate(packages)}
    providers = defaultdict(set)
    for name, package in packages.items():
        for virtual in relation_names(package.get("Provides", "")):
            providers[virtual].add(ids[name])
    pairs: set[tuple[int, int]] = set()
    for name, package in packages.items():
        for related in relation_names(package.get(field, "")):
            targets = {ids[related]} if related in ids else providers.get(related, set())
            pairs.update((ids[name], target) for target in targets if target != ids[name])
    return pairs


def group_of(package: Package, name: str) -> str:
    """The source that a package was built from, without its version; or who maintains it."""
    if name == "maintainer":
        return package.get("Maintainer", "")
    return package.get("Source", package["Package"]).split()[0]


def description_words(package: Package) -> list[str]:
    """The words of the one-line description, less the package's own name, which gives the section away."""
    text = package.get("Description", "").lower()
    own_name = rf"(?<![a-z0-9+.-]){re.escape(package['Package'])}(?![a-z0-9+-])"
    return re.findall(r"[^\W_]{2,}", re.sub(own_name, " ", text))


def word_bag(words: Iterable[str]) -> np.ndarray:
    """uint16, ascending: the distinct buckets that the words fall into."""
    return np.array(sorted({zlib.crc32(word.encode()) % NUM_BUCKETS for word in words}), np.uint16)


def word_vectors(bags: Sequence[np.ndarray]) -> np.ndarray:
    """float16 ``[buckets, features]``: the rows of a bag's words sum to its TF-IDF vector, reduced by an SVD.

    The idf is that of scikit-learn's ``TfidfTransformer``. Rows have unit length in the SVD, so that
    it weighs all packages alike.
    """
    indptr = np.concatenate([[0], np.cumsum([len(bag) for bag in bags])])
    counts = csr_matrix((np.ones(indptr[-1]), np.concatenate(bags), indptr), shape=(len(bags), NUM_BUCKETS))
    num_bags_with = counts.getnnz(axis=0)
    idf = np.log((1 + len(bags)) / (1 + num_bags_with)) + 1
    tfidf = counts @ diags(idf)
    norm = np.sqrt(tfidf.power(2).sum(axis=1)).A1
    tfidf = diags(1 / np.maximum(norm, 1e-9)) @ tfidf
    rank = min(NUM_FEATURES, len(bags) - 1)
    # A fixed start, as its default is random.
    _, _, directions = svds(tfidf, rank, v0=np.ones(min(tfidf.shape)))
    vectors = np.zeros((NUM_BUCKETS, NUM_FEATURES), np.float16)
    vectors[:, :rank] = (idf * (num_bags_with > 0))[:, None] * directions[::-1].T
    return vectors


def make_arrays(packages: Mapping[str, Package]) -> dict[str, np.ndarray]:
    """The arrays of the file; ``debian.Debian`` documents and reads them."""
    bags = [word_bag(description_words(package)) for package in packages.values()]
    sections = [package["Section"].rsplit("/", 1)[-1] for package in packages.values()]
    class_names = sorted(set(sections))
    arrays = {
        "names": _text(packages),
        "class_names": _text(class_names),
        "labels": np.array([class_names.index(section) for section in sections], np.uint8),
        "split": split_codes(len(packages)),
        "words": np.concatenate(bags),
        "num_words": np.array([len(bag) for bag in bags], np.uint8),
        "word_vectors": word_vectors(bags),
    }
    for name in debian.GROUPS:
        groups = [group_of(package, name) for package in packages.values()]
        number = {group: i for i, group in enumerate(sorted(set(groups)))}
        arrays[f"group.{name}"] = np.array([number[group] for group in groups], np.uint16)
    for field in debian.EDGE_TYPES:
        pairs = sorted(relations(packages, field))
        degrees = Counter(package for package, _ in pairs)
        arrays[f"degrees.{field}"] = np.array([degrees[package] for package in range(len(packages))], np.uint16)
        arrays[f"neighbors.{field}"] = np.array(
            [neighbor for _, neighbor in pairs], np.uint16 if len(packages) <= 2**16 else np.int32
        )
    return arrays


def split_codes(num_packages: int) -> np.ndarray:
    """uint8 ``[N]``: 0 train, 1 val, 2 test. Kept in the file, as NumPy may change its shuffle."""
    order = np.random.default_rng(SEED).permutation(num_packages)
    codes = np.full(num_packages, 2, np.uint8)
    num_train, num_val = round(TRAIN_SHARE * num_packages), round(VAL_SHARE * num_packages)
    codes[order[:num_train]] = 0
    codes[order[num_train : num_train + num_val]] = 1
    return codes


def write_npz(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """What ``np.savez_compressed`` writes, but with a fixed time, so that equal arrays give equal bytes."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            content = io.BytesIO()
            np.lib.format.write_array(content, array, allow_pickle=False)
            entry = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            archive.writestr(entry, content.getvalue(), zipfile.ZIP_DEFLATED, compresslevel=9)


def _text(lines: Iterable[str]) -> np.ndarray:
    return np.frombuffer("\n".join(lines).encode(), np.uint8)


if __name__ == "__main__":
    main()
