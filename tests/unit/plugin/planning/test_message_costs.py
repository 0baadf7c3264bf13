"""What messages take of cores here."""

from __future__ import annotations

from lightning_gnnload.plugin.planning.message_costs import measure_costs


def test_both_ends_are_measured() -> None:
    costs = measure_costs()
    # Neither a whole gather of 15 MB nor nothing; a core copies at most some tens of GB in a second.
    assert 0.01 < costs.ask_ms < 5
    assert 0.01 < costs.answer_ms < 5
    assert 0.05 < costs.ask_gb_s < 50
    assert 0.05 < costs.answer_gb_s < 500
