"""Keyword arguments that nobody has are refused with the nearest, or with what says the same here."""

from __future__ import annotations

from typing import Any

import pytest

from lightning_gnnload import FactoredStrategy, Graph, NeighborSampler, WeightedNeighborSampler
from lightning_gnnload.errors import GraphFormatError, SamplerConfigError, UnknownSettingError


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: NeighborSampler(num_neighbors=[3, 3]),
            r"NeighborSampler has no num_neighbors=.*here: fanouts=\[15, 10\]",
        ),
        (lambda: NeighborSampler([3], replacement=True), r"no replacement=\. Did you mean replace=\?"),
        (lambda: NeighborSampler([3], batch_size=4), r"no batch_size=.*GraphDataModule\(batch_size=\.\.\.\)"),
        (lambda: WeightedNeighborSampler([3], zzz=1), r"WeightedNeighborSampler has no zzz=\. It has: fanouts, "),
        (lambda: FactoredStrategy(sampler=1), r"FactoredStrategy has no sampler=\. Did you mean samplers=\?"),
    ],
)
def test_a_setting_that_a_class_does_not_have(make: Any, message: str) -> None:
    with pytest.raises(UnknownSettingError, match=message) as told:
        make()
    assert isinstance(told.value, TypeError)  # Python's own, for those who catch it


def test_settings_of_ddp_and_of_samplers_with_any_are_taken() -> None:
    class Own(NeighborSampler):
        def __init__(self, fanouts: list[int], **settings: Any) -> None:
            super().__init__(fanouts)
            self.settings = settings

    assert Own([2], whatever=1).settings == {"whatever": 1}
    FactoredStrategy(find_unused_parameters=True, process_group_backend="gloo", gradient_as_bucket_view=True)


def test_an_edge_index_is_told_how_to_be_given() -> None:
    edges = [[0, 1], [1, 0]]
    with pytest.raises(GraphFormatError, match=r"Graph\.from_coo\(\*edge_index\)"):
        Graph.from_coo(edges)
    assert Graph.from_coo(*edges).num_edges == 2  # the advice works


def test_data_in_the_place_of_their_graph() -> None:
    with pytest.raises(SamplerConfigError, match=r"NeighborSampler\.sample: a list is given; a Graph is needed"):
        NeighborSampler([2]).sample([0], [0], seed=0)  # type: ignore[arg-type]
