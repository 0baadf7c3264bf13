from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from lightning_gnnload.errors import CudaUnavailableError
from lightning_gnnload.host import malloc
from lightning_gnnload.ops.cuda.launch.device import Device
from lightning_gnnload.plugin.commands import cli, doctor
from lightning_gnnload.plugin.commands import doctor as doctor_command
from lightning_gnnload.plugin.commands.doctor import cuda_findings, machine_findings
from tests.cuda.emulated import EmulatedDevice

GIB = 1 << 30


def test_a_machine_without_a_device_hears_of_no_fault(
    capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(doctor, "_NVIDIA_DRIVER", tmp_path / "none")
    assert doctor_command.main([]) == 0
    shown = capsys.readouterr().out
    for about in ("versions", "extras", "processor", "free memory", "2 MB pages", "locked memory", "malloc"):
        assert f"\n{about} " in f"\n{shown}"
    assert f"torch {torch.__version__.split('+')[0]}" in shown
    assert "\nGPU " in shown
    assert "none; everything runs on the CPU" in shown
    assert "cuda" not in shown.partition("What would help:")[2].lower()
    assert len(shown.splitlines()) <= 30  # a screen
    assert "asked for" not in shown
    assert "cannot be used" not in shown


@pytest.mark.parametrize(
    ("built_for", "advised"), [(None, "install a build of torch with CUDA"), ("13.0", "nvidia-smi")]
)
def test_a_gpu_that_torch_does_not_use_is_told_with_the_remedy(
    built_for: str | None, advised: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (driver := tmp_path / "nvidiactl").touch()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", built_for)
    monkeypatch.setattr(doctor, "_NVIDIA_DRIVER", driver)
    found = {each.about: each for each in cuda_findings()}["GPU"]
    assert advised in found.advice


@pytest.mark.parametrize(("torch_is", "advised"), [("2.2.1+cpu", ""), ("2.13.0+cpu", "pip install 'dgl==1.1.3'")])
def test_a_dgl_that_cannot_be_imported_is_told(torch_is: str, advised: str, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = {"dgl": "2.1.0", "torch-geometric": "2.8.1"}
    monkeypatch.setattr(doctor, "version_of", lambda package: installed.get(package, ""))
    monkeypatch.setattr(torch, "__version__", torch_is)
    found = {each.about: each for each in machine_findings()}["extras"]
    assert found.found.startswith("pyg (torch-geometric 2.8.1), dgl (dgl 2.1.0); not installed: tables, ogb, partition")
    assert advised in found.advice
    assert bool(found.advice) is bool(advised)


def test_findings_as_json(capsys: pytest.CaptureFixture) -> None:
    assert doctor_command.main(["--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["about"] for each in found[:3]] == ["versions", "extras", "processor"]
    assert all(set(each) == {"about", "found", "advice"} for each in found)


def test_it_advises_to_keep_freed_memory_unless_that_is_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    def finding() -> doctor.MachineCheck:
        return next(each for each in machine_findings() if each.about == "malloc")

    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    monkeypatch.setattr(malloc, "glibc_release", lambda: "2.36")
    assert finding().found.startswith("glibc 2.36; ")
    assert f"{malloc.VARIABLES} python script.py" in finding().advice
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "4294967296")
    assert finding()[1:] == ("glibc 2.36, MALLOC_TRIM_THRESHOLD_=4294967296; left as it is", "")
    monkeypatch.delenv("MALLOC_TRIM_THRESHOLD_")
    monkeypatch.setattr(malloc, "glibc_release", lambda: None)
    assert finding().advice == ""
    assert finding().found.endswith("; left as it is")


def test_gnnload_knows_the_command(capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["gnnload", "doctor", "--json"])
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 0
    assert json.loads(capsys.readouterr().out)[0]["about"] == "versions"


@pytest.mark.parametrize(("chosen", "advised"), [("never", True), ("deny", True), ("advise", False), ("always", False)])
def test_small_pages_of_shared_memory_come_with_advice(tmp_path: Path, chosen: str, advised: bool) -> None:
    (tmp_path / "shmem_enabled").write_text(f"always {chosen} force".replace(chosen, f"[{chosen}]") + "\n")
    found = {each.about: each for each in machine_findings(tmp_path)}
    assert found["2 MB pages, shared"].found == chosen
    assert ("echo advise" in found["2 MB pages, shared"].advice) == advised
    assert found["2 MB pages"].found.startswith("unknown")  # there is no such file


@pytest.mark.parametrize(
    ("switch", "can_move", "says", "advised"),
    [
        ("off", True, "off: GNNLOAD_HUGE_PAGES=off", "unset GNNLOAD_HUGE_PAGES"),
        ("", True, "are moved when loading begins", ""),
        ("", False, "not moved", "GLIBC_TUNABLES=glibc.malloc.hugetlb=1"),
    ],
)
def test_what_becomes_of_tensors_on_small_pages_is_said(
    switch: str, can_move: bool, says: str, advised: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GNNLOAD_HUGE_PAGES", switch)
    monkeypatch.setattr(doctor_command, "can_move_to_huge_pages", lambda: can_move)
    check = next(each for each in machine_findings() if each.about == "2 MB pages, tensors")
    assert says in check.found
    assert advised in check.advice
    assert bool(check.advice) is bool(advised)


@pytest.fixture
def _two_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second reaches the first, but not the reverse."""
    for name, value in {
        "is_available": lambda: True,
        "device_count": lambda: 2,
        "mem_get_info": lambda index: ((70 + index) * GIB, 80 * GIB),
        "get_device_name": lambda index: f"Test GPU {index}",
        "can_device_access_peer": lambda device, peer: device > peer,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)


@pytest.mark.usefixtures("_two_devices")
def test_each_device_shows_that_it_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "open_device", lambda _: EmulatedDevice())
    compiler, *devices = cuda_findings()
    assert compiler.about == "kernel compiler"
    assert [(each.about, each.found) for each in devices] == [
        (
            "cuda:0",
            "Test GPU 0, 70.0 GiB of 80.0 GiB free, reaches no other device; a test batch equals the CPU's",
        ),
        (
            "cuda:1",
            "Test GPU 1, 71.0 GiB of 80.0 GiB free, reaches cuda:0; a test batch equals the CPU's",
        ),
    ]


@pytest.mark.usefixtures("_two_devices")
@pytest.mark.parametrize("refusal", [CudaUnavailableError("it is too old"), RuntimeError("CUDA error: it is busy")])
def test_a_device_that_cannot_be_used_says_why_and_the_next_is_looked_at(
    refusal: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Wrong(EmulatedDevice):
        def read(self, tensor: torch.Tensor):
            array = super().read(tensor)
            return array + (array.dtype == "int32")

    def opened(device: torch.device) -> Device:
        if device.index == 0:
            raise refusal
        return Wrong()

    monkeypatch.setattr(doctor, "open_device", opened)
    _, first, second = cuda_findings()
    assert first.found.endswith(f"; off: {refusal}")
    assert "; off: a test batch differs: neighbours: indptr of hop 0 of step 0" in second.found
    assert "report it" in second.advice


@pytest.mark.parametrize("has_device", [True, False])
def test_a_compiler_that_is_missed_is_named_where_it_would_serve(
    has_device: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> SimpleNamespace:
        raise CudaUnavailableError("install CuPy")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_device)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(doctor, "loaded_nvrtc", missing)
    compiler = next(iter(cuda_findings()))
    assert compiler.found == ("none" if has_device else "none; only GPUs need one")
    assert compiler.advice == ("install CuPy" if has_device else "")
