"""Models by name, which take what they need to know from the data."""
