"""Layer-wise inference: each layer of a model is computed once for every node, and activations lie on disk."""

from lightning_gnnload.inference.infer import infer
from lightning_gnnload.inference.links import score_links

__all__ = ["infer", "score_links"]
