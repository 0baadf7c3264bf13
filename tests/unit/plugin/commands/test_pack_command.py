"""``gnnload pack``: what it packs and prints, and what it says of arguments that cannot work."""

from __future__ import annotations

from pathlib import Path

import pytest

from lightning_gnnload import save_graph_data
from lightning_gnnload.plugin.commands import pack as pack_command
from tests.unit.toy import toy_data


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    save_graph_data(toy_data(600, 112, width=100), tmp_path / "graph")
    options = {"sampler.fanouts": "[3, 2]", "batch_size": "16", "packing.folder": str(tmp_path / "packed")}
    options |= {"packing.memory": "360KB", "packing.window": "4"}
    return [str(tmp_path / "graph"), *(text for name, value in options.items() for text in (f"--data.{name}", value))]


def test_epochs_are_packed_once(tmp_path: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    for new in (4, 0):
        assert pack_command.main([*arguments, "--epochs", "0:2"]) == 0
        assert f"packed: 4 windows, {new} of them new" in capsys.readouterr().out  # of 7 steps an epoch
    assert len(list((tmp_path / "packed/windows").iterdir())) == 4
    assert pack_command.main([*arguments, "--epochs", "0:2", "--trainers", "2"]) == 2
    assert "trainers: [[0], 1] there, [[0, 1], 2] here" in capsys.readouterr().out


def test_mistakes_are_named(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        pack_command.main([*arguments, "--epochs", "2:1"])
    assert "'2:1': epochs A:B are needed" in capsys.readouterr().err
    for added, problem in (
        (["--data.packing.room", "1KB"], "Pack fewer epochs"),
        (["--data.packing.cycle", "2", "--epochs", "0:3"], "with cycle=2 epochs come again"),
    ):
        assert pack_command.main([*arguments, *added]) == 2
        assert problem in capsys.readouterr().out
    assert pack_command.main(arguments[:5]) == 2
    assert "no folder was named" in capsys.readouterr().out
