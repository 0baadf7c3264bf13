"""Lightning's tests that cannot apply to FactoredStrategy, and why not.

They run all the same, and must fail: a test that passes, and an entry that no test answers to, is an error. What fails
with DDPStrategy as well needs no entry.
"""

from __future__ import annotations

LEFT_OUT: dict[str, str] = {}
"""Node id, without parameters for all of them -> reason."""


def reason_of(test: str) -> str | None:
    """Why the test of this node id is left out, or None if it is not."""
    return LEFT_OUT.get(test) or LEFT_OUT.get(test.partition("[")[0])
