"""Losses of links: how far the scores of true edges lie above those of their negatives.

Shapes: P true edges, M negatives of each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

LossName = Literal["softmax", "bce", "bpr"]
LOSS_NAMES = get_args(LossName)


def softmax_loss(positive: Tensor, negative: Tensor, mask: Tensor) -> Tensor:
    """The cross entropy of each true edge among itself and its negatives.

    Source: Yi et al., Sampling-bias-corrected neural modeling (RecSys'19), section 3.
    """
    scores = torch.cat([positive[:, None], negative.masked_fill(~mask, -torch.inf)], dim=1)
    return F.cross_entropy(scores, torch.zeros(len(scores), dtype=torch.long, device=scores.device))


def bce_loss(positive: Tensor, negative: Tensor, mask: Tensor) -> Tensor:
    """The binary cross entropy of all edges, true ones of label 1 and negatives of label 0; these of any shape."""
    return torch.cat([F.softplus(-positive), F.softplus(negative[mask])]).mean()


def bpr_loss(positive: Tensor, negative: Tensor, mask: Tensor) -> Tensor:
    """The mean over pairs of a true edge and a negative of it, of ``-log sigmoid(s+ - s-)``; 0 without a pair.

    Source: Rendle et al., BPR: Bayesian personalized ranking (UAI'09), section 4.
    """
    apart = F.softplus(negative - positive[:, None])[mask]
    return apart.sum() / max(len(apart), 1)


LOSSES: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "softmax": softmax_loss,
    "bce": bce_loss,
    "bpr": bpr_loss,
}


def hardest(negative: Tensor, mask: Tensor, num: int) -> Tensor:
    """Returns the mask of each edge's ``num`` negatives of the highest scores, bool ``[P, M]``, of those in ``mask``.

    Source: Zhang et al., Optimizing top-N collaborative filtering via dynamic negative item sampling (SIGIR'13).
    """
    if num >= negative.shape[1]:
        return mask
    best = negative.detach().masked_fill(~mask, -torch.inf).topk(num, dim=1).indices
    return mask & torch.zeros_like(mask).scatter_(1, best, True)
