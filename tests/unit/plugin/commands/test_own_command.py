"""``gnnload own`` says why it cannot serve, and to whom it does; what it does then is in tests/unit/owners."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from lightning_gnnload import partition_graph
from lightning_gnnload.plugin.commands.own import main
from tests.unit.owners.serving import SECRET, graph_data


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("GNNLOAD_SECRET", "GNNLOAD_SECRET_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    partition_graph(graph_data(), tmp_path / "parts", 2, "random", hops=0, progress=False)
    return tmp_path / "parts"


def deep(folder: Path) -> Path:
    partition_graph(graph_data(), folder.parent / "deep", 2, "random", hops=1, progress=False)
    return folder.parent / "deep"


def open_secret(folder: Path) -> list[str]:
    (folder.parent / "open").write_text(SECRET)
    (folder.parent / "open").chmod(0o644)
    return ["--secret-file", str(folder.parent / "open")]


def short_secret(folder: Path) -> list[str]:
    (folder.parent / "short").write_text("too short")
    (folder.parent / "short").chmod(0o600)
    return ["--secret-file", str(folder.parent / "short")]


@pytest.mark.parametrize(
    ("folder_of", "options_of", "words"),
    [
        (lambda folder: folder.parent, lambda folder: [], "is not a partition"),
        (deep, lambda folder: [], "have no owners, as each is sampled by itself"),
        (lambda folder: folder, lambda folder: ["--parts", "2"], "there is no part 2"),
        (lambda folder: folder, lambda folder: ["--listen", "0.0.0.0:0"], "other machines can reach 0.0.0.0:0"),
        (lambda folder: folder, lambda folder: ["--listen", "127.0.0.1"], "'127.0.0.1' is no address of an owner"),
        (lambda folder: folder, lambda folder: ["--listen", "tls://127.0.0.1:0"], "--certificate FILE --key FILE"),
        (lambda folder: folder, lambda folder: ["--secret-file", "none"], "Name by --secret-file a file of yours"),
        (lambda folder: folder, open_secret, "so that others may read the secret. chmod 600"),
        (lambda folder: folder, short_secret, "has 9 characters, but at least 16 are needed"),
    ],
    ids=[
        "no partition",
        "self-reliant",
        "no part",
        "no secret",
        "no port",
        "no certificate",
        "no file",
        "open secret",
        "short secret",
    ],
)
def test_why_an_owner_cannot_start(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    folder_of: Callable[[Path], Path],
    options_of: Callable[[Path], list[str]],
    words: str,
) -> None:
    assert main([str(folder_of(folder)), *options_of(folder)]) == 2
    printed = capsys.readouterr()
    assert words in printed.err
    assert SECRET not in printed.out + printed.err


def test_a_port_that_is_taken_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert main([str(folder), "--listen", address]) == 2
    printed = capsys.readouterr().err
    assert f"nobody can listen at {address}" in printed
    # The first owner of a machine makes a secret, which only its user can read.
    secret_file = folder.parent / "lightning_gnnload" / "secret"
    assert f"the secret is {secret_file}" in printed
    assert secret_file.stat().st_mode & 0o777 == 0o600
    assert secret_file.read_text().strip() not in printed
