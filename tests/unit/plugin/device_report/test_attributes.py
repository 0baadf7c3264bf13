"""What is asked of torch, CUDA and nvidia-smi, which is here a program that says what the real one does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lightning_gnnload.plugin.device_report.attributes import device_attributes

SMI = r"""#!/bin/sh
refused='Field "mig.mode.current" is not a valid field to query.'
case "$*" in
*topo*)
  printf '\t\033[4mGPU0\tGPU1\tNIC0\tCPU Affinity\033[0m\n'
  printf 'GPU0\t X \tNV18\tSYS\t0-15\nGPU1\tNV18\t X \tSYS\t0-15\nNIC0\tSYS\tSYS\t X \n'
  printf '\nLegend:\n  X = Self\n' ;;
*mig.mode*) echo "$refused"; exit 2 ;;
*) echo "$1" | sed 's/.*=//; s/\([^,]*\)/value of \1/g; s/,/, /g' ;;
esac
"""


@pytest.fixture
def _smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nvidia-smi").write_text(SMI)
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.usefixtures("_smi")
def test_links_and_fields_but_those_that_the_driver_does_not_know() -> None:
    device = device_attributes(0)
    assert device["links"] == [["X", "NV18"], ["NV18", "X"]]
    assert device["nvidia-smi"]["driver_version"] == "value of driver_version"
    assert device["nvidia-smi"]["pcie.link.gen.max"] == "value of pcie.link.gen.max"
    assert "mig.mode.current" not in device["nvidia-smi"]


def test_what_is_not_there_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    device = device_attributes(0)
    assert "nvidia-smi" in device["nvidia-smi"]["error"]
    assert device["torch"]["version"]
    assert device["package"]
