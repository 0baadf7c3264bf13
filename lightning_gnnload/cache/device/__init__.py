"""Caches of feature rows in the memory of devices."""
