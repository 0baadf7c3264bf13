"""``gnnload verify`` names what is damaged, and where."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from lightning_gnnload import partition_graph, save_features, save_graph_data
from lightning_gnnload.plugin.commands.verify import main
from tests.unit.toy import toy_data


def test_what_is_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_graph_data(toy_data(), tmp_path / "graph")
    save_features(torch.zeros(3, 5), tmp_path / "x", progress=False)
    partition_graph(toy_data(), tmp_path / "parts", 2, "random", hops=1, progress=False)
    for name, line in (("graph", "indices.bin, "), ("x", "x.bin, 60 bytes: sound"), ("parts", "part-0001/reach.bin, ")):
        assert main([str(tmp_path / name)]) == 0
        printed = capsys.readouterr().out
        assert line in printed
        assert "all as they were written" in printed
        files = list((tmp_path / name).rglob("*.bin"))
        assert f"{len(files)} arrays, {sum(file.stat().st_size for file in files):,} bytes" in printed
        assert "no checksum of its own" not in printed
    manifest = tmp_path / "x" / "manifest.json"
    manifest.write_text(
        json.dumps({key: v for key, v in json.loads(manifest.read_bytes()).items() if key != "checksum"})
    )
    assert main([str(tmp_path / "x")]) == 0
    assert "manifest.json has no checksum of its own" in capsys.readouterr().out


@pytest.mark.parametrize("file", ["x.bin", "part-0001/indices.bin"])
def test_a_flipped_bit_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], file: str) -> None:
    partition_graph(toy_data(), tmp_path / "parts", 2, "random", hops=1, progress=False)
    content = bytearray((tmp_path / "parts" / file).read_bytes())
    content[3] ^= 4
    (tmp_path / "parts" / file).write_bytes(content)
    assert main([str(tmp_path / "parts")]) == 1
    printed = capsys.readouterr().out
    assert f"{file} is damaged: bytes 0 to {len(content) - 1} of array '{Path(file).stem}'" in printed
    assert "1 of them damaged" in printed


def test_other_folders_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for place in (tmp_path, tmp_path / "nowhere"):
        assert main([str(place)]) == 2
        assert "is not a graph folder" in capsys.readouterr().out


def test_a_path_of_any_bytes_is_printed_and_no_lightning_is_imported(tmp_path: Path) -> None:
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")
    save_graph_data(toy_data(), folder)
    code = (
        "import sys; from lightning_gnnload.plugin.commands.cli import main\n"
        "try:\n    main()\n"
        "finally:\n    assert not {'pytorch_lightning', 'lightning'} & sys.modules.keys()\n"
    )
    command = [sys.executable, "-c", code, "verify", folder]
    done = subprocess.run(command, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr.decode()
    assert rb"caf\udce9: " in done.stdout
