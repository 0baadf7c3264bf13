"""Which of the data's tables of sums a model takes, and why others will not do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, islice
from typing import Any, NoReturn

from lightning_gnnload.data.aggregates import Aggr, Aggregate
from lightning_gnnload.data.graph import Graph
from lightning_gnnload.data.graphdata import GraphData
from lightning_gnnload.data.metapaths import Metapath, ends_of, metapaths
from lightning_gnnload.errors import GraphDataError
from lightning_gnnload.sample.base import Sampler
from lightning_gnnload.storage.aggregates import check_fresh


def draws_by_weight(sampler: Sampler, graph: Graph) -> bool:
    """Whether a sampler draws in-neighbours in proportion to the weights of this graph's edges."""
    return sampler.weighting == "always" or (sampler.weighting == "optional" and graph.has("edge_weight"))


_MOST_NAMED = 8  # tables, in the text of an error


class Means:
    """The data's tables of means that a first layer takes: weighted, or not, where anything says so, and by nodes
    that do not count among their own in-neighbours."""

    def __init__(self, data: GraphData) -> None:
        self.data = data
        self.weighted: bool | None = None
        self._reason = ""

    def expect(self, weighted: bool, reason: str) -> None:
        """Takes means that are weighted, or not. Raises GraphDataError: others are expected already."""
        if self.weighted not in (None, weighted):
            raise GraphDataError(
                f"SAGE(first_layer='preaggregated') takes means of one form, but they are to be "
                f"{_form(self.weighted)}, as {self._reason}, and {_form(weighted)}, as {reason}. Give samplers that "
                "draw by edge weights in all phases, as WeightedNeighborSampler, or in none, as NeighborSampler."
            )
        self.weighted, self._reason = weighted, reason

    def names(self, edge_types: Sequence[Sequence[str]]) -> list[str]:
        """Returns the names of the tables of the features' means, one for each of these edge types.

        Raises GraphDataError, StaleTableError: there is none, or it cannot be used.
        """
        if self.data.graph.types is None:
            return [self._name("x", ())]
        return [self._name(f"x.{edge_type[0]}", ("__".join(edge_type),)) for edge_type in edge_types]

    def _name(self, table: str, metapath: tuple[str, ...]) -> str:
        settings: dict[str, Any] = {"hop": 1, "metapath": metapath, "self_loops": False}
        settings |= {} if self.weighted is None else {"weighted": self.weighted}
        if (name := self.data.aggregates_of(table, "mean", **settings).get(1)) is not None:
            check_fresh(self.data, name)
            return name
        needs = f"SAGE(first_layer='preaggregated') needs the mean of {table!r} over in-neighbours"
        needs += f" by {metapath[0]}" if metapath else ""
        sums = _sums_of(self.data, table, metapath)
        means = [
            (name, aggregate) for name, aggregate in sums.items() if (aggregate.aggr, aggregate.hop) == ("mean", 1)
        ]
        make = "preaggregate(data), or gnnload preaggregate FOLDER."
        if self.weighted is not None and self.data.graph.has("edge_weight"):
            flag = "--weighted" if self.weighted else "--no-weighted"
            make = f"preaggregate(data, weighted={self.weighted}), or gnnload preaggregate FOLDER {flag}."
        if not means:
            raise GraphDataError(f"{needs}, which these data do not have{_listed(sums)}. Make it: {make}")
        name, mean = means[0]
        if mean.self_loops:
            raise GraphDataError(
                f"{needs}, and has weights of their own for nodes, but {name!r} ({mean}) counts each node among its "
                f"in-neighbours. Make it without self_loops: {make}"
            )
        assert self.weighted is not None, "means that are weighted, or not, would do"
        raise GraphDataError(
            f"{needs}, {_form(self.weighted)}, as {self._reason}, but {name!r} ({mean}) is {_form(mean.weighted)}. "
            f"Make it so: {make} Or take "
            + ("WeightedNeighborSampler." if mean.weighted else "NeighborSampler, which draws all neighbours alike.")
        )


def _form(weighted: bool | None) -> str:
    return "weighted by edge weights" if weighted else "of all neighbours alike"


def check_form(trained: bool | None, present: bool, tables: Sequence[str]) -> None:
    """Raises GraphDataError: a checkpoint was trained on means of another form than that of these tables."""
    if trained not in (None, present):
        raise GraphDataError(
            f"the checkpoint was trained on means {_form(trained)}, but {', '.join(map(repr, tables))} are "
            f"{_form(present)}. Make them as they were: preaggregate(data, weighted={trained}); or train anew."
        )


def _sums_of(data: GraphData, table: str, metapath: Metapath | None) -> dict[str, Aggregate]:
    """The tables that are sums of a table, along a metapath or, None, along any."""
    return {
        name: aggregate
        for name, aggregate in data.aggregates.items()
        if name in data.tables and aggregate.table == table and metapath in (None, aggregate.metapath)
    }


def _listed(tables: Mapping[str, Aggregate]) -> str:
    return f"; they have {_named(tables)}" if tables else ""


def _named(tables: Mapping[str, Aggregate]) -> str:
    names = [f"{name!r} ({table})" for name, table in islice(tables.items(), _MOST_NAMED)]
    return ", ".join(names) + (f" and {len(tables) - _MOST_NAMED} more" if len(tables) > _MOST_NAMED else "")


class HopSums:
    """The data's tables of sums over 1 to K hops that a node type's features come with, which a model without a graph
    takes.

    Of a graph with types these are the tables of all metapaths to the node type, where relations either all have
    tables of their own or all count together.
    """

    def __init__(self, data: GraphData, node_type: str, aggr: Aggr | None) -> None:
        self.data, self.node_type = data, node_type
        self._settings = {} if aggr is None else {"aggr": aggr}
        self._node_types = [""] if data.graph.types is None else list(data.graph.types.node_types)

    @property
    def _sources(self) -> dict[str, str]:
        """The names of the stores of features, by node type."""
        if self.data.graph.types is None:
            return {"": "x"}
        return {name: f"x.{name}" for name in self._node_types if f"x.{name}" in self.data.tables}

    def _paths(self, hop: int, merged: bool) -> list[tuple[str, Metapath]]:
        """The features' stores and metapaths of a hop; no more than there are tables, and one."""
        types, sources = self.data.graph.types, self._sources
        if types is None:
            return [("x", ())]
        every = metapaths(types, self.node_type, hop, origins=sources, merged=merged)
        most = len(self.data.aggregates) + 1
        return [(sources[ends_of(types, path[0])[0]], path) for path in islice(every, most)]

    def _names(self, hops: int | None, merged: bool) -> tuple[list[list[str]], tuple[str, Metapath] | None]:
        """The names of the tables by hop, as far as all of a hop are there, and the first that is not."""
        highest = max((aggregate.hop for aggregate in self.data.aggregates.values()), default=0)
        by_hop: list[list[str]] = []
        for hop in range(1, (highest if hops is None else hops) + 1):
            names = []
            for source, path in self._paths(hop, merged):
                name = self.data.aggregates_of(source, metapath=path, hop=hop, **self._settings).get(hop)
                if name is None:
                    return by_hop, (source, path)
                names.append(name)
            by_hop.append(names)
        return by_hop, None

    def names(self, hops: int | None) -> list[str]:
        """Returns the names of the tables of 1 to ``hops`` hops, or of as many as there are.

        Raises:
            GraphDataError: there are none, or two sets of them.
            StaleTableError: one is of another graph, or of other features.
        """
        apart, lacking = self._names(hops, merged=False)
        merged, _ = self._names(hops, merged=True)
        best = max(apart, merged, key=len)
        count, names = hops or len(best), list(chain.from_iterable(best))
        if not names or len(best) < count:
            self._refuse(hops, lacking)
        if len(apart) == len(merged) and apart != merged:
            raise GraphDataError(
                f"for nodes of type {self.node_type!r} there are tables by relation, as {apart[0][0]!r}, and of all "
                f"relations, as {merged[0][0]!r}. Load one set of them: GraphFolder(folder, tables=[...])."
            )
        for name in names:
            check_fresh(self.data, name)
        return names

    def same_as(self, sums: Sequence[Mapping[str, Any]]) -> list[str]:
        """Returns the names of the tables that are the sums that a model was trained on, as :func:`sum_of` tells.

        Raises GraphDataError, StaleTableError: there is none, there are several, or one is stale.
        """
        names = []
        for settings in sums:
            table, hop = settings["table"], settings["hop"]
            form = {**settings, "metapath": tuple(settings["metapath"])}
            del form["table"]
            if (name := self.data.aggregates_of(table, **form).get(hop)) is None:
                trained = Aggregate(table, **form)
                raise GraphDataError(
                    f"SIGN was trained on the {trained}, which these data do not have"
                    f"{_listed(_sums_of(self.data, table, None))}. Make it as it was: preaggregate(data, ...), gnnload "
                    "preaggregate; or train anew."
                )
            check_fresh(self.data, name)
            names.append(name)
        return names

    def _refuse(self, hops: int | None, lacking: tuple[str, Metapath] | None) -> NoReturn:
        aggr = self._settings.get("aggr")
        by_source = [_sums_of(self.data, source, None) for source in self._sources.values()]
        tables = {name: table for sums in by_source for name, table in sums.items() if aggr in (None, table.aggr)}
        have = _named(tables) or "none"
        along = f" along {' and '.join(lacking[1])}" if lacking is not None and lacking[1] else ""
        options, flags = f"hops={hops or 2}", f"--hops {hops or 2}"
        if self.node_type:
            options, flags = f"{options}, node_type={self.node_type!r}", f"{flags} --node-type {self.node_type}"
        raise GraphDataError(
            f"SIGN needs sums of x over 1 to {hops or 'K'} hops{along}; of tables that are such, the data have {have}. "
            f"Make them: preaggregate(data, {options}), or gnnload preaggregate FOLDER {flags}."
        )


def sum_of(aggregate: Aggregate) -> dict[str, Any]:
    """Returns what a model has to know of the sums that it was trained on, in types that a checkpoint takes."""
    names = ("table", "aggr", "hop", "self_loops", "weighted")
    return {name: getattr(aggregate, name) for name in names} | {"metapath": list(aggregate.metapath)}
