"""A first graph.yaml of tables that nobody has described: which hold nodes, which edges, and what their columns are."""
