"""The CUDA path: kernels compiled when they are first needed, and what drives them.

Nothing here is imported before a device is asked for. Every function equals its namesake in
:mod:`lightning_gnnload.ops`, number for number. Its tensors lie on a :class:`.Device`, and it makes the host wait once
a mini-batch at most, where its docstring says nothing else.
"""
