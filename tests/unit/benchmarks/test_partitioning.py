from typing import Any

import numpy as np

from lightning_gnnload import Graph, GraphData
from lightning_gnnload.partition.quality import Quality
from lightning_gnnload.partition.stages import BuildStage
from tests.benchmarks import partitioning
from tests.benchmarks.partitioning import Case, Partitioning, assigning_s, table


def made(**values: Any) -> dict[str, Any]:
    stages = [
        BuildStage("Assigning nodes", 1.0, 1 << 30),
        BuildStage("Dealing out train seeds", 2.5, 2 << 30),
        BuildStage("Closing parts", 9.0, 3 << 30),
    ]
    quality = Quality(100, 1000, [40, 60], [60, 80], [500, 700], [20, 20], {"train": [4, 5]}, 250, stages=stages)
    return {"seconds": 12.5, "quality": quality.to_json(), **values}


def test_a_row_has_what_the_partition_reports() -> None:
    cells = [cell.strip() for cell in table([(Case("ours", "self-reliant", 2), made())]).splitlines()[-1].split("|")]
    assert cells[1:-1] == [
        *("ours", "2", "12.5", "3.5", "3.00"),
        *("**70.0%**", "80.0%", "1.40", "60.0%", "1", "1.20", "25.0%"),
    ]


def test_assigning_ends_where_parts_are_closed() -> None:
    assert assigning_s(Quality.from_json(made()["quality"])) == 3.5


def test_shares_are_those_of_a_partition(monkeypatch: Any) -> None:
    # 0 <- 1 <- 2 <- 3 and 4 <- 5: two hops of 0 and of 4 are of 3 and of 2 nodes, 2 edges and 1.
    graph = Graph.from_coo([1, 2, 3, 5], [0, 1, 2, 4])

    class Stored:
        def load(self) -> GraphData:
            return GraphData(graph, train=np.array([0, 4]))

    monkeypatch.setitem(partitioning.GRAPHS, "toy", Stored())
    found = Partitioning().share("toy", {}, 2, 2)
    assert (found["nodes"], found["edges"]) == (5 / 12, 3 / 8)
    assert {name: value for name, value in Partitioning().reach("toy", 2).items() if name in ("nodes", "edges")} == {
        "nodes": 5 / 6,
        "edges": 3 / 4,
    }
