"""Edges of a layer whose lists lie with several ranks, drawn in two stages: from which lists, then which of each.

Lists' lengths are enough to draw by where edges are alike. Where they have weights, owners tell how far these span,
then what each list weighs. A draw is a place on the line of all edges, and the list's owner finds which edge is there.

Shapes: D nodes of the frontier, n draws.

Source: DSP (PPoPP'23), section 4.2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lightning_gnnload import ops
from lightning_gnnload.ops import DrawKey, LineUnits
from lightning_gnnload.sample.group.group import SamplingGroup
from lightning_gnnload.sample.group.messages import MOST, Answer, narrow
from lightning_gnnload.sample.parts.lists import HopEdges

# A draw by weight. begin: of its edge on the line of the layer, where this is `length` long; list: in the frontier;
# weight and whole: of the edge and its list, in units of this; factor: of the draw.
_DRAW = np.dtype(
    [(name, np.int64) for name in ("begin", "length", "list", "neighbor", "edge_id")]
    + [(name, np.float64) for name in ("weight", "whole", "factor")]
)


@dataclass(frozen=True)
class LayerApart:
    """The edges into ``frontier`` (new ids, int64 ``[D]``), whose lists lie with the ranks of ``group``. Draws are
    those of :func:`.ops.sample_layers` with ``"dsp"``, bit by bit: up to ``budget`` edges, by ``key`` and the global id
    of the batch's first seed. The other settings are :class:`.LayerSampler`'s."""

    group: SamplingGroup
    frontier: np.ndarray
    budget: int
    key: DrawKey
    first_seed: int
    replace: bool
    normalize: bool
    edge_ids: bool
    weighted: bool

    def draw(self) -> HopEdges | None:
        """Draws edges; None where the budget takes every edge with a weight, which pulled lists do. ExchangeError: a
        rank cannot answer."""
        answers = self.group.ask("degrees", self.frontier, {"weighted": self.weighted})
        degrees = self._of_lists("degrees", answers)
        if self.weighted and degrees.any():
            spans = np.array([answer.fractions("span", 2) for answer in answers])
            least, greatest = float(spans[:, 0].min()), float(spans[:, 1].max())
            # Edges of one weight are drawn, and count, as if they had none.
            if least < greatest or greatest == 0:
                return self._draw_by_weight(LineUnits(greatest, int(degrees.sum())))
        return self._draw_alike(degrees)

    def _draw_alike(self, degrees: np.ndarray) -> HopEdges:
        """Draws by the lengths of lists alone."""
        counts, positions, weights = ops.draw_layer(
            degrees, self.budget, self.key, self.first_seed, replace=self.replace, normalize=self.normalize
        )
        settings = {"edge_ids": self.edge_ids}
        neighbors, edge_ids = (np.empty(len(positions), np.int64) for _ in range(2))
        for answer in self.group.ask(
            "edges", np.repeat(self.frontier, counts), settings, {"places": narrow(positions)}
        ):
            neighbors[answer.positions] = self._neighbors(answer)
            if self.edge_ids:
                edge_ids[answer.positions] = answer.numbers("edge_ids", MOST, len(answer.positions))
        return HopEdges(counts, neighbors, edge_ids if self.edge_ids else None, weights)

    def _draw_by_weight(self, units: LineUnits) -> HopEdges | None:
        """Draws positions on the line of all edges; without replacement in waves, like
        ``kernels/sample_layers/draw_waves.h``."""
        answers = self.group.ask("lengths", self.frontier, {"units": units})
        lengths = self._of_lists("lengths", answers)
        num_positive = sum(int(answer.numbers("num_positive", MOST, 1)[0]) for answer in answers)
        if not self.replace and self.budget >= num_positive:
            return None
        num_draws, num_left = self.budget if num_positive else 0, int(lengths.sum())
        draws, wave = np.empty(0, _DRAW), 0
        while len(draws) < num_draws:
            missing = num_draws - len(draws)
            positions = ops.draw_places(num_left, missing, self.key, self.first_seed, wave)
            if self.replace:
                positions = positions[:missing]
            # On what is left of the line: what earlier waves took of it is stepped over.
            intervals = np.sort(draws, order="begin")
            before = np.append(0, np.cumsum(intervals["length"]))
            positions += before[np.searchsorted(intervals["begin"] - before[:-1], positions, side="right")]
            hits = self._find(units, lengths, positions)
            if self.replace:
                hits["factor"] = num_left / (float(num_draws) * hits["length"])
            else:
                hits = hits[np.sort(np.unique(hits["begin"], return_index=True)[1])[:missing]]
                rest = num_left - (np.cumsum(hits["length"]) - hits["length"])
                draws_to_come = missing - 1 - np.arange(len(hits))
                hits["factor"] = (rest / hits["length"] + draws_to_come) / num_draws
                num_left -= int(hits["length"].sum())
            draws, wave = np.append(draws, hits), wave + 1
        # An edge that was drawn twice is one edge of twice the factor. bincount adds up one after the other.
        _, firsts, which = np.unique(draws["begin"], return_index=True, return_inverse=True)
        edges = draws[firsts]
        values = np.bincount(which, draws["factor"], len(edges)) * edges["weight"]
        wholes = np.bincount(edges["list"], values)[edges["list"]] if self.normalize else edges["whole"]
        return HopEdges(
            np.bincount(edges["list"], minlength=len(lengths)),
            edges["neighbor"],
            edges["edge_id"] if self.edge_ids else None,
            (values / wholes).astype(np.float32),
        )

    def _find(self, units: LineUnits, lengths: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Asks which edges lie at places on the line, in the order of these."""
        # In the order of the line, by which an owner passes over each list once.
        order = np.argsort(positions)
        stops = np.cumsum(lengths)
        hits = np.zeros(len(positions), _DRAW)
        hits["list"] = lists = np.searchsorted(stops, positions[order], side="right")
        hits["begin"] = (stops - lengths)[lists]
        settings = {"units": units, "edge_ids": self.edge_ids}
        for answer in self.group.ask(
            "on_line", self.frontier[lists], settings, {"places": positions[order] - hits["begin"]}
        ):
            at, count = answer.positions, len(answer.positions)
            hits["begin"][at] += answer.numbers("begins", MOST, count)
            hits["length"][at] = answer.numbers("lengths", MOST, count)
            hits["neighbor"][at] = self._neighbors(answer)
            hits["weight"][at] = answer.fractions("weights", count)
            hits["whole"][at] = answer.fractions("wholes", count)
            if self.edge_ids:
                hits["edge_id"][at] = answer.numbers("edge_ids", MOST, count)
        as_drawn = np.empty_like(hits)
        as_drawn[order] = hits
        return as_drawn

    def _of_lists(self, name: str, answers: list[Answer]) -> np.ndarray:
        numbers = np.empty(len(self.frontier), np.int64)
        for answer in answers:
            numbers[answer.positions] = answer.numbers(name, MOST, len(answer.positions))
        return numbers

    def _neighbors(self, answer: Answer) -> np.ndarray:
        return answer.numbers("neighbors", self.group.partition.num_nodes, len(answer.positions))
