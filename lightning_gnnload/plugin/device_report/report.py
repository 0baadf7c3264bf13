"""DeviceReport: what a device is, does and should do, as a file and on a screen."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightning_gnnload.plugin.device_report.comparison import Comparison
from lightning_gnnload.plugin.device_report.figures import H200_ABOUT, Figure
from lightning_gnnload.plugin.device_report.outcomes import PartOutcome, run_part
from lightning_gnnload.plugin.device_report.parts import PARTS, ExaminedDevice
from lightning_gnnload.plugin.device_report.private import without_names
from lightning_gnnload.plugin.device_report.verdicts import Verdict, reasons, verdicts

FORMAT = "gnnload doctor --gpu, 1"
_FIGURES = ("ceilings", "host costs", "sampling", "rows")


@dataclass(frozen=True)
class DeviceReport:
    """What became of each part, by name; names of people, machines and paths are left out of it."""

    parts: dict[str, PartOutcome]

    @classmethod
    def make(cls, examined: ExaminedDevice, say: Callable[[str], None], file: Path | None = None) -> DeviceReport:
        """Runs all parts; ``say`` is told which one runs, and what became of it. The file is written after each, so
        that it has what there is when this process is ended."""
        report = cls({})
        for number, (name, part) in enumerate(PARTS.items()):
            limit_s = examined.patience * part.limit_s
            say(f"[{number + 1}/{len(PARTS)}] {part.about} (at most {limit_s:g} s) ...")
            outcome = run_part([*examined.command, name, str(examined.number)], limit_s)
            say(f"      {outcome.outcome}, {outcome.seconds:.0f} s{f': {outcome.why}' if outcome.why else ''}")
            report.parts[name] = PartOutcome(*without_names(outcome))
            if file is not None:
                report.save(file)
        return report

    @property
    def comparisons(self) -> list[Comparison]:
        """What was compared with the CPU."""
        return [Comparison(**values) for values in self._result("comparisons") or ()]

    @property
    def verdicts(self) -> list[Verdict]:
        """All figures, beside the H200's."""
        return verdicts([Figure(**values) for name in _FIGURES for values in self._result(name) or ()])

    @property
    def is_sound(self) -> bool:
        """Whether all parts ran to their end, and the kernels' results are the CPU's."""
        is_done = all(outcome.outcome == "done" for outcome in self.parts.values())
        return is_done and not any(comparison.is_bad for comparison in self.comparisons)

    def lines(self) -> Iterator[str]:
        """Yields what to say of it in plain words: faults, what is slower than it should be, and what was not done."""
        compared = self.comparisons
        equal = [comparison for comparison in compared if comparison.outcome == "equal"]
        if compared:
            yield f"{len(equal)} of {len(compared)} comparisons with the CPU are equal, bit for bit."
        for comparison in compared:
            if comparison.is_bad:
                why = comparison.why.rstrip(".")
                yield f"FAULT: {comparison.subject}: {comparison.outcome}: {why}. Please report it."
        if refused := [comparison.subject for comparison in compared if comparison.outcome == "refused"]:
            yield f"Done by the CPU in any case: {', '.join(refused)}."
        for name, outcome in self.parts.items():
            if outcome.outcome != "done":
                yield f"The part {name!r} {outcome.outcome}: {outcome.why.rstrip('.')}."
        for about, answer in ((self._result("sharing") or {}).get("read by another process on") or {}).items():
            if answer != "equal":
                why = answer.rstrip(".")
                yield f"Processes cannot share its memory (read on {about}): {why}. Each rank keeps its own cache."
        yield from reasons(self.verdicts, self._result("attributes") or {})

    @property
    def values(self) -> dict[str, Any]:
        """All of it as JSON values."""
        return {
            "format": FORMAT,
            "private": "without names of users and machines, paths, addresses, serial numbers and UUIDs",
            "beside": H200_ABOUT,
            "is_sound": self.is_sound,
            "summary": list(self.lines()),
            "figures": [verdict.values for verdict in self.verdicts],
            "parts": {name: outcome._asdict() for name, outcome in self.parts.items()},
        }

    def save(self, file: Path) -> None:
        """Writes the file, whole or not at all."""
        part = file.with_name(f".{file.name}.part")
        try:
            part.write_text(json.dumps(self.values, indent=1, ensure_ascii=False) + "\n")
            os.replace(part, file)
        finally:
            part.unlink(missing_ok=True)

    def _result(self, name: str) -> Any:
        return self.parts[name].result if name in self.parts else None


def say_on_stderr(line: str) -> None:
    """Prints a line of progress."""
    print(line, file=sys.stderr, flush=True)
