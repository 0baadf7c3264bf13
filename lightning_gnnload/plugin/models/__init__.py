"""A first model, to begin with."""
