"""GraphSources: GraphData of what other libraries hold, and of tables."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeVar

Made = TypeVar("Made")


class GraphSources:
    """The class methods of :class:`.GraphData` that read other libraries' graphs, and tables.

    No attribute is lost without a word. Each is carried under its name, or is an error that names it, or, where a graph
    can be without it, a warning that does. ``without=["name"]`` leaves one out.
    """

    @classmethod
    def from_pyg(
        cls: type[Made],
        data: Any,
        *,
        tables: Iterable[str] | None = None,
        edge_tables: Iterable[str] | None = None,
        edge_feature_name: str | None = None,
        time_attr: str | None = None,
        train: Any = None,
        val: Any = None,
        test: Any = None,
        user_ids: str | None = None,
        without: Iterable[str] = (),
    ) -> Made:
        """Converts a PyG ``Data``, whose features, labels and attributes share its memory; and a ``HeteroData``, where
        all that is said here holds type by type, of those types that have an attribute of a name.

        PyG's own ``is_node_attr`` and ``is_edge_attr`` say which attributes have a row for each node or edge, so that
        mini-batches carry what those of its NeighborLoader do. Samplers draw by ``edge_weight`` and ``edge_type``,
        where they are there. ``Graph.edge_order`` holds each edge's column in ``edge_index``. What belongs to the graph
        as a whole is left out with a warning; :meth:`.GraphDataModule.from_pyg` repeats it in every mini-batch.

        Args:
            data: N nodes and E edges: ``edge_index`` or, without it, ``adj_t``, whose values then are ``edge_weight``;
                ``x`` and ``y`` where they are there.
            tables: names of the other attributes of nodes, ``[N, ...]``, that mini-batches carry; None for all.
            edge_tables: likewise of edges, ``[E, ...]``.
            edge_feature_name: the attribute of edges ``[E, F]`` that mini-batches carry as ``edge_attr``, and blocks as
                ``x``; None for ``edge_attr``, if there is one.
            time_attr: the attribute of nodes, of edges, or of both, that says since when they are there, for samplers
                by time; mini-batches carry it, too. None: times are ignored.
            train: node ids, a mask ``[N]``, or a :class:`.SeedTable`; None for ``train_mask``, if there is one; in a
                HeteroData by node type. Likewise ``val`` and ``test``.
            user_ids: the attribute that holds your own ids of the nodes, whole numbers or a list of texts.
            without: names of attributes that are left out, of whatever they are.

        Raises:
            GraphDataError: no Data, one without edges, or without an attribute asked for; an attribute that is no table
                of numbers with one row a node or edge; attributes of edges beside ``adj_t``.
            MissingExtraError: PyG cannot be imported.

        Example:
            >>> import torch
            >>> from torch_geometric.data import Data
            >>> from lightning_gnnload import GraphData
            >>> data = Data(x=torch.rand(3, 8), edge_index=torch.tensor([[0, 1], [1, 2]]), year=torch.arange(3))
            >>> GraphData.from_pyg(data).tables.keys()
            dict_keys(['year'])
        """
        from lightning_gnnload.adapters.pyg import read_pyg

        return read_pyg(
            data,
            tables=tables,
            edge_tables=edge_tables,
            edge_feature_name=edge_feature_name,
            time_attr=time_attr,
            train=train,
            val=val,
            test=test,
            user_ids=user_ids,
            without=without,
        )

    @classmethod
    def from_dgl(
        cls: type[Made],
        graph: Any,
        feature_name: str = "feat",
        label_name: str = "label",
        *,
        tables: Iterable[str] | None = None,
        edge_tables: Iterable[str] | None = None,
        edge_feature_name: str | None = None,
        edge_weight_name: str | None = None,
        time_name: str | None = None,
        train: Any = None,
        val: Any = None,
        test: Any = None,
        user_ids: str | None = None,
        without: Iterable[str] = (),
    ) -> Made:
        """Converts a DGL graph; its columns share its memory, and so does an int64 topology without types.

        A graph with several node or edge types becomes one with types, where all that is said here holds type by type,
        of those types that have a column of a name; ``train``, ``val`` and ``test`` are ids or masks by node type, or
        tables.

        DGL makes and keeps the graph's CSC form if it has none yet. ``Graph.edge_order`` holds DGL's edge ids. Samplers
        draw by type where ``edata`` has ``dgl.ETYPE``, as it has after ``dgl.to_homogeneous``. Columns ``dgl.NID`` and
        ``dgl.EID`` are not read, and a warning says so: in mini-batches, as in DGL's own, they hold ids of this graph.

        Args:
            graph: a DGLGraph of N nodes and E edges on the CPU.
            feature_name: features ``[N, F]`` in ``ndata``; a graph without the default name has none.
            label_name: labels ``[N]`` or ``[N, C]`` in ``ndata``; likewise.
            tables: names of the other columns ``[N, ...]`` of ``ndata`` that mini-batches carry; None for all.
            edge_tables: likewise those ``[E, ...]`` of ``edata``.
            edge_feature_name: edge features ``[E, F]`` in ``edata``; None for ``"feat"``, if there is one.
            edge_weight_name: the column ``[E]`` of ``edata`` that samplers draw by; None for none.
            time_name: the columns of ``ndata``, ``edata``, or both, that say since when a node or edge is there, for
                samplers by time; None: times are ignored.
            train: node ids, a mask ``[N]``, or a :class:`.SeedTable`; None for ``ndata["train_mask"]``, if there is
                one. Likewise ``val`` and ``test``.
            user_ids: the column of ``ndata`` that holds your own ids of the nodes; ``dgl.NID`` is one.
            without: names of columns that are left out, of nodes and of edges.

        Raises:
            GraphDataError: no DGLGraph, one on a GPU, or one that lacks a column asked for.
            MissingExtraError: DGL cannot be imported.

        Example:
            >>> import dgl, torch
            >>> from lightning_gnnload import GraphData
            >>> graph = dgl.graph(([0, 1], [1, 2]))
            >>> graph.ndata["label"] = torch.tensor([0, 1, 1])
            >>> GraphData.from_dgl(graph).y.tolist()
            [0, 1, 1]
        """
        from lightning_gnnload.adapters.dgl import read_dgl

        return read_dgl(
            graph,
            feature_name,
            label_name,
            tables=tables,
            edge_tables=edge_tables,
            edge_feature_name=edge_feature_name,
            edge_weight_name=edge_weight_name,
            time_name=time_name,
            train=train,
            val=val,
            test=test,
            user_ids=user_ids,
            without=without,
        )

    @classmethod
    def from_networkx(
        cls: type[Made],
        graph: Any,
        feature_name: str = "x",
        label_name: str = "y",
        *,
        edge_feature_name: str | None = None,
        edge_weight_name: str = "weight",
        time_name: str | None = None,
        train: Any = None,
        val: Any = None,
        test: Any = None,
        without: Iterable[str] = (),
    ) -> Made:
        """Converts a NetworkX graph. Its nodes get numbers in its own order, and their keys become ``user_ids``.

        An edge ``u, v`` of a ``DiGraph`` makes ``u`` an in-neighbour of ``v``; one of an undirected graph goes both
        ways, with its attributes. Keys that are neither all whole numbers nor all texts are kept as texts; those that
        are just 0, 1, 2, ... are the nodes' numbers and not kept at all.

        Args:
            graph: a ``Graph``, ``DiGraph``, ``MultiGraph`` or ``MultiDiGraph`` of N nodes.
            feature_name: the attribute of nodes that holds features, F numbers each; floats become float32.
            label_name: that of labels, a number each.
            edge_feature_name: the attribute of edges that holds features, likewise.
            edge_weight_name: the attribute of edges that samplers draw by, if there is one; mini-batches carry it, too.
            time_name: the attributes of nodes, edges, or both, that say since when one is there, for samplers by time.
            train: node numbers, or a :class:`.SeedTable`; None for the nodes whose attribute ``train_mask`` is true.
                Likewise ``val`` and ``test``.
            without: names of attributes that are left out, of nodes, edges and the graph. The keys of a multigraph's
                edges are ``"key"``.

        Raises:
            GraphDataError: no such graph; an attribute that some nodes or edges lack, or that is no number, or no list
                of as many numbers everywhere; keys of nodes that are alike as texts.

        Example:
            >>> import networkx as nx
            >>> from lightning_gnnload import GraphData
            >>> data = GraphData.from_networkx(nx.DiGraph([("ann", "bob"), ("cleo", "bob")]))
            >>> data.user_ids[""].take(data.graph.in_neighbors(1)).tolist()
            ['ann', 'cleo']
        """
        from lightning_gnnload.adapters.networkx_graph import read_networkx

        return read_networkx(
            graph,
            feature_name,
            label_name,
            edge_feature_name=edge_feature_name,
            edge_weight_name=edge_weight_name,
            time_name=time_name,
            splits={"train": train, "val": val, "test": test},
            without=without,
        )

    @classmethod
    def from_scipy(
        cls: type[Made], matrix: Any, *, orientation: Literal["src_dst", "dst_src"] = "src_dst", **columns: Any
    ) -> Made:
        """Converts a SciPy sparse matrix or array, in whatever format: an edge for each stored entry.

        Entries other than 1 are weights, which samplers can draw by and mini-batches carry as ``edge_weight``.

        Args:
            matrix: ``[N, N]``, of numbers.
            orientation: what the axes mean. ``"src_dst"``: ``A[i, j]`` is an edge from ``i`` to ``j``, as in NetworkX
                and ``scipy.sparse.csgraph``. ``"dst_src"``: an edge from ``j`` to ``i``, as of ``A @ x``, which sums
                over in-neighbours.
            **columns: ``x``, ``y``, ``train`` and all else that :class:`.GraphData` takes beside the graph.

        Raises:
            GraphDataError: no sparse matrix, or one that is not square; an orientation that is none.

        Example:
            >>> from scipy.sparse import csr_array
            >>> from lightning_gnnload import GraphData
            >>> matrix = csr_array(([1, 1], ([0, 1], [2, 2])), shape=(3, 3))
            >>> GraphData.from_scipy(matrix, train=[2]).graph.in_neighbors(2).tolist()
            [0, 1]
        """
        from lightning_gnnload.adapters.scipy_matrix import read_scipy

        return read_scipy(matrix, orientation, columns)

    @classmethod
    def from_edge_list(
        cls: type[Made],
        edges: Any,
        *,
        nodes: Any = None,
        num_nodes: int | None = None,
        src: str = "src",
        dst: str = "dst",
        edge_weight_name: str | None = None,
        time_name: str | None = None,
        without: Iterable[str] = (),
        **columns: Any,
    ) -> Made:
        """Converts a list of edges, each from a source to a destination.

        Ends that are whole numbers are the numbers of nodes, from 0 on. Ends that are texts become ``user_ids``; their
        nodes are numbered in the order of ``nodes`` or, without it, of the sorted texts.

        Args:
            edges: an array or tensor ``[2, E]`` or ``[E, 2]``; a list of pairs; a DataFrame, or a dict of columns, by
                name; or the path of a file with two whole numbers a line, and lines of comment that begin with ``#`` or
                ``%``, as SNAP's data sets are.
            nodes: your ids of all nodes, ``[N]``, in the order of the rows of ``x``, ``y`` and tables; ends are then
                such ids, texts or whole numbers of any size.
            num_nodes: N, where ends are numbers; one more than the largest when None.
            src: the column of sources in a DataFrame or dict.
            dst: that of destinations.
            edge_weight_name: the column that samplers draw by; mini-batches carry it, too.
            time_name: the column that says since when an edge is there, for samplers by time; mini-batches carry it,
                too.
            without: names of columns that are left out. All others become edge tables.
            **columns: ``x``, ``y``, ``train`` and all else that :class:`.GraphData` takes beside the graph.

        Raises:
            GraphDataError: two edges in a 2 by 2 array, which may lie either way; ends that are neither whole numbers
                nor texts, or not among ``nodes``; a column that is not there, or that holds no numbers.

        Example:
            >>> from lightning_gnnload import GraphData
            >>> data = GraphData.from_edge_list([("ann", "bob"), ("cleo", "bob"), ("bob", "ann")])
            >>> data.num_nodes, data.user_ids[""].take(data.graph.in_neighbors(1)).tolist()
            (3, ['ann', 'cleo'])
        """
        from lightning_gnnload.adapters.edge_list import read_edge_list

        return read_edge_list(
            edges,
            nodes=nodes,
            num_nodes=num_nodes,
            ends=(src, dst),
            edge_weight_name=edge_weight_name,
            time_name=time_name,
            without=without,
            columns=columns,
        )

    @classmethod
    def from_tables(
        cls: type[Made],
        *,
        nodes: Mapping[str, Any],
        edges: Mapping[str, Any],
        tasks: Mapping[str, Any] | None = None,
        folder: str | os.PathLike[str] | None = None,
        task: str | None = None,
        transforms: str | os.PathLike[str] | None = None,
        overwrite: bool = False,
        show: bool = True,
        **build: Any,
    ) -> Made:
        """Builds the graph of tables, as ``gnnload build`` does of a graph.yaml, and maps it.

        Args:
            nodes: as graph.yaml has them: ``{"user": {"from": table, "id": "user_id"}}``; ``from`` is a table of
                pandas, polars or pyarrow, or what graph.yaml may name.
            edges: likewise.
            tasks: likewise.
            folder: to write and keep; None: one that is gone once it is mapped.
            task: whose splits to take, of several.
            transforms: a folder that was built before, whose features and classes are applied.
            overwrite: replace ``folder``, if it is one of a graph and holds nothing else.
            show: print the report, and bars; else its notes are warnings.
            **build: further settings of graph.yaml's ``build``: ``memory="4GB"``.

        Raises:
            MissingExtraError: duckdb or pyarrow is not installed; the extra ``tables`` brings them.
            GraphSpecError: a key or value that is none.
            TableError: a table does not hold what is said.

        Example:
            >>> import pyarrow as pa
            >>> from lightning_gnnload import GraphData
            >>> papers = pa.table({"doi": ["a", "b", "c"], "field": ["math", "art", "art"]})
            >>> cites = pa.table({"citing": ["a", "a", "c"], "cited": ["b", "c", "b"]})
            >>> data = GraphData.from_tables(
            ...     nodes={"paper": {"from": papers, "id": "doi"}},
            ...     edges={"cites": {"from": cites, "src": "paper.citing", "dst": "paper.cited"}},
            ...     tasks={"field": {"seed": "paper.doi", "y": "field", "split": {"share": [1.0, 0.0, 0.0]}}},
            ...     show=False,
            ... )
            >>> data.class_names, data.user_ids[""].take(data.graph.in_neighbors(1)).tolist()
            (('art', 'math'), ['a', 'c'])
        """
        from lightning_gnnload.ingest.memory import data_of_tables

        spec = {"version": 1, "nodes": nodes, "edges": edges, "tasks": tasks or {}, "build": build}
        return data_of_tables(spec, folder, task=task, transforms=transforms, overwrite=overwrite, show=show)
