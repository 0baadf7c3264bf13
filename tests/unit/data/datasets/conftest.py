"""No test of data sets reaches the network."""

import urllib.request

import pytest


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def refuse(*args, **kwargs):
        raise OSError("the network was asked")

    monkeypatch.setattr(urllib.request, "urlopen", refuse)
    monkeypatch.setenv("OUTDATED_IGNORE", "1")  # ogb sets it when it is imported
