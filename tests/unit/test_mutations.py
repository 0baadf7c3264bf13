"""Planted faults still apply."""

from __future__ import annotations

from tests.mutations.__main__ import every, file_of, parse, sources


def test_ninety_planted_faults_still_apply() -> None:
    """Who changes the lines of one need not mend it at once: ``make mutations`` names those to mend."""
    texts = sources()
    assert sum(file_of(mutation, texts) is not None for mutation in every()) >= 90


def test_a_paragraph_is_words_and_lines() -> None:
    (first, second) = parse("what it does\n-   if a:\n-     b\n+   c\n\nmore\n- d\n+\n")
    assert first == ("what it does", "  if a:\n    b", "  c")
    assert second == ("more", "d", "")
