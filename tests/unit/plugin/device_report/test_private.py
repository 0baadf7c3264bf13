"""What is taken out of a report before it is written."""

from __future__ import annotations

import platform

import pytest

from lightning_gnnload.plugin.device_report.private import own_names, without_names


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no room for /home/ann/run/x.so", "no room for [path]/x.so"),
        ("open('/data/our project/x.cu')", "open('[path]/x.cu')"),
        ("~/cache/lg/k.cubin: denied", "[path]/k.cubin: denied"),
        ("5 GB/s, 3/4 of it, and/or none", "5 GB/s, 3/4 of it, and/or none"),
        ("rank at 10.1.2.3:29500", "rank at [address]:29500"),
        ("GPU-8a2f6b1c-1234-5678-9abc-def012345678 is lost", "[id] is lost"),
        ("tower7.lan refuses ann, not annotations", "[name] refuses [name], not annotations"),
        ("driver 580.65.06, CUDA 13.0", "driver 580.65.06, CUDA 13.0"),
        ("sample_weighted/pick_weighted<int32_t>", "sample_weighted/pick_weighted<int32_t>"),
    ],
)
def test_texts(text: str, expected: str) -> None:
    assert without_names(text, ("/data/our project", "tower7.lan", "tower7", "ann")) == expected


def test_values_of_all_kinds_and_keys_stay() -> None:
    value = {"ann": [1, 2.5, None, True, ("x", "by ann")]}
    assert without_names(value, ("ann",)) == {"ann": [1, 2.5, None, True, ["x", "by [name]"]]}


def test_this_machine_has_a_name_that_is_taken_out() -> None:
    assert platform.node() in own_names() or len(platform.node()) < 3
    assert platform.node() not in without_names(f"on {platform.node()}!") or len(platform.node()) < 3
    assert list(own_names()) == sorted(own_names(), key=len, reverse=True)
