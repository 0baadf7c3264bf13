"""Tables become a graph folder: DuckDB reads them, kernels number and sort."""
