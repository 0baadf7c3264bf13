"""An archive comes by https, whole, and is the one that was asked for, or nothing is unpacked."""

import hashlib
import threading
import zipfile
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest

from lightning_gnnload.datasets import download, ogb
from lightning_gnnload.datasets.ogb import OGB
from lightning_gnnload.errors import DatasetError
from tests.unit.datasets.ogb_folders import csv_folder


def test_without_files_and_network_the_error_says_where_and_how(tmp_path):
    with pytest.raises(DatasetError) as caught:
        OGB("ogbn-products", tmp_path).prepare()
    message = str(caught.value)
    assert str(tmp_path / "ogbn_products") in message
    assert "https://" in message
    assert "products.zip" in message
    assert "the network was asked" in message


def test_no_download_unless_allowed(tmp_path):
    with pytest.raises(DatasetError, match="download=True") as caught:
        OGB("ogbn-products", tmp_path, download=False).prepare()
    assert "the network was asked" not in str(caught.value)


def test_what_is_in_the_way_is_noticed_before_the_download(tmp_path):
    (tmp_path / "ogbn_products").mkdir()
    (tmp_path / "ogbn_products" / "notes").touch()
    with pytest.raises(DatasetError, match="something else is there") as caught:
        OGB("ogbn-products", tmp_path).prepare()
    assert "the network was asked" not in str(caught.value)


def test_a_folder_that_could_not_be_written_is_noticed_before_the_download(tmp_path):
    dataset = OGB("ogbn-products", tmp_path)
    dataset.folder.mkdir()
    (dataset.folder / "notes").touch()
    with pytest.raises(DatasetError, match="also holds notes") as caught:
        dataset.prepare()
    assert "the network was asked" not in str(caught.value)


@pytest.fixture
def archive(tmp_path: Path) -> bytes:
    csv_folder(tmp_path / "served", "arxiv")
    with zipfile.ZipFile(tmp_path / "arxiv.zip", "w") as out:
        for path in (tmp_path / "served").rglob("*.gz"):
            out.write(path, path.relative_to(tmp_path / "served"))
    return (tmp_path / "arxiv.zip").read_bytes()


@contextmanager
def served(content: bytes, monkeypatch, *, length: int | None = None, location: str | None = None):
    """A server on loopback, in the place of OGB's, that announces a length."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if location is None else 302)
            if location is not None:
                self.send_header("Location", location)
            self.send_header("Content-Length", str(len(content) if length is None else length))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        monkeypatch.setattr(ogb, "_SITE", f"127.0.0.1:{server.server_port}")
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


def test_a_download_is_unpacked_recorded_moved_and_never_asks(tmp_path, monkeypatch, archive):
    monkeypatch.setattr("builtins.input", lambda *args: pytest.fail("a question was asked"))
    root, digest = tmp_path / "root", hashlib.sha256(archive).hexdigest()
    with served(archive, monkeypatch):
        pinned = OGB("ogbn-arxiv", root, plain_http=True, sha256=digest.upper())
        pinned.prepare()
    assert pinned.load().graph.num_edges == 4
    assert (root / "ogbn_arxiv" / "raw" / "edge.csv.gz").exists()
    assert (root / "ogbn_arxiv" / "archive.sha256").read_text() == f"{digest}  arxiv.zip\n"
    assert not list(root.glob("**/*.zip"))
    OGB("ogbn-arxiv", root).prepare()  # from the files that are there
    with pytest.raises(DatasetError, match=f"come from an archive with SHA-256 {digest}"):
        OGB("ogbn-arxiv", root, sha256="0" * 64).prepare()
    (root / "ogbn_arxiv" / "archive.sha256").unlink()
    with pytest.raises(DatasetError, match=r"have no archive\.sha256"):
        OGB("ogbn-arxiv", root, sha256=digest).prepare()


@pytest.mark.parametrize(
    ("settings", "serving", "message"),
    [
        ({"sha256": "ab" * 32}, {}, r"gave a file with SHA-256 [0-9a-f]{64}, but (ab){32} was asked for"),
        ({}, {"length": 10_000}, r"ended after \d+ of 10000 bytes"),
        ({}, {"length": 0}, "zip"),
    ],
)
def test_what_is_not_whole_or_another_is_not_unpacked(tmp_path, monkeypatch, archive, settings, serving, message):
    root = tmp_path / "root"
    monkeypatch.setattr(zipfile.ZipFile, "extractall", lambda *args: pytest.fail("it was unpacked"))
    with served(archive, monkeypatch, **serving), pytest.raises(DatasetError, match=message):
        OGB("ogbn-arxiv", root, plain_http=True, **settings).prepare()
    assert [path.name for path in root.iterdir()] == [".ogbn-arxiv-one-way.lock"]


def test_a_redirect_from_https_to_http_is_not_followed():
    """The handler is asked by itself, for the tests have no certificate for loopback."""
    [handler] = [download._NoPlainRedirects()]
    request = download.urllib.request.Request("https://127.0.0.1:1/arxiv.zip")
    with pytest.raises(DatasetError, match="which is not encrypted"):
        handler.redirect_request(request, None, 302, "Found", {}, "http://elsewhere/arxiv.zip")
    followed = handler.redirect_request(request, None, 302, "Found", {}, "https://elsewhere/arxiv.zip")
    assert followed.full_url == "https://elsewhere/arxiv.zip"


@pytest.mark.parametrize("sha256", ["", "ab", "g" * 64, 7])
def test_a_checksum_that_is_none(sha256):
    with pytest.raises(DatasetError, match="64 hexadecimal digits"):
        OGB("ogbn-arxiv", sha256=sha256)


@pytest.mark.parametrize("name", ["../evil", "/evil", "other/evil", "arxiv/../../evil", "arxiv\\..\\evil", "evil"])
def test_an_archive_with_files_elsewhere_is_not_unpacked(tmp_path, name):
    with zipfile.ZipFile(tmp_path / "arxiv.zip", "w") as out:
        out.writestr("arxiv/raw/edge.csv.gz", "")
        out.writestr(name, "x")
    (tmp_path / "below").mkdir()
    with pytest.raises(DatasetError, match=r"which is not in the folder 'arxiv'"):
        download.unpack(tmp_path / "arxiv.zip", tmp_path / "below", "arxiv")
    assert not list((tmp_path / "below").iterdir())


@pytest.mark.parametrize(("claimed", "free"), [(1 << 45, 1 << 50), (3, 2)], ids=["more than there is", "small disk"])
def test_an_archive_that_would_fill_the_disk_is_not_unpacked(tmp_path, monkeypatch, claimed, free):
    with zipfile.ZipFile(tmp_path / "arxiv.zip", "w") as out:
        out.writestr("arxiv/raw/edge.csv.gz", "0,1")
        out.filelist[0].file_size = claimed
    monkeypatch.setattr("shutil.disk_usage", lambda place: SimpleNamespace(free=free))
    with pytest.raises(DatasetError, match=rf"claims to hold {claimed:,} bytes, but at most \d+"):
        download.unpack(tmp_path / "arxiv.zip", tmp_path, "arxiv")
