"""``gnnload plan``: predicts a run's memory and epoch times before it begins, and recommends ranks and threads."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from lightning_gnnload import GraphDataModule
from lightning_gnnload.errors import GnnLoadError, PlanError
from lightning_gnnload.host.malloc import freed_memory_kept
from lightning_gnnload.host.memory import ResidentMemory, in_units, resident_memory
from lightning_gnnload.host.progress import shown_display
from lightning_gnnload.pipeline.forecast.cluster import Cluster
from lightning_gnnload.pipeline.forecast.costs import MessageCosts, read_costs
from lightning_gnnload.pipeline.forecast.machine import Machine, read_machine, this_machine
from lightning_gnnload.pipeline.forecast.outlook import Outlook, outlook
from lightning_gnnload.pipeline.forecast.plan import Plan, read_plan
from lightning_gnnload.pipeline.forecast.recorded import RecordedRun, read_trace
from lightning_gnnload.pipeline.forecast.scaling import ClusterForecast, forecast_machines
from lightning_gnnload.pipeline.forecast.search import MeasuredRun
from lightning_gnnload.pipeline.forecast.work import check_number
from lightning_gnnload.plugin.commands.arguments import Parser, report_failure
from lightning_gnnload.plugin.commands.fit import GraphCLI, errors_in_a_line
from lightning_gnnload.plugin.compat import lightning_cli, pl
from lightning_gnnload.plugin.planning.configuration import as_yaml_file, planned_configuration
from lightning_gnnload.plugin.planning.figure import SWITCHING, draw_plan, headline, one_a_kind
from lightning_gnnload.plugin.planning.machines import (
    add_cluster_arguments,
    answer,
    cluster_of,
    counts_up_to,
    draw_machines,
    machines_headline,
    machines_table,
    with_gpus,
)
from lightning_gnnload.plugin.planning.measure import RunMeasurement
from lightning_gnnload.plugin.planning.message_costs import measure_costs
from lightning_gnnload.plugin.planning.trial import with_meeting
from lightning_gnnload.plugin.strategy.profile import quietly

_SUFFIXES = (".json", ".yaml", ".png")
_BUSY = 0.1
_EPILOG = """
What gnnload fit takes, this takes: --config files, and single settings over them, such as --data.batch_size 512.
It times mini-batches and training steps on copies of the model and the data module, and changes nothing. It writes
NAME.json, what was measured and predicted; NAME.yaml, your configuration with the recommended settings, to train by
gnnload fit --config NAME.yaml; and NAME.png. All layouts train on as many seeds a step as yours.
A machine is described as {cores: 16, memory_gib: 128, gpus: [{name: H200, count: 8}], links: {nvlink_gb_s: 450}}, and
optionally disk: {read_gb_s: 3}, machines: 2, network: {gb_s: 12}, and stages: {seeds: 1024, sample_ms: 2, ...}, the
times of a mini-batch that were measured there.
With --machines 8, epochs on 1 to 8 of such machines are simulated with their links, and drawn into NAME.machines.png;
what to do, and what more of each thing would give, is printed. With --measured, nothing is measured: it takes
seconds, or half a minute for machines of eight GPUs.
"""


class PlanCLI(GraphCLI):
    """The command line of ``gnnload fit``, which makes all objects and starts nothing."""

    def add_arguments_to_parser(self, parser: lightning_cli.LightningArgumentParser) -> None:
        super().add_arguments_to_parser(parser)
        parser.add_argument("--ckpt_path", type=str | None, default=None, help="As gnnload fit has it; not read.")


def main(arguments: Sequence[str]) -> int:
    """Prints what it predicts of a run; returns the exit code."""
    console = Console()
    imported = resident_memory()
    options, rest = _parse(arguments)
    configuration: dict[str, Any] | None = None
    try:
        if options.compare is not None:
            return _compare(options, console)
        earlier = None if options.measured is None else read_plan(options.measured)
        machine = this_machine() if earlier is None else earlier.machine
        if options.machine is not None:
            machine = read_machine(options.machine)
        several = options.machines > 1 or machine.machines > 1 or bool(options.sampler_nodes or options.owners)
        cluster = cluster_of(options, machine, _costs(options)) if several else None
        if cluster is not None:
            machine = replace(machine, machines=cluster.machines, network_gb_s=cluster.link_gb_s)
        machine = with_gpus(options, machine)
        recorded = None if options.trace is None else read_trace(options.trace)
        if earlier is None:
            measured, configuration = _measured(options, rest, machine, console, imported)
        else:
            measured = earlier.measured
        if recorded is not None:
            machine = _as_recorded(machine, recorded)
            cluster = None if cluster is None else replace(cluster, recorded=recorded.shares)
        plan = Plan.of(measured, machine)
        forecasts, prospect = ([], None) if cluster is None else _simulated(options, plan, cluster)
    except (GnnLoadError, KeyboardInterrupt) as error:
        return report_failure("gnnload plan", error)
    _say(console, plan)
    written = []
    if configuration is not None:
        _write(options.out, plan, configuration, rest, cluster)
        written = [options.out.with_suffix(suffix) for suffix in _SUFFIXES]
    if prospect is not None:
        _say_machines(console, plan, forecasts, prospect)
        written.append(options.out.with_suffix(".machines.png"))
        written[-1].parent.mkdir(parents=True, exist_ok=True)
        draw_machines(forecasts, plan, written[-1])
    if written:
        console.print(f"Written: {', '.join(map(str, written))}", markup=False)
    return 0


def _measured(
    options: argparse.Namespace, rest: list[str], machine: Machine, console: Console, imported: ResidentMemory
) -> tuple[MeasuredRun, dict[str, Any]]:
    """Measures the configuration that ``rest`` asks for; returns the configuration, too."""
    # Of settings that cannot be, gnnload plan says what gnnload fit says.
    with errors_in_a_line(), quietly():
        sys.argv[1:] = rest
        cli = PlanCLI(
            pl.LightningModule, GraphDataModule, subclass_mode_model=True, run=False, save_config_callback=None
        )
        # Newer parsers have another name for an option that older ones need.
        configuration = json.loads(cli.parser.dump(cli.config, format="json", skip_none=False, skip_default=True))
    # Memory that steps have freed stays with this process, as gnnload fit has it stay: steps take far less time.
    with _progress(Console(stderr=True)) as advance, quietly(), freed_memory_kept():
        measurement = RunMeasurement(
            cli.trainer, cli.model, cli.datamodule, this_machine(), options.seconds, imported, advance
        )
        measured = measurement.run()
    if machine.cores > 1 and not machine.gpus:
        measured = _with_meeting(measured, configuration, console)
    return measured, configuration


def _costs(options: argparse.Namespace) -> MessageCosts:
    """What messages take of cores: by a file, by an earlier plan's, or as it is measured here."""
    file = options.costs or options.measured
    return measure_costs() if file is None else read_costs(file)


def _as_recorded(machine: Machine, recorded: RecordedRun) -> Machine:
    """The machine, on which stages take what a trace says; where it has devices, steps are theirs."""
    work = recorded.work
    if machine.gpus:
        work = replace(work, train_fixed_ms=0.0, train_device_ms=work.train_fixed_ms)
    return replace(machine, stages=work, stage_seeds=recorded.num_seeds)


def _simulated(options: argparse.Namespace, plan: Plan, cluster: Cluster) -> tuple[list[ClusterForecast], Outlook]:
    """Epochs of the recommended layout on up to so many machines, and what to make of them."""
    layout, machine = plan.recommended.layout, plan.machine
    if layout.alternates:
        layout = max(plan.forecasts, key=lambda forecast: (not forecast.layout.alternates, -forecast.epoch_s)).layout
    if options.staleness is not None:
        check_number("--staleness", options.staleness, 64)
        layout = replace(layout, staleness=options.staleness)
    with _progress(Console(stderr=True), "simulating") as advance:
        counts = counts_up_to(cluster.machines)
        forecasts = forecast_machines(
            plan.measured, layout, machine, cluster, counts, lambda count: advance(str(count))
        )
        return forecasts, outlook(plan.measured, layout, machine, cluster, advance)


def _say_machines(console: Console, plan: Plan, forecasts: list[ClusterForecast], prospect: Outlook) -> None:
    """Prints epochs by the number of machines, and what to do."""
    console.print(machines_table(forecasts, plan.recommended.layout))
    console.print(f"{machines_headline(forecasts)}.", markup=False, style="bold", highlight=False)
    for line in answer(prospect):
        console.print(line, markup=False, highlight=False)


def _with_meeting(measured: MeasuredRun, configuration: dict[str, Any], console: Console) -> MeasuredRun:
    """What two ranks show of themselves; where they cannot, that is said, and the plan does without."""
    with _progress(Console(stderr=True)) as advance:
        advance("two ranks")
        try:
            return with_meeting(measured, configuration, this_machine())
        except PlanError as error:
            problem = str(error)
    console.print(f"What ranks take to meet was not measured, but assumed: {problem}", markup=False, highlight=False)
    return measured


def _compare(options: argparse.Namespace, console: Console) -> int:
    plan = read_plan(options.out.with_suffix(".json"))
    try:
        report = json.loads(options.compare.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise PlanError(f"the report {options.compare} cannot be read: {error}") from error
    forecast, figures = plan.beside(report)
    table = Table(title=f"Predicted beside actual: {forecast.layout}")
    for column in ("", "predicted", "actual", "off"):
        table.add_column(column, justify="right" if column else "left")
    for figure in figures:
        show = (lambda value: in_units(int(value))) if figure.unit == "bytes" else (lambda value: f"{value:.4g}")
        unit = "" if figure.unit == "bytes" else f", {figure.unit}"
        table.add_row(figure.name + unit, show(figure.predicted), show(figure.actual), f"{figure.off:+.0%}")
    console.print(table)
    return 0


# What is told.


def _say(console: Console, plan: Plan) -> None:
    measured = plan.measured
    mine = plan.mine.layout
    work = measured.work_of(mine, plan.machine)
    stages = {
        "sampling": work.sample_ms + work.draw_device_ms,
        "gathering": work.gather_ms + work.gather_device_ms + work.gather_link_ms,
        "waiting for a disk": work.wait_ms,
        "conversion": work.convert_ms,
        f"training, torch threads {mine.torch_threads}": work.train_ms(mine.torch_threads),
    }
    listed = ", ".join(f"{name} {ms:.2f} ms" for name, ms in stages.items() if ms >= 0.005)
    console.print(f"A mini-batch of {mine.batch_size} seeds: {listed}.", markup=False, highlight=False)
    if measured.cache.ratios:
        rates = ", ".join(
            f"{rate:.0%} with {ratio:.3g}"
            for ratio, rate in zip(measured.cache.ratios, measured.cache.hit_rates, strict=True)
        )
        console.print(
            f"Rows that a cache would serve, by the share of rows it has: {rates}. A row takes "
            f"{measured.cache.store_ns:.0f} ns from the table, {measured.cache.memory_ns:.0f} ns from memory.",
            markup=False,
            highlight=False,
        )
    if measured.formats:
        epochs_s = plan.epochs_by_format()
        took = ", ".join(f"{name} {ms:.2f} ms ({epochs_s[name]:.3g} s)" for name, ms in measured.formats.items())
        console.print(
            f"Conversion to each batch format (and an epoch of the best layout with it): {took}.",
            markup=False,
            highlight=False,
        )
    console.print(_layouts(plan))
    console.print(_memory(plan))
    console.print("* pages of files, which are given up where memory is short", markup=False, highlight=False)
    if any(forecast.layout.switching and not forecast.layout.alternates for forecast in one_a_kind(plan)):
        console.print(SWITCHING, markup=False)
    problems = dict.fromkeys(forecast.problem for forecast in (plan.mine, plan.recommended) if forecast.problem)
    for problem in problems:
        console.print(f"Does not fit: {problem}", markup=False, style="bold")
    if measured.foreign_load > _BUSY:
        console.print(
            f"Other processes used {measured.foreign_load:.0%} of the cores meanwhile: plan again when they are done.",
            markup=False,
        )
    if plan.machine.gpus and not (plan.machine.is_here or plan.machine.stages or plan.machine.step_ms):
        console.print(
            "Nothing was measured on the described GPU: steps there are guessed from its memory's rate. Give stages.",
            markup=False,
        )
    console.print(f"{headline(plan)}.", markup=False, style="bold", highlight=False)


def _layouts(plan: Plan) -> Table:
    title = "Predicted, the fastest of each way to divide ranks: train + sample"
    table = Table(title=title, box=None, padding=(0, 1, 0, 0))
    texts = ("strategy", "limited by", "")
    for column in ("strategy", "ranks", "threads", "ms/step", "s/epoch", "limited by", "memory", ""):
        table.add_column(column, justify="left" if column in texts else "right", no_wrap=column != "")
    for forecast in one_a_kind(plan):
        layout = forecast.layout
        marks = ["best"] * (forecast == plan.recommended) + ["yours"] * (forecast == plan.mine)
        marks += ["too large"] * bool(forecast.problem) + ["in turns"] * layout.alternates
        marks += ["switching"] * (layout.switching and not layout.alternates)
        marks += [f"{layout.cache:.2g} cached"] * bool(layout.cache)
        table.add_row(
            layout.way,
            f"{layout.trainers}+{layout.samplers}" if layout.samplers else str(layout.trainers),
            str(layout.threads),
            f"{forecast.step.step_ms:.1f}",
            f"{forecast.epoch_s:.3g}",
            forecast.step.limit,
            in_units(forecast.host_bytes),
            ", ".join(marks),
        )
    return table


def _memory(plan: Plan) -> Table:
    title = f"Memory of a machine: {plan.recommended.layout}"
    table = Table(title=title, box=None, padding=(0, 1, 0, 0))
    for column in ("of", "for", "each", "times", "in all"):
        table.add_column(column, justify="left" if column in ("of", "for") else "right")
    for part in plan.recommended.parts:
        purpose = f"{part.purpose}{' *' * part.reclaimed}"
        table.add_row(part.owner, purpose, in_units(part.num_bytes), str(part.count), in_units(part.total))
    return table


def _write(out: Path, plan: Plan, configuration: dict[str, Any], rest: Sequence[str], cluster: Cluster | None) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    plan_file = out.with_suffix(".json")
    costs = {} if cluster is None else {"costs": asdict(cluster.costs)}
    plan_file.write_text(json.dumps(plan.to_json() | costs, indent=1) + "\n")
    machines = plan.machine.machines
    written, changes = planned_configuration(
        configuration, plan.mine.layout, plan.recommended.layout, plan_file=plan_file, num_nodes=machines
    )
    out.with_suffix(".yaml").write_text(as_yaml_file(written, changes, f"gnnload plan {' '.join(rest)}"))
    draw_plan(plan, out.with_suffix(".png"))


@contextmanager
def _progress(console: Console, activity: str = "measuring") -> Iterator[Any]:
    status = console.status(f"{activity} ...")
    with shown_display(status):
        yield lambda part: status.update(f"{activity}: {part} ...")


# Arguments.


def _parse(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    parser = Parser(
        "gnnload plan",
        usage="%(prog)s --config YAML [--machine YAML] [options]\n"
        "       gnnload plan --measured PLAN [--machines N] [options]\n"
        "       gnnload plan --compare REPORT [--out NAME]",
        description=__doc__,
        epilog=_EPILOG,
        allow_abbrev=False,
    )
    parser.add_argument("--machine", type=Path, metavar="YAML", help="a description of the machine; default: this one")
    parser.add_argument("--seconds", type=_seconds, default=60.0, help="about how long to measure; default 60")
    parser.add_argument(
        "--out", type=_out, default=Path("runs/plan/plan.json"), metavar="NAME", help="default runs/plan/plan.json"
    )
    parser.add_argument(
        "--compare", type=Path, metavar="REPORT", help="a run's where_the_time_went.json, to show beside NAME.json"
    )
    parser.add_argument(
        "--trace", type=Path, metavar="JSON", help="a run's trace.json, whose stages and mini-batches are simulated"
    )
    parser.add_argument(
        "--measured", type=Path, metavar="PLAN", help="an earlier plan's .json, whose measurements serve again"
    )
    add_cluster_arguments(parser)
    options, rest = parser.parse_known_args(arguments)
    needs_none = options.compare is not None or options.measured is not None
    if needs_none and rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if not needs_none and not rest:
        parser.error("give --config FILE, a configuration of gnnload fit, or --measured FILE, an earlier plan's")
    return options, rest


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 1 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r}: seconds from 1 to 3600 are needed")
    return seconds


def _out(text: str) -> Path:
    """Reads the name of the files to write: its ending is one of theirs, or none."""
    file = Path(text)
    if file.suffix not in (*_SUFFIXES, ""):
        raise argparse.ArgumentTypeError(f"{text!r}: a name is needed that ends in .json, .yaml or .png, or in none")
    return file.with_suffix(".json")
