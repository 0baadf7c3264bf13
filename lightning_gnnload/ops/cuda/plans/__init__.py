"""Mini-batches that are recorded once and made again by one native call."""
