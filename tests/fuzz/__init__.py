"""Fuzzing of what comes from outside: graph folders, raw data sets, messages, arguments of public functions.

Whatever they hold, the outcome is a result that can be used or an error of ours: no other exception, no crash, no
hang, no allocation beyond what the input can fill. The kernels alone are fuzzed natively: kernels/fuzz/.
"""
