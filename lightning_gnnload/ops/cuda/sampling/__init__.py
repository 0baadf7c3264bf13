"""Mini-batches drawn on a device, launch by launch."""
