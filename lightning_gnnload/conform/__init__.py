"""Conformance: what any sampler must keep, and whether its draws follow the law that it promises."""

from lightning_gnnload.conform.case import Promise
from lightning_gnnload.conform.contract import (
    ContractReport,
    PropertyResult,
    Violation,
    check_sampler,
    contract_report,
)
from lightning_gnnload.conform.graphs import example_graphs, timed_graphs, typed_graphs
from lightning_gnnload.conform.suites import check_draws

__all__ = [
    "ContractReport",
    "Promise",
    "PropertyResult",
    "Violation",
    "check_draws",
    "check_sampler",
    "contract_report",
    "example_graphs",
    "timed_graphs",
    "typed_graphs",
]
