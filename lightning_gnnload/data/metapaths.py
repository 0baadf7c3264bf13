"""Metapaths: the edge types along which features come to the nodes that sum them, hop by hop.

A step is an edge type, ``"src__relation__dst"``, or ``"src__*__dst"`` for all of those between two node types. A
metapath names its steps from the features' nodes on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from lightning_gnnload.data.types import GraphTypes

Metapath = tuple[str, ...]


def numbers_of(types: GraphTypes, step: str) -> tuple[int, ...]:
    """Returns the numbers of a step's edge types; of one that the graph does not have, none.

    Example:
        >>> types = GraphTypes(("a", "b"), (1, 1), (("a", "r", "b"), ("b", "s", "a"), ("a", "t", "b")))
        >>> numbers_of(types, "a__t__b"), numbers_of(types, "a__*__b")
        ((2,), (0, 2))
    """
    names = ["__".join(edge_type) for edge_type in types.edge_types]
    if step in names:
        return (names.index(step),)
    return tuple(number for number, (src, _, dst) in enumerate(types.edge_types) if f"{src}__*__{dst}" == step)


def ends_of(types: GraphTypes, step: str) -> tuple[str, str]:
    """Returns the source and the destination node type of a step that the graph has."""
    src, _, dst = types.edge_types[numbers_of(types, step)[0]]
    return src, dst


def steps_into(types: GraphTypes, node_type: str, merged: bool) -> list[str]:
    """Returns the steps that lead to a node type; ``merged``: one for each node type that they come from."""
    triples = [types.edge_types[number] for number in types.slots_of(node_type)]
    if not merged:
        return ["__".join(triple) for triple in triples]
    sources = Counter(src for src, _, _ in triples)
    names = ["__".join(triple) if sources[triple[0]] == 1 else f"{triple[0]}__*__{node_type}" for triple in triples]
    return list(dict.fromkeys(names))


def metapaths(
    types: GraphTypes, node_type: str, num_hops: int, *, origins: Iterable[str], merged: bool = False
) -> Iterator[Metapath]:
    """Yields the metapaths of so many hops that lead from any of the node types ``origins`` to ``node_type``.

    Example:
        >>> types = GraphTypes(("a", "b"), (1, 1), (("a", "r", "b"), ("b", "s", "a"), ("a", "t", "b")))
        >>> list(metapaths(types, "b", 2, origins="b", merged=True))
        [('b__s__a', 'a__*__b')]
        >>> list(metapaths(types, "b", 2, origins="b"))
        [('b__s__a', 'a__r__b'), ('b__s__a', 'a__t__b')]
    """
    reached = [set(origins)]  # by hop, so that no way is tried that leads to none of them
    for _ in range(num_hops):
        reached.append({dst for src, _, dst in types.edge_types if src in reached[-1]})

    def paths_into(end: str, hops: int) -> Iterator[Metapath]:
        if not hops:
            yield ()
            return
        for step in steps_into(types, end, merged):
            if (source := ends_of(types, step)[0]) in reached[hops - 1]:
                for before in paths_into(source, hops - 1):
                    yield (*before, step)

    if node_type in reached[num_hops]:
        yield from paths_into(node_type, num_hops)
