"""All targets. A new one is a function of (choices, empty folder) and a line here."""

from __future__ import annotations

from tests.fuzz.case import Target
from tests.fuzz.targets import arguments, messages, ogb_folders, packed, stored_graphs, stored_partitions, tables

TARGETS = {
    target.name: target
    for target in (
        Target("graph-folder", stored_graphs.load, 150),
        Target("partition-folder", stored_partitions.load, 60),
        Target("packed-folder", packed.read, 60),
        Target("stored-dataset", stored_graphs.prepare, 80),
        Target("ogb-csv", ogb_folders.read_csv, 60, ("ogb",)),
        Target("ogb-npz", ogb_folders.read_npz, 60, ("ogb",)),
        Target("tables", tables.build, 20, ("tables",)),
        Target("message", messages.receive, 1000),
        Target("sealed-value", messages.unseal, 600),
        Target("op-arguments", arguments.call_ops, 1500),
        Target("graph-arguments", arguments.build_graphs, 500),
        Target("typed-arguments", arguments.build_typed_graphs, 300),
    )
}
