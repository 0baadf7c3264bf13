"""LinkPredictor: predicts links and recommends items, by any encoder of nodes and a head that scores pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from lightning_gnnload.data.block import MiniBatch
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.typed_batch import TypedMiniBatch
from lightning_gnnload.data.types import EdgeType
from lightning_gnnload.errors import GraphDataError, LoaderConfigError
from lightning_gnnload.inference.known_links import links_of
from lightning_gnnload.inference.retrieval import Ranking
from lightning_gnnload.models.learner import NodeLearner
from lightning_gnnload.models.links.checks import check_link_data, check_settings, link_types_of
from lightning_gnnload.models.links.heads import HeadName, LinkHead, head_of
from lightning_gnnload.models.links.losses import LOSSES, LossName, hardest
from lightning_gnnload.models.links.ranking import AllItems, Links
from lightning_gnnload.plugin.compat import pl
from lightning_gnnload.plugin.monitor.ranking import metric_of

RankAmong = Literal["negatives", "all"]
Index = Literal["exact", "faiss"]
_WIDE = 4  # all destinations are scored, where each source has a quarter as many negatives: less memory than pairs


class LinkPredictor(pl.LightningModule):
    """Scores links by rows of both ends, from any model of nodes: for link prediction, and to recommend items.

    It trains on seeds that are links (:class:`.SeedTable` with ``src`` and ``dst``, or a task of links), of one edge
    type or several, with the negatives of ``GraphDataModule(negatives=...)``. Without these, the negatives of a row are
    the targets of the mini-batch's other rows, but for those of the same source: nothing more is sampled, also where
    rows share no nodes, as with times; each target is then as of its own row's time.

    It logs ``train_loss``, and each metric as ``val_<metric>`` and ``test_<metric>``; a test ends with a table of these
    beside what popularity reaches: the number of training links that lead to an item. ``predict_step`` gives the
    ``top_k`` destinations of each seed, or of each link's source, as :class:`.Ranking`, which ``gnnload predict``
    writes by the user's ids: a row for each seed and rank.

    Args:
        encoder: a model of nodes, such as ``SAGE()``, whose layers give a row for each end; or two towers: a dict with
            one for each type of the ends, ``{"user": SAGE(), "item": SAGE()}``. Its own learning rate, loss and metrics
            do not count.
        num_outputs: D, numbers in a row.
        head: how a pair scores: ``"dot"``, the rows' inner product; ``"distmult"``, with a weight of each number and
            edge type; ``"bilinear"``, with a matrix of each edge type, so that edges have a direction; ``"mlp"``, a
            perceptron.
        loss: ``"softmax"`` over an edge and its negatives, ``"bce"``, binary cross entropy, or ``"bpr"``.
        log_q: with the softmax and negatives from the mini-batch's other rows, subtract the logarithm of how often the
            item is the target of a training row: popular items come as negatives more often, and would be pushed down.
        num_hard: of each edge's negatives, only those count in the loss that score highest now; None: all.
        temperature: rows get the length 1, and scores are divided by it; None: rows as they are. Not for ``"mlp"``.
        metrics: of ``"mrr"``, ``"hits@10"``, ``"ndcg@10"``, ``"recall@10"``, ``"map@10"``, with any k.
        rank: in validation and test, each link's target ``"negatives"``: among the negatives that come with it; or
            ``"all"``: among all nodes of its type.
        filtered: with rank ``"all"``, links of the source that are known do not count as wrong answers: those of the
            graph, as of the row's time; without times, of the other splits, too. Other targets of rows with the same
            source and time never do.
        top_k: items that ``predict_step`` gives for each seed. None: seeds are links, and it gives their scores.
        exclude_known: leave out of these what the graph links the seed to already, as of the seed's time.
        edge_type: whose destinations are recommended; None: the one that the seed tables have.
        index: ``"exact"``, or ``"faiss"`` to look at the nearest items alone; for heads that are inner products.
        most_moments: with times, for how many moments rows of all items are computed (:class:`.ItemRows`), which take
            ``4 * most_moments * D`` bytes an item.
        lr: Adam's learning rate.

    Raises:
        LoaderConfigError: settings that are none, or do not go together; at the beginning of a run: no negatives to
            rank among, or another batch format than ``"blocks"``.
        GraphDataError: at the beginning of a run: seeds that are no links, or edges that all items would show.

    Sources: Yi et al., Sampling-bias-corrected neural modeling for large corpus item recommendations (RecSys'19), for
    two towers and log_q; Bordes et al., TransE (NIPS'13), section 4.1, for filtered ranks.

    Example:
        >>> from lightning_gnnload import SAGE
        >>> model = LinkPredictor(SAGE(hidden=64), head="dot", metrics=["mrr", "hits@10"])
        >>> # trainer.fit(model, GraphDataModule(data, NeighborSampler([10, 5]), eval_negatives=Negatives("triplet")))
    """

    head: LinkHead
    sizes: dict[str, Any]

    def __init__(
        self,
        encoder: NodeLearner | dict[str, NodeLearner],
        num_outputs: int = 64,
        head: HeadName = "dot",
        loss: LossName = "softmax",
        log_q: bool = True,
        num_hard: int | None = None,
        temperature: float | None = None,
        metrics: Sequence[str] = ("mrr", "hits@10", "ndcg@10"),
        rank: RankAmong = "negatives",
        filtered: bool = True,
        top_k: int | None = 10,
        exclude_known: bool = False,
        edge_type: str | None = None,
        index: Index = "exact",
        most_moments: int = 8,
        lr: float = 0.003,
    ) -> None:
        # Not hparams: under a command line those are what the class of the configuration is made of, maybe another.
        settings = {name: value for name, value in locals().items() if name not in ("self", "encoder", "__class__")}
        super().__init__()
        encoders = check_settings(encoder, settings)
        self.save_hyperparameters(ignore=["encoder"])
        self.settings = settings
        # By number: modules' names may contain no dots.
        self.node_types = list(encoders)
        self.encoders = nn.ModuleList(encoders.values())
        self.metrics: Any = nn.ModuleDict(
            {
                f"{phase}_{which}": nn.ModuleDict({name: metric_of(name) for name in metrics})
                for phase in ("val", "test")
                for which in ("model", "popularity")[: 2 if phase == "test" else 1]
            }
        )
        self.lr = lr
        self._all_items: AllItems | None = None
        self._counts: dict[int, Tensor] = {}

    # Layers, made for the data.

    def configure_model(self) -> None:
        """Makes the layers, now that the data are there; a checkpoint that is loaded by itself makes them later."""
        if self._trainer is None:
            return
        module = self._module
        check_link_data(module, self.node_types, self.settings)
        if not hasattr(self, "head"):
            data, hops = module.data, module.sampler.num_layers
            outputs = {"num_outputs": self.settings["num_outputs"], "is_class": False}
            self._make(
                {
                    "link_types": link_types_of(data),
                    "encoders": [encoder.sizes_of(data, hops) | outputs for encoder in self._learners],
                }
            )
        for encoder in self._learners:
            encoder.take_tables(module.data, [module.sampler, module.eval_sampler])
        self._counts = {}

    def take_tables(self, data: GraphData, samplers: Sequence[Any] = ()) -> None:
        """Finds the data's tables that the encoder takes, as :meth:`.NodeLearner.take_tables` does."""
        for encoder in self._learners:
            encoder.take_tables(data, samplers)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["sizes"] = self.sizes

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self._make(checkpoint["sizes"])

    def _make(self, sizes: dict[str, Any]) -> None:
        if hasattr(self, "head") and self.sizes == sizes:
            return
        self.sizes = sizes
        for encoder, part in zip(self._learners, sizes["encoders"], strict=True):
            encoder.sizes, encoder.layers = part, encoder.layers_of(part).to(self.device)
        options = self.settings["num_outputs"], len(sizes["link_types"]), self.settings["temperature"]
        self.head = head_of(self.settings["head"], *options).to(self.device)

    @property
    def _module(self) -> Any:
        return self.trainer.datamodule  # type: ignore[attr-defined]

    @property
    def _learners(self) -> list[Any]:
        return list(self.encoders)

    # Rows and scores.

    def embed(self, batch: MiniBatch | TypedMiniBatch) -> Tensor:
        """Rows of a mini-batch's seeds, ``[S, num_outputs]``, type by type, as :func:`.infer` takes them:
        ``infer(model, data, method="embed")``."""
        return torch.cat([rows for rows in self._rows(batch).values() if len(rows)])

    def forward(self, batch: MiniBatch | TypedMiniBatch) -> Tensor:
        return self.embed(batch)

    def score(self, src: Tensor, dst: Tensor) -> Tensor:
        """Scores of pairs of rows, ``[P, num_outputs]`` each, of the first edge type, for :func:`.score_links`."""
        scores: Tensor = self.head(src, dst)
        return scores

    def _rows(self, batch: MiniBatch | TypedMiniBatch) -> dict[str, Tensor]:
        """Rows of the seeds by node type, ``[S_t, num_outputs]``; a graph without types has one, ``""``."""
        counts = {"": batch.num_seeds} if isinstance(batch, MiniBatch) else batch.num_seeds
        rows: dict[str, Tensor] = {}
        for node_type, encoder in zip(self.node_types, self._learners, strict=True):
            if node_type and not counts[node_type]:
                rows[node_type] = next(self.parameters()).new_empty(0, self.settings["num_outputs"])
                continue
            output: Tensor = encoder.layers(batch)
            parts = dict(zip(counts, output.split(list(counts.values())), strict=True))
            rows |= {node_type: parts[node_type]} if node_type else parts
        return rows

    def _links(self, batch: MiniBatch | TypedMiniBatch) -> list[Links]:
        """The links of a mini-batch, of those edge types that have any."""
        rows = self._rows(batch)
        ids = {"": batch.nodes} if isinstance(batch, MiniBatch) else batch.nodes
        links = []
        for form, columns in batch.seed_form.by_type(batch.seed_columns):
            if len(columns["input_id"]):
                src, _, dst = form.edge_type or ("", "", "")
                number = self._number_of(form.edge_type)
                links.append(Links(number, form, columns, rows[src], rows[dst], ids[src], ids[dst]))
        return links

    def _number_of(self, edge_type: EdgeType | None) -> int:
        name = None if edge_type is None else list(edge_type)
        if name not in self.sizes["link_types"]:
            names = ", ".join("__".join(link_type or ("links",)) for link_type in self.sizes["link_types"])
            raise GraphDataError(f"the model was trained on links {names}, and not on those of {edge_type}.")
        return int(self.sizes["link_types"].index(name))

    def _scores(self, links: Links) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the scores of true edges ``[P]``, those of their negatives ``[P, M]``, and which of these are there;
        of binary negatives both ``[K]``."""
        columns, number = links.columns, links.number
        if "label" in columns:
            scores = self.head(links.src[columns["src"]], links.dst[columns["dst"]], number)
            negative = scores[len(columns["input_id"]) :]
            return scores[: len(columns["input_id"])], negative, torch.ones_like(negative, dtype=torch.bool)
        query, item = self.head.query(links.src, number), self.head.item(links.dst, number)
        src, dst = query[columns["src"]], item[columns["dst"]]
        if "negatives" not in columns:
            source, target = (
                nodes[columns[end]].unique(return_inverse=True)[1]
                for nodes, end in ((links.src_nodes, "src"), (links.dst_nodes, "dst"))
            )
            # All targets that a source has here are right.
            is_right = source.new_zeros(len(source), len(target), dtype=torch.bool)
            is_right[source, target] = True
            is_right = is_right[source][:, target]
            return self.head.joined(src, dst), self.head.table(src, dst), ~is_right
        negatives = columns["negatives"]
        num_dst = negatives.shape[1] if links.form.num_dst is None else links.form.num_dst
        parts = []
        if num_dst or not negatives.shape[1]:
            replaced = negatives[:, :num_dst]
            if len(item) <= _WIDE * num_dst:
                parts.append(self.head.table(src, item).gather(1, replaced))
            else:
                parts.append(self.head.joined(src[:, None], item[replaced]))
        if num_dst < negatives.shape[1]:
            parts.append(self.head.joined(query[negatives[:, num_dst:]], dst[:, None]))
        return self.head.joined(src, dst), torch.cat(parts, dim=1), columns["negative_mask"]

    # Steps.

    def training_step(self, batch: MiniBatch | TypedMiniBatch, batch_idx: int) -> Tensor:
        links = self._links(batch)
        sizes = [len(part.columns["input_id"]) for part in links]
        losses = [self._loss(part) * size for part, size in zip(links, sizes, strict=True)]
        loss = torch.stack(losses).sum() / sum(sizes)
        self.log("train_loss", loss, prog_bar=True, batch_size=sum(sizes))
        # DDP waits for a gradient of every weight, also of what no link of this mini-batch has.
        return loss + 0 * torch.stack([weight.sum() for weight in self.parameters()]).sum()

    def _loss(self, links: Links) -> Tensor:
        positive, negative, mask = self._scores(links)
        if self.settings["log_q"] and self.settings["loss"] == "softmax" and self._is_in_batch():
            # By its share of training rows: how likely the item is to come as the target of another row.
            log_q = self._popularity(links.number).clamp(min=1).log()[links.dst_nodes]
            columns = links.columns
            positive = positive - log_q[columns["dst"]]
            negative = negative - log_q[columns["negatives"] if "negatives" in columns else columns["dst"][None]]
        if (num_hard := self.settings["num_hard"]) is not None:
            mask = hardest(negative, mask, num_hard)
        return LOSSES[self.settings["loss"]](positive, negative, mask)

    def _is_in_batch(self) -> bool:
        negatives = self._module.links.negatives
        if isinstance(negatives, Mapping):
            negatives = next(iter(negatives.values()))  # all types have one mode
        return negatives is None or bool(negatives.mode == "in_batch")

    def _popularity(self, number: int) -> Tensor:
        """How many training links lead to each destination of an edge type, float32 ``[I]``."""
        if number not in self._counts:
            data: GraphData = self._module.data
            graph, table = data.graph, data.table("train")
            edge_type = self.sizes["link_types"][number]
            nodes = range(graph.num_nodes) if graph.types is None else graph.types.range_of(edge_type[2])
            links = [] if table is None else links_of(table, graph, _graph_number(graph, edge_type))
            counts = sum((np.bincount(dst, minlength=len(nodes)) for _, dst in links), np.zeros(len(nodes)))
            self._counts[number] = torch.from_numpy(counts).float().to(self.device)
        return self._counts[number]

    def on_validation_epoch_start(self) -> None:
        self._begin("val")

    def on_test_epoch_start(self) -> None:
        self._begin("test")

    def on_predict_epoch_start(self) -> None:
        self._begin("predict")

    def _begin(self, phase: str) -> None:
        """Forgets the rows of all items, which were computed by other weights."""
        self._all_items = None
        if phase == "predict" or self.settings["rank"] == "all":
            self._all_items = AllItems(self, self._module, phase)

    def validation_step(self, batch: MiniBatch | TypedMiniBatch, batch_idx: int) -> None:
        self._rank(batch, "val")

    def test_step(self, batch: MiniBatch | TypedMiniBatch, batch_idx: int) -> None:
        self._rank(batch, "test")

    def _rank(self, batch: MiniBatch | TypedMiniBatch, phase: str) -> None:
        links = self._links(batch)
        for part in links:
            for which, metrics in self.metrics.items():
                if not which.startswith(phase):
                    continue
                by_popularity = which.endswith("popularity")
                if self._all_items is not None:
                    arguments: Any = self._all_items.ranks(part, by_popularity)
                else:
                    arguments = self._popular_scores(part) if by_popularity else self._scores(part)
                for metric in metrics.values():
                    metric.update(**arguments) if isinstance(arguments, dict) else metric.update(*arguments)
        num_rows = sum(len(part.columns["input_id"]) for part in links)
        for name, metric in self.metrics[f"{phase}_model"].items():
            self.log(f"{phase}_{name}", metric, prog_bar=True, batch_size=num_rows)
        if phase == "test":
            for name, metric in self.metrics["test_popularity"].items():
                self.log(f"popularity_{name}", metric, batch_size=num_rows)

    def _popular_scores(self, links: Links) -> tuple[Tensor, Tensor, Tensor]:
        """As :meth:`_scores`, of popularity; negatives that replace the source have the same."""
        popularity, columns = self._popularity(links.number)[links.dst_nodes], links.columns
        positive, negatives = popularity[columns["dst"]], columns["negatives"]
        num_dst = negatives.shape[1] if links.form.num_dst is None else links.form.num_dst
        equal_scores = positive[:, None].expand(-1, negatives.shape[1] - num_dst)
        negative = torch.cat([popularity[negatives[:, :num_dst]], equal_scores], dim=1)
        return positive, negative, columns["negative_mask"]

    def on_test_end(self) -> None:
        if not self.trainer.is_global_zero or self.trainer.sanity_checking:
            return
        results = self.trainer.callback_metrics
        among = "all items" if self.settings["rank"] == "all" else "the negatives of each link"
        table = Table(title=f"Test, among {among}")
        table.add_column("")
        rows = {type(self).__name__: "test", "popularity": "popularity"}
        for name in self.metrics["test_model"]:
            table.add_column(name, justify="right")
        for title, prefix in rows.items():
            values = [results.get(f"{prefix}_{name}") for name in self.metrics["test_model"]]
            table.add_row(title, *("" if value is None else f"{float(value):.4f}" for value in values))
        Console().print(table)

    def predict_step(self, batch: MiniBatch | TypedMiniBatch, batch_idx: int) -> Ranking | Tensor:
        """Returns the ``top_k`` destinations of each seed, or of each link's source; of links without ``top_k`` their
        scores ``[R]``."""
        is_links = batch.seed_form.name == "links"
        if self.settings["top_k"] is not None:
            assert self._all_items is not None, "Lightning has begun the epoch"
            return self._all_items.best(batch, self._rows(batch))
        if not is_links:
            raise LoaderConfigError(
                "LinkPredictor(top_k=None) predicts scores of links, but the seeds are nodes. Give top_k, or predict= "
                "a SeedTable of links, or the name of a split that has such."
            )
        scores = torch.full((len(batch.seed_columns["input_id"]),), torch.nan, device=self.device)
        for links in self._links(batch):
            numbers = batch.seed_columns.get("type")
            is_type = slice(None) if numbers is None else numbers == links.form.number
            columns = links.columns
            scores[is_type] = self.head(links.src[columns["src"]], links.dst[columns["dst"]], links.number)
        return scores

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=self.lr)


def _graph_number(graph: Any, edge_type: Sequence[str] | None) -> int:
    return 0 if edge_type is None else int(graph.edge_type_number(tuple(edge_type)))
