"""AllItems: ranks of links among all items, and the best items of each source, for LinkPredictor.

Shapes: R rows of a mini-batch, P pairs of a row and a right answer, I items.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from lightning_gnnload.data.block import MiniBatch
from lightning_gnnload.data.seedform import LinkForm
from lightning_gnnload.data.typed_batch import TypedMiniBatch
from lightning_gnnload.errors import LoaderConfigError
from lightning_gnnload.inference.known_links import KnownLinks
from lightning_gnnload.inference.retrieval import (
    FaissIndex,
    Pairs,
    Ranking,
    ScoreBlock,
    highest,
    ranks_among,
    top_items,
)
from lightning_gnnload.models.links.items import Answers, ItemRows, check_answers_are_hidden

_MORE = 2  # as many items as are wanted are looked up in an index, times this: it gives no exact scores


class Links(NamedTuple):
    """The links of one edge type in a mini-batch, and the rows of their ends.

    ``number`` is of the edge type among those of the model; ids of nodes count within the type, int64 ``[V]``.
    """

    number: int
    form: LinkForm
    columns: Mapping[str, Tensor]
    src: Tensor
    dst: Tensor
    src_nodes: Tensor
    dst_nodes: Tensor


class AllItems:
    """The items that a phase's sources are ranked among, by edge type of the links: all nodes of its destinations.

    Args:
        model: a LinkPredictor, whose weights give the rows.
        module: the data.
        phase: ``"val"``, ``"test"`` or ``"predict"``.
    """

    def __init__(self, model: Any, module: Any, phase: str) -> None:
        self._model, self._module, self._phase = model, module, phase
        self.graph = module.graph_data.graph
        self._kind = module.workload(phase).kind
        self._times = self._times_of_rows() if self._kind.is_timed else None
        self._rows: dict[int, ItemRows] = {}
        self._known: dict[int, KnownLinks] = {}
        self._index: dict[tuple[int, int], FaissIndex] = {}
        self._answers: Answers | None = None
        if phase != "predict":
            check_answers_are_hidden(self._kind.table, self._kind.is_timed, phase)
            self._answers = Answers(self._kind.table, self.graph, self._kind.is_timed)

    def _times_of_rows(self) -> np.ndarray:
        table = self._kind.table
        if table is not None and table.time is not None:
            times: np.ndarray = table.time
            return times
        node_times: np.ndarray = self.graph.node_time[self._kind.nodes_of(self._kind.rows)[:, 0]]
        return node_times

    # Of one edge type, by its number in the model.

    def _edge_type(self, number: int) -> Any:
        edge_type = self._model.sizes["link_types"][number]
        return 0 if edge_type is None else tuple(edge_type)

    def _item_rows(self, number: int) -> ItemRows:
        if number not in self._rows:
            edge_type = self._model.sizes["link_types"][number]
            node_type = None if edge_type is None else edge_type[2]
            table = self._kind.table
            self._rows[number] = ItemRows(
                partial(self._encoded, node_type or ""),
                self._module,
                node_type,
                self._times,
                self._model.settings["most_moments"],
                strictly=table is not None and table.edge_ids is not None,
            )
        return self._rows[number]

    def _encoded(self, node_type: str, batch: Any) -> Tensor:
        rows: Tensor = self._model._rows(batch.to(self._model.device))[node_type]
        return rows

    def _known_links(self, number: int) -> KnownLinks:
        if number not in self._known:
            data = self._module.graph_data
            # What the graph has at a time is all that is known then; without times, other splits are as well.
            tables = [] if self._times is not None or self._phase == "predict" else data.seed_tables.values()
            self._known[number] = KnownLinks(self.graph, self._edge_type(number), tables)
        return self._known[number]

    def _until(self, times: np.ndarray | None) -> np.ndarray | None:
        """The code below which what is known at these times has its own, uint32."""
        if times is None:
            return None
        until: np.ndarray = self.graph.clock.until(times, self._module.eval_sampler.before)
        return until

    def _scorer(self, number: int, src: Tensor, times: np.ndarray | None) -> ScoreBlock:
        """Returns what scores blocks of items for sources of these rows, ``[P, D]``, at their times."""
        rows, head, until = self._item_rows(number), self._model.head, self._until(times)
        moments = rows.moments_of(times, len(src))
        query, distinct = head.query(src, number), np.unique(moments).tolist()
        items = {moment: head.item(rows.at(moment), number) for moment in distinct}
        codes = self.graph.node_codes_of(rows.nodes) if until is not None else None

        def score(first: int, last: int) -> Tensor:
            if len(distinct) == 1:
                scores = head.exact(query, items[distinct[0]][first:last])
            else:
                scores = src.new_empty(len(src), last - first, dtype=torch.float32)
                for moment in distinct:
                    at = torch.from_numpy(np.flatnonzero(moments == moment)).to(src.device)
                    scores[at] = head.exact(query[at], items[moment][first:last])
            if codes is None or until is None:
                return scores
            is_later = torch.from_numpy(codes[None, first:last] >= until[:, None]).to(src.device)
            return scores.masked_fill(is_later, -torch.inf)

        return score

    # In validation and test.

    def ranks(self, links: Links, by_popularity: bool) -> dict[str, Tensor]:
        """Returns the arguments of the metrics' ``update``: of all right answers to the rows of a mini-batch."""
        assert self._answers is not None, "this is no prediction"
        table, columns, number = self._answers.table, links.columns, links.number
        first_row = next(
            rows.start
            for edge_type, rows in table.rows_by_type.items()
            if edge_type is None or self.graph.edge_type_number(edge_type) == links.form.number
        )
        rows = columns["input_id"].cpu().numpy() + first_row
        row, target = self._answers.of(rows)
        times = None if self._times is None else self._times[rows[row]]
        targets = torch.from_numpy(target).to(links.src.device)
        pair, right = self._answers.all_of(rows[row])
        if self._model.settings["filtered"]:
            known_pair, known_items = self._known_links(number).of(table.ends[rows[row], 0], self._until(times))
            pair, right = np.concatenate([pair, known_pair]), np.concatenate([right, known_items])
        score: ScoreBlock
        if by_popularity:
            popularity = self._model._popularity(number)
            score = lambda first, last: popularity[None, first:last].expand(len(row), -1)  # noqa: E731
        else:
            src = links.src[columns["src"][torch.from_numpy(row).to(links.src.device)]]
            score = self._scorer(number, src, times)
        num_items = len(self._item_rows(number).nodes)
        ranks, positive = ranks_among(score, targets, num_items, (pair, right))
        query = torch.from_numpy(self._answers.query[rows[row]]).to(links.src.device)
        return {"positive": positive, "ranks": ranks, "query": query}

    # In prediction.

    def best(self, batch: MiniBatch | TypedMiniBatch, rows: dict[str, Tensor]) -> Ranking:
        """Returns the best items of each seed, or of each link's source."""
        number = self._recommended()
        edge_type = self._model.sizes["link_types"][number]
        src_type = "" if edge_type is None else edge_type[0]
        columns, ids = batch.seed_columns, batch.nodes if isinstance(batch, TypedMiniBatch) else {"": batch.nodes}
        if batch.seed_form.name == "links":
            other_types = {link.edge_type for link in batch.seed_form.links} - {
                None if edge_type is None else tuple(edge_type)
            }
            at = columns["src"]
            wrong = f"links of {', '.join(map(str, sorted(other_types, key=str)))}" if other_types else ""
        else:
            at = torch.arange(len(rows[src_type]), device=rows[src_type].device)
            counts = {name: len(part) for name, part in rows.items() if name != src_type and len(part)}
            wrong = f"nodes of {', '.join(counts)}" if counts else ""
        if wrong:
            raise LoaderConfigError(
                f"LinkPredictor recommends to nodes of {src_type!r}, but the seeds are {wrong}. Give GraphDataModule "
                f"predict={src_type!r}, or the model the edge_type whose destinations are wanted."
            )
        src, sources = rows[src_type][at], ids[src_type][at].cpu().numpy()
        times = columns["time"].cpu().numpy() if self._times is not None else None
        excluded = None
        if self._model.settings["exclude_known"]:
            excluded = self._known_links(number).of(sources, self._until(times))
        items, scores = self._top(number, src, times, excluded)
        nodes = self._item_rows(number).nodes
        return Ranking(torch.where(items >= 0, items + nodes.start, -1), scores, (nodes.start, nodes.stop))

    def _recommended(self) -> int:
        """The number of the edge type whose destinations are items."""
        link_types, name = self._model.sizes["link_types"], self._model.settings["edge_type"]
        if name is None and len(link_types) == 1:
            return 0
        matches = [number for number, link in enumerate(link_types) if link and name in (link[1], "__".join(link))]
        if len(matches) != 1:
            raise LoaderConfigError(
                f"LinkPredictor: edge_type={name!r} does not say whose destinations to recommend; give one of "
                f"{', '.join('__'.join(link or ('links',)) for link in link_types)}."
            )
        return matches[0]

    def _top(self, number: int, src: Tensor, times: np.ndarray | None, excluded: Pairs | None) -> tuple[Tensor, Tensor]:
        k, num_items = self._model.settings["top_k"], len(self._item_rows(number).nodes)
        score = self._scorer(number, src, times)
        if self._model.settings["index"] == "exact":
            return top_items(score, len(src), num_items, k, excluded)
        return self._top_by_index(number, src, times, excluded or (np.empty(0, np.int64), np.empty(0, np.int64)))

    def _top_by_index(
        self, number: int, src: Tensor, times: np.ndarray | None, excluded: Pairs
    ) -> tuple[Tensor, Tensor]:
        """The best of the items that an index gives, which are scored as exactly as all of them would be."""
        rows, head, until, k = (
            self._item_rows(number),
            self._model.head,
            self._until(times),
            self._model.settings["top_k"],
        )
        num_items, moments = len(rows.nodes), rows.moments_of(times, len(src))
        most_excluded = int(np.bincount(excluded[0], minlength=1).max())
        count = min(_MORE * k + most_excluded, num_items)
        numbers = torch.full((len(src), count), -1, device=src.device)
        scores = src.new_empty(len(src), count, dtype=torch.float32)
        for moment in np.unique(moments).tolist():
            at = torch.from_numpy(np.flatnonzero(moments == moment)).to(src.device)
            query, item = head.query(src[at], number), head.item(rows.at(moment), number)
            if (number, moment) not in self._index:
                self._index[number, moment] = FaissIndex(item)
            # Ascending, so that of equal scores the item of the lower number comes first.
            numbers[at] = self._index[number, moment].candidates(query, count).sort(dim=1).values
            scores[at] = head.joined(query[:, None].double(), item[numbers[at]].double()).float()
        ids = numbers.cpu().numpy()
        keys = np.arange(len(src))[:, None] * num_items + ids
        is_out = (ids < 0) | np.isin(keys, excluded[0] * num_items + excluded[1])
        codes = self.graph.node_codes_of(rows.nodes)
        if codes is not None and until is not None:
            is_out |= codes[ids] >= until[:, None]
        return highest(scores.masked_fill(torch.from_numpy(is_out).to(src.device), -torch.inf), numbers, k)
