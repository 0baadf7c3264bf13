"""FeatureCache: the settings of a cache of hot feature rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lightning_gnnload.cache.policy import CachePolicy


@dataclass(frozen=True)
class FeatureCache:
    """The hot rows of a feature table on faster memory. Settings alone, which a configuration file can hold.

    Args:
        policy: which rows: a name, or a policy of one's own. ``"presample"``, ``"degree"``, ``"expected"`` and so on
            choose before training; ``"clairvoyant"`` chooses anew for every window of epochs; ``"fifo"``, ``"clock"``
            and ``"s3fifo"`` admit and evict while training.
        ratio: rows cached, as a share of all.
        capacity_bytes: upper bound for rows and index, on the whole machine. Where neither is given, the machine's
            free memory decides.
        share: by the ranks of a machine that gather: ``"partitioned"``: each row once; ``"replicated"``: each rank
            has its own; ``"auto"``.
        window: epochs that ``"clairvoyant"`` looks ahead.

    Raises:
        CacheConfigError: settings that cannot work.

    Source: GNNLab (EuroSys'22), section 6; PaGraph (SoCC'20), 3.1; BGL (NSDI'23), 3.2; DSP (PPoPP'23), 3.1.
    """

    policy: str | CachePolicy = "presample"
    ratio: float | None = None
    capacity_bytes: int | None = None
    share: Literal["auto", "replicated", "partitioned"] = "auto"
    window: int = 1
