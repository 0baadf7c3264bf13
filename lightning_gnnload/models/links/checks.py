"""What LinkPredictor refuses: settings that do not go together, and data that have no links to learn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lightning_gnnload.data.graphdata import SPLITS, GraphData
from lightning_gnnload.errors import GraphDataError, LoaderConfigError
from lightning_gnnload.models.learner import NodeLearner
from lightning_gnnload.models.links.heads import HEADS
from lightning_gnnload.models.links.losses import LOSS_NAMES
from lightning_gnnload.plugin.module.datamodule import GraphDataModule
from lightning_gnnload.settings import check_one_of


def check_settings(encoder: Any, settings: Mapping[str, Any]) -> dict[str, NodeLearner]:
    """Returns the encoders by node type; one for all types under ``""``. Raises LoaderConfigError."""
    head, temperature = settings["head"], settings["temperature"]
    check_one_of("head", head, HEADS, LoaderConfigError)
    check_one_of("loss", settings["loss"], LOSS_NAMES, LoaderConfigError)
    check_one_of("rank", settings["rank"], ("negatives", "all"), LoaderConfigError)
    check_one_of("index", settings["index"], ("exact", "faiss"), LoaderConfigError)
    for name in ("num_outputs", "num_hard", "top_k", "most_moments"):
        count = settings[name]
        needs_one = name in ("num_outputs", "most_moments")
        if (count is None and needs_one) or (count is not None and (type(count) is not int or count < 1)):
            raise LoaderConfigError(f"LinkPredictor: {name} is {count!r}, but must be an integer of at least 1.")
    if temperature is not None and (head == "mlp" or not isinstance(temperature, int | float) or not temperature > 0):
        raise LoaderConfigError(
            f"LinkPredictor: temperature={temperature!r} divides inner products of rows of length 1, so it must be "
            f"above 0, and head another than 'mlp', but it is {head!r}."
        )
    if settings["index"] == "faiss" and head == "mlp":
        raise LoaderConfigError(
            "LinkPredictor: index='faiss' finds items by inner products, which head='mlp' has none of. Take "
            "index='exact', or head='dot', 'distmult' or 'bilinear'."
        )
    encoders = dict(encoder) if isinstance(encoder, Mapping) else {"": encoder}
    for node_type, learner in encoders.items():
        if not isinstance(learner, NodeLearner):
            raise LoaderConfigError(
                f"LinkPredictor: encoder must be a model of nodes, such as SAGE(), or a dict of such by node type, "
                f"but {f'that of {node_type!r}' if node_type else 'it'} is a {type(learner).__name__}."
            )
    metrics = settings["metrics"]
    if not metrics or isinstance(metrics, str):
        raise LoaderConfigError(f"LinkPredictor: metrics is {metrics!r}; give a list, such as [mrr, hits@10].")
    return encoders


def check_link_data(module: Any, node_types: Sequence[str], settings: Mapping[str, Any]) -> None:
    """Raises GraphDataError, LoaderConfigError: data that have no links to learn, or not in this model's form."""
    if not isinstance(module, GraphDataModule) or module.batch_format != "blocks":
        form = getattr(module, "batch_format", None)
        raise LoaderConfigError(
            "LinkPredictor takes mini-batches of a GraphDataModule with batch_format='blocks', but the data are "
            + (f"a {type(module).__name__}." if form is None else f"in the format {form!r}.")
        )
    types = module.data.graph.types
    if node_types != [""]:
        there = () if types is None else types.node_types
        needed = {end for link_type in link_types_of(module.data) for end in (link_type or ("",))[::2]}
        if types is None or not needed <= set(node_types) <= set(there):
            raise LoaderConfigError(
                f"LinkPredictor: encoders are given for {', '.join(node_types)}, but links join "
                f"{', '.join(sorted(needed)) if types is not None else 'nodes of a graph without types'}. Give "
                "one for each type of these ends, or one encoder for all."
            )
    training = {"negatives": module.links.negatives}
    ranks = settings["rank"] == "negatives" and (module.has_seeds("val") or module.has_seeds("test"))
    evaluation = {"eval_negatives": module.eval_negatives} if ranks else {}
    for name, negatives in (training | evaluation).items():
        by_type: list[Any] = list(negatives.values()) if isinstance(negatives, Mapping) else [negatives]
        if None in by_type and (name == "eval_negatives" or by_type != [None]):
            raise LoaderConfigError(
                f"LinkPredictor ranks links among negatives, but GraphDataModule({name}=...) has none"
                f"{' for a type' if len(by_type) > 1 else ''}. Give Negatives('triplet', num=100), as --data."
                f"{name}.mode triplet --data.{name}.num 100; or rank='all', for ranks among all items."
            )
        if any(rule is not None and rule.mode == "binary" for rule in by_type) and (
            name == "eval_negatives" or settings["loss"] != "bce" or settings["num_hard"] is not None
        ):
            raise LoaderConfigError(
                f"LinkPredictor: {name} of mode 'binary' do not say whose negatives they are. Take 'triplet', "
                "which draws the same; 'binary' goes with loss='bce' alone, in training, without num_hard."
            )


def link_types_of(data: GraphData) -> list[list[str] | None]:
    """Returns the edge types of the data's seeds, as a checkpoint takes them; [None] in a graph without types. Raises
    GraphDataError: the seeds are no links."""
    types, splits = data.graph.types, [name for name in SPLITS if len(data.split(name))]
    tables = [table for name in splits if (table := data.table(name)) is not None and table.kind == "links"]
    if not tables or len(tables) < len(splits):
        raise GraphDataError(
            "LinkPredictor learns links, but the seeds are nodes. Give splits that are SeedTable(src=..., dst=...), a "
            "task of links (src: and dst:, or edge:), or LinkSplit of a data set; or take a model of nodes, as SAGE."
        )
    if types is None:
        return [None]
    numbers = {types.edge_type_number(name) for table in tables for name in table.rows_by_type}
    return [list(types.edge_types[number]) for number in sorted(numbers)]
