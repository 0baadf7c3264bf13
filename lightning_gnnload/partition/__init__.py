"""Cutting graphs into parts: PaGraph's self-reliant ones, METIS, BGL, and plainer ways to compare with."""
