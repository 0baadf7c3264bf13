"""What several test files compare with."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.scripts import launch, nodes


@pytest.fixture(scope="session")
def one_node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two trainers and a sampler on one machine; the folder with what ``nodes.py`` wrote of each case."""
    folder = tmp_path_factory.mktemp("one")
    launch.run(Path(nodes.__file__), 1, 1, "after", "max_steps", folder=folder, num_devices=3)
    return folder
