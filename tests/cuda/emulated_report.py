"""Parts of ``gnnload doctor --gpu`` on the emulated device, in processes of their own, as on a device.

``python -m tests.cuda.emulated_report PART DEVICE``; a part named after ``GNNLOAD_TEST_BREAKS`` in the environment
does what that says: ``hang``, ``crash``, or ``print`` what libraries print.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence

from lightning_gnnload.plugin.device_report.parts import PARTS, ExaminedDevice, main
from lightning_gnnload.plugin.device_report.probes import SMALL
from tests.cuda.emulated import EmulatedDevice
from tests.cuda.fake_runtime import FakeRuntime

COMMAND = (sys.executable, "-m", "tests.cuda.emulated_report")
VARIABLE = "GNNLOAD_TEST_BREAKS"


def emulated_examined(index: int = 0, command: Sequence[str] = COMMAND) -> ExaminedDevice:
    """Two devices; the second cannot open the first one's memory."""
    return ExaminedDevice(
        index,
        SMALL,
        lambda: EmulatedDevice(num_processors=2),
        lambda: FakeRuntime(["gpu-0", "gpu-1"], _number, apart=[frozenset(("gpu-0", "gpu-1"))]),
        command,
        patience=10,
    )


def _break(how: str) -> None:
    if how == "hang":
        subprocess.Popen(["sleep", "600"])  # which would keep a pipe open
        signal.sigwait([signal.SIGUSR1])
    elif how == "crash":
        print(f"no room at /home/somebody/{os.getpid()}/x.cu", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGSEGV)
    elif how == "print":
        os.write(1, b"CUDA says hello\n")
        print("and so does Python")


if __name__ == "__main__":
    _number = int(sys.argv[2])
    name, _, how = os.environ.get(VARIABLE, "").partition(" ")
    if name == sys.argv[1]:
        sound = PARTS[name]

        def run(examined: ExaminedDevice) -> object:
            _break(how)
            return sound.run(examined)

        PARTS[name] = sound._replace(run=run)
    sys.exit(main(sys.argv[1:], emulated_examined()))
