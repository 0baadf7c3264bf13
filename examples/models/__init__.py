"""A model of links, as a plain LightningModule."""

from .links import LinkSAGE

__all__ = ["LinkSAGE"]
