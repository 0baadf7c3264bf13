"""Compiling and launching CUDA kernels: devices, their driver and memory."""
