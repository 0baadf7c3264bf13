"""Lightning's own tests, with FactoredStrategy in the place of DDPStrategy: see :mod:`tests.lightning.__main__`."""
