"""Which arrangement of machines is best, and what more of a thing gives."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lightning_gnnload.errors import PlanError
from lightning_gnnload.pipeline.forecast.cluster import Cluster
from lightning_gnnload.pipeline.forecast.machine import Machine
from lightning_gnnload.pipeline.forecast.outlook import outlook
from tests.unit.pipeline.forecast.runs import GIB, measured_run

MEASURED = measured_run()
SLOW = Cluster(machines=4, owners=2, link_gb_s=0.5, hot=0.05)


def test_a_copy_each_is_the_fastest_where_it_fits() -> None:
    found = outlook(MEASURED, MEASURED.mine, Machine(cores=16, memory_gib=64), SLOW)
    assert [each.placement for each in found.arrangements] == ["replicated", "collective", "owners"]
    assert found.best.band_s[0] < found.best.forecast.epoch_s < found.best.band_s[1]
    assert found.gains[0].name == "one more machine"
    assert not any("owner" in gain.name or "GB" in gain.name for gain in found.gains)


def test_what_does_not_fit_comes_last_and_links_are_what_helps_those_who_ask() -> None:
    # 2.2 GiB of graph and rows, of which a machine has room for 0.8: four parts fit, and two do not.
    found = outlook(MEASURED, MEASURED.mine, Machine(cores=16, memory_gib=1), SLOW)
    assert found.best.placement == "collective"
    assert [bool(each.problem) for each in found.arrangements] == [False, True, True]
    assert "GB of the graph and its rows on each that has them" in found.arrangements[-1].problem
    assert found.best.forecast.step.limit == "network"
    gains = {gain.name: gain.epoch_s for gain in found.gains}
    assert gains["links twice as fast"] < 0.7 * found.best.forecast.epoch_s
    assert gains["one more GB of hot rows on each machine"] < 0.7 * found.best.forecast.epoch_s


def test_where_nothing_fits_it_says_so() -> None:
    wide = replace(MEASURED, data=replace(MEASURED.data, feature_bytes=400 * GIB))
    with pytest.raises(PlanError, match="no arrangement of 4 machines fits"):
        outlook(wide, wide.mine, Machine(cores=16, memory_gib=8), SLOW)


def test_machines_that_sample_are_one_of_the_things_to_have_more_of() -> None:
    nodes = Cluster(machines=2, sampler_nodes=1, link_gb_s=10.0, owner_link_gb_s=0.01)
    slow = measured_run(
        works={1024: replace(MEASURED.works[1024], sample_ms=200.0)}, sizes={1024: MEASURED.sizes[1024]}
    )
    found = outlook(slow, slow.mine, Machine(cores=16, memory_gib=64), nodes)
    assert [each.placement for each in found.arrangements if each.placement == "collective"] == []
    gains = {gain.name: gain.epoch_s for gain in found.gains}
    assert gains["one more machine that samples"] < 0.8 * found.best.forecast.epoch_s
