"""Tests that make sense on a GPU alone; `pytest tests/gpu tests/cuda` is what a machine with one should run."""
