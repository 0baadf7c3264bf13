"""Mini-batches as models of other libraries expect them, and their graphs."""
