"""Settings are refused with what was passed and what is needed: numbers, choices, and keywords that nobody has."""

from __future__ import annotations

from typing import Any

import pytest

from lightning_gnnload import FactoredStrategy, Graph, NeighborSampler, WeightedNeighborSampler
from lightning_gnnload.errors import GraphFormatError, LoaderConfigError, SamplerConfigError, UnknownSettingError
from lightning_gnnload.settings import check_one_of, check_whole_number


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


@pytest.mark.parametrize(
    ("value", "bounds", "needed"),
    [
        (0, {}, "of at least 1"),
        (True, {}, "of at least 1"),
        (2.0, {"least": 0}, "of at least 0"),
        ("3", {}, "of at least 1"),
        (-1, {"least": 0, "most": 7}, "from 0 to 7"),
        (8, {"least": 0, "most": 7}, "from 0 to 7"),
    ],
)
def test_a_number_out_of_its_bounds(value: Any, bounds: dict[str, int], needed: str) -> None:
    with pytest.raises(LoaderConfigError) as refused:
        check_whole_number("depth", value, LoaderConfigError, **bounds)
    assert str(refused.value) == f"depth={value!r}: a whole number {needed} is needed."


def test_numbers_and_choices_within_their_bounds_pass() -> None:
    for value in (0, 7):
        check_whole_number("depth", value, LoaderConfigError, least=0, most=7)
    check_one_of("order", "time", {"shuffle": 1, "time": 2}, LoaderConfigError)


@pytest.mark.parametrize("value", ["TIME", None, ["time"]])
def test_a_value_that_is_none_of_the_choices(value: Any) -> None:
    with pytest.raises(
        SamplerConfigError, match=r"^order=.* is not known; give one of 'shuffle', 'time' or an order\.$"
    ):
        check_one_of("order", value, ("shuffle", "time"), SamplerConfigError, alternative=" or an order")
