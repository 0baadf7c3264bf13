"""Policies by name, as settings and command lines give them."""

from __future__ import annotations

from lightning_gnnload.cache.counted import Clairvoyant, PreSample
from lightning_gnnload.cache.expected import Expected
from lightning_gnnload.cache.policy import CachePolicy
from lightning_gnnload.cache.structure import Degree, DegreeRatio, Random
from lightning_gnnload.errors import CacheConfigError

POLICIES = ("presample", "expected", "clairvoyant", "degree", "degree-ratio", "random")
"""That rank rows before a window of epochs begins."""
EVICTION_RULES = ("fifo", "clock", "s3fifo", "belady")
"""That admit and evict rows while batches are gathered; no ranking, so no :class:`.CachePolicy`."""


def policy_named(policy: str | CachePolicy, *, window: int = 1, progress: bool = True) -> CachePolicy:
    """One of :data:`POLICIES`, or a policy of one's own as it is.

    Args:
        policy: a name, or a policy.
        window: epochs that ``"clairvoyant"`` looks ahead.
        progress: whether policies that sample ahead show a bar on stderr.

    Raises:
        CacheConfigError: an unknown name, or a window below one epoch.

    Example:
        >>> policy_named("clairvoyant", window=2, progress=False)
        Clairvoyant(window=2, num_threads=None, progress=False)
    """
    if isinstance(policy, CachePolicy):
        own = policy.window
        if own is not None and not (isinstance(own, int) and own >= 1):
            raise CacheConfigError(
                f"{type(policy).__name__}.window is {own!r}: epochs are needed, 1 or more, or None for the whole run."
            )
        return policy
    if policy == "presample":
        return PreSample(progress=progress)
    if policy == "clairvoyant":
        return Clairvoyant(window, progress=progress)
    plain: dict[str, type[CachePolicy]] = {
        "expected": Expected,
        "degree": Degree,
        "degree-ratio": DegreeRatio,
        "random": Random,
    }
    if isinstance(policy, str) and policy in plain:
        return plain[policy]()
    raise CacheConfigError(
        f"policy={policy!r} is not known; give one of {', '.join(map(repr, POLICIES))}, a CachePolicy of your own, or "
        f"for a cache that evicts while it serves one of {', '.join(map(repr, EVICTION_RULES))}."
    )
