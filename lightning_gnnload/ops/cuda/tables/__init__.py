"""Rows in the memory of devices and hosts: gathers, caches, and the order of reads."""
