import sys
import urllib.request
import zipfile

import pytest

from lightning_gnnload.data.datasets.ogb import OGB
from lightning_gnnload.errors import DatasetError, MissingExtraError
from tests.unit.data.datasets.ogb_folders import csv_folder, made


def test_without_files_and_network_the_error_says_where_and_how(tmp_path):
    with pytest.raises(DatasetError) as caught:
        OGB("ogbn-products", tmp_path).prepare()
    message = str(caught.value)
    assert str(tmp_path / "ogbn_products") in message
    assert "products.zip" in message
    assert "the network was asked" in message


def test_no_download_unless_allowed(tmp_path):
    with pytest.raises(DatasetError, match="download=True") as caught:
        OGB("ogbn-products", tmp_path, download=False).prepare()
    assert "the network was asked" not in str(caught.value)


def test_a_download_needs_ogb_and_files_on_disk_do_not(tmp_path, monkeypatch):
    for module in [name for name in sys.modules if name.split(".")[0] == "ogb"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "ogb", None)
    with pytest.raises(MissingExtraError, match=r"lightning-gnnload\[ogb\]"):
        OGB("ogbn-products", tmp_path).prepare()
    csv_folder(tmp_path)
    assert made("ogbn-arxiv", tmp_path).num_nodes == 5


def test_a_download_is_unpacked_moved_and_never_asks(tmp_path, monkeypatch):
    csv_folder(tmp_path / "served", "arxiv")
    archive = tmp_path / "arxiv.zip"
    with zipfile.ZipFile(archive, "w") as out:
        for path in (tmp_path / "served").rglob("*.gz"):
            out.write(path, path.relative_to(tmp_path / "served"))
    monkeypatch.setattr(urllib.request, "urlopen", lambda *args, **kwargs: archive.as_uri() and Reply(archive))
    monkeypatch.setattr("builtins.input", lambda *args: pytest.fail("a question was asked"))
    root = tmp_path / "root"
    assert made("ogbn-arxiv", root).graph.num_edges == 4
    assert (root / "ogbn_arxiv" / "raw" / "edge.csv.gz").exists()
    assert not list(root.glob("**/*.zip"))


class Reply:
    """What urlopen gives, served from a file."""

    def __init__(self, path) -> None:
        self.file = open(path, "rb")  # noqa: SIM115  closed by the end of the test
        self.headers = {"Content-Length": str(path.stat().st_size)}

    def info(self):
        return self.headers

    def read(self, count: int) -> bytes:
        return self.file.read(count)

    def __enter__(self):
        return self

    def __exit__(self, *exception) -> None:
        self.file.close()
