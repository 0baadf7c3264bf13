"""StalenessStats: how late gradients were, and how long trainers waited for each other."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class StalenessStats:
    """What one trainer's updates and waits came to, over a fit.

    Attributes:
        launched: steps whose gradients were computed.
        applied: optimizer steps done; equal to ``launched`` after a flush.
        flushed: those of them that were done by a flush.
        lag: updates between the parameters that the newest update's gradient was computed with and those that it was
            applied to; at most k.
        max_lag: the largest ``lag`` so far.
        ahead: steps that this trainer has launched and, as far as it knows, the slowest has not, after its newest step;
            at most k.
        max_ahead: the largest ``ahead`` so far.
        wait_ms: waited for other trainers, where they were more than k steps behind or at a flush.
    """

    launched: int = 0
    applied: int = 0
    flushed: int = 0
    lag: int = 0
    max_lag: int = 0
    ahead: int = 0
    max_ahead: int = 0
    wait_ms: float = 0.0
