"""Texts as rows of numbers: alike in every build, from words or from a model that is installed, and nothing else."""

from __future__ import annotations

import json
import sys
import types
import zlib
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lightning_gnnload import GraphData
from lightning_gnnload.errors import GnnLoadError, GraphSpecError, MissingExtraError, TableError
from lightning_gnnload.ingest import text_encoders
from lightning_gnnload.ingest.text_encoders import GROUP, Hashing, open_encoder

IDS = list("abcd")
TITLES = ["Red shoes", "red, RED boots!", None, "über Lampe 12"]
EDGES = {"e": {"from": pa.table({"a": IDS, "b": [*IDS[1:], IDS[0]]}), "src": "n.a", "dst": "n.b"}}


class Letters:
    """A model that has the interface of sentence-transformers' and counts letters; each knows its own first one."""

    def __init__(self, first: str = "a", **settings: Any) -> None:
        self.first, self.settings, self.calls = ord(first[-1]), settings, []

    def encode(self, texts: list[str]) -> np.ndarray:
        self.calls.append(texts)
        return np.array([[text.lower().count(chr(self.first + k)) for k in range(6)] for text in texts], float)


@pytest.fixture(autouse=True)
def _no_open_encoders() -> None:
    open_encoder.cache_clear()


def data_of(column: dict[str, Any], titles: Any = TITLES, **more: Any) -> GraphData:
    nodes = {"n": {"from": pa.table({"id": IDS, "title": titles}), "id": "id", "x": [{"column": "title", **column}]}}
    return GraphData.from_tables(nodes=nodes, edges=EDGES, show=False, threads=1, **more)


def test_hashing_counts_words_by_their_hashes() -> None:
    data = data_of({"text": "hashing", "width": 16})
    x = data.x.rows.numpy()
    wanted = np.zeros((4, 16))
    for row, words in enumerate([["red", "shoes"], ["red", "red", "boots"], [], ["über", "lampe", "12"]]):
        for word in words:
            hashed = zlib.crc32(word.encode())
            wanted[row, hashed % 16] += -1 if hashed >> 31 else 1
    lengths = np.linalg.norm(wanted, axis=1, keepdims=True)
    np.testing.assert_allclose(x[:, :16], wanted / np.where(lengths == 0, 1, lengths), rtol=1e-6)
    assert x[:, 16].tolist() == [0, 0, 1, 0]  # where it is missing
    assert not Hashing(8).encode(["", " -- "]).any()


def test_an_encoder_that_a_package_registers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module = types.ModuleType("letters_of_a_package")
    module.Letters = Letters
    monkeypatch.setitem(sys.modules, "letters_of_a_package", module)
    entry = EntryPoint("letters", "letters_of_a_package:Letters", GROUP)
    monkeypatch.setattr(text_encoders, "entry_points", lambda group: [entry] if group == GROUP else [])
    x = data_of({"text": "letters"}, folder=tmp_path / "old").x.rows.numpy()
    assert x.shape == (4, 7)
    assert x.tolist()[:3] == [[0, 0, 0, 1, 2, 0, 0], [0, 1, 0, 2, 2, 0, 0], [0, 0, 0, 0, 0, 0, 1]]
    # New texts get rows of the same model, which transforms.json names; another one of that name is refused.
    new = data_of({"text": "letters"}, ["abc", "x", "", "y"], transforms=tmp_path / "old").x.rows.numpy()
    assert new.tolist() == [[1, 1, 1, 0, 0, 0, 0], *[[0] * 7] * 3]
    [fitted] = json.loads((tmp_path / "old" / "transforms.json").read_text())["nodes"]["n"]
    assert (fitted["encoder"], fitted["width"]) == ("letters", 6)
    module.Letters = lambda: Letters("b")
    open_encoder.cache_clear()
    with pytest.raises(TableError, match=r"column 'title': text: the encoder 'letters' is another than that of the tr"):
        data_of({"text": "letters"}, transforms=tmp_path / "old")
    with pytest.raises(TableError, match=r"has text: hashing and vocabulary: None, but was fitted with letters and"):
        data_of({"text": "hashing"}, transforms=tmp_path / "old")
    with pytest.raises(TableError, match=r"'leters' is no encoder; did you mean 'letters'\?"):
        data_of({"text": "leters"})


@pytest.mark.parametrize(
    ("encode", "told"),
    [
        (lambda texts: np.zeros((1, 3)), r"gave \[1, 3\] for 3 texts"),
        (lambda texts: np.full((len(texts), 3), np.nan), "numbers that are not finite"),
        (lambda texts: ["no", "numbers"], "failed: ValueError"),
        (lambda texts: 1 / 0, "failed: ZeroDivisionError"),
    ],
)
def test_what_an_encoder_gives_is_checked(encode: Any, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = Letters()
    probe = [encoder.encode(["x"]).astype(np.float32)[:, :3]]
    monkeypatch.setattr(
        encoder, "encode", lambda texts: probe[0] if texts[0].startswith("The quick") else encode(texts)
    )
    monkeypatch.setattr("lightning_gnnload.ingest.features.open_encoder", lambda *_: encoder)
    with pytest.raises(TableError, match=told):
        data_of({"text": "any"})


def test_a_model_of_sentence_transformers_is_opened_without_code_pickles_and_network(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    library = types.ModuleType("sentence_transformers")
    library.SentenceTransformer = Letters
    monkeypatch.setitem(sys.modules, "sentence_transformers", library)
    (model := tmp_path / "model").mkdir()
    opened: Any = open_encoder("model", tmp_path, 0)
    assert opened.settings["local_files_only"]
    assert not opened.settings["trust_remote_code"]
    assert opened.settings["model_kwargs"] == {"use_safetensors": True}
    modules = [{"type": "sentence_transformers.models.Transformer"}, {"type": "os.system"}]
    (model / "modules.json").write_text(json.dumps(modules))
    open_encoder.cache_clear()
    with pytest.raises(TableError, match=r"'model' is made of 'os\.system', but only code of sentence_transformers"):
        open_encoder("model", tmp_path, 0)
    (model / "2_Dense").mkdir()
    (model / "2_Dense" / "pytorch_model.bin").touch()
    with pytest.raises(TableError, match=r"2_Dense/pytorch_model.bin, which may be a pickle"):
        open_encoder("model", tmp_path, 0)
    monkeypatch.setattr(library, "SentenceTransformer", lambda *_, **__: Path("none").read_text())
    with pytest.raises(TableError, match=r"there is no model 'org/mini' on this machine.*download it before"):
        open_encoder("org/mini", tmp_path, 0)
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(MissingExtraError, match=r"lightning-gnnload\[text\]"):
        open_encoder("org/mini", tmp_path, 0)


@pytest.mark.parametrize(
    ("column", "told"),
    [
        ({"text": "hashing", "as": "category"}, r"x\[0\].text: the column is to be read as: category; leave as out"),
        ({"text": "hashing", "vocabulary": "v"}, "text: makes numbers of a column, vocabulary: categories"),
        ({"text": "hashing", "width": 1 << 20}, r"width: 1048576 was given.*65536 columns or less"),
        ({"vocabulary": "v", "as": "number"}, r"vocabulary: the column is to be read as: number; it is for as: categ"),
    ],
)
def test_settings_that_contradict_each_other(column: dict[str, Any], told: str) -> None:
    with pytest.raises(GraphSpecError, match=told):
        data_of(column)


def test_numbers_are_no_text() -> None:
    with pytest.raises(GnnLoadError, match="column 'title' is BIGINT, which cannot be read as: text"):
        data_of({"text": "hashing"}, [1, 2, 3, 4])
