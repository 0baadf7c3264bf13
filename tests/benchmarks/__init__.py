"""Speed and memory side by side with DGL and this machine's ceilings: ``python -m tests.benchmarks --help``.

Nothing here is collected as a test. Each library runs in a process of its own; their turns are interleaved.
"""
