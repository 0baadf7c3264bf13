"""The CUDA path: kernels that are compiled when they are first needed, and the functions that launch them.

Nothing here is imported before a device is asked for. Every function equals its namesake in
:mod:`lightning_gnnload.ops`, number for number. Its tensors are on a :class:`.Device`, and it makes the host wait once
a mini-batch at most, unless its docstring says otherwise.
"""
