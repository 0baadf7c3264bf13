"""Runs one part of a report, in a process of its own."""

import sys

from lightning_gnnload.plugin.device_report.parts import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
