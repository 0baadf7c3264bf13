"""``python -m tests.benchmarks.gpu``: what the CUDA path wins and costs, in one run, as a page."""

from __future__ import annotations

import sys

from tests.benchmarks import gpu_device, parts

PARTS = {
    "gpu_sampling": "Sampling on the GPU",
    "gpu_gather": "Gathering rows on the GPU",
    "gpu_aggregation": "Sums of neighbours on the GPU",
    "gpu_epochs": "Epochs, and what their stages take",
}


def main(arguments: list[str]) -> int:
    if "--help" not in arguments and gpu_device.opened() is None:
        return 0  # a page of figures is not overwritten by none
    return parts.run("gpu", PARTS, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
