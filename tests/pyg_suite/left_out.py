"""PyG's tests that cannot apply to our classes, and why not.

They run all the same, and must fail: a test that passes, and an entry that no test answers to, is an error. Tests of
``NOTHING_OF_OURS`` pass without any class of ours, and with one they would be an error, too.
"""

from __future__ import annotations

_OPERATORS = "compares operators of pyg-lib with those of torch-sparse, and has no loader"

_NEIGHBOR = "loader/test_neighbor_loader.py"
_LINK = "loader/test_link_neighbor_loader.py"
_HETERO_TRIPLET = f"{_LINK}::test_hetero_link_neighbor_loader_triplet"
_HOMO_TRIPLET = f"{_LINK}::test_homo_link_neighbor_loader_triplet"
_RETURNS = "returns before it does anything, for PyG's own classes, too"
_NO_LOADER = "is of what RelBench hands to loaders, and makes none"

_LOST = "asserts that bidirectional edges of types have no numbers and attributes; here they have their own"
_ALL_HAVE = "asserts that bidirectional edges which the graph does not have carry the attribute of one that it has"

LEFT_OUT: dict[str, str] = {
    **{f"{_NEIGHBOR}::test_hetero_neighbor_loader_basic[bidirectional-{ids}]": _LOST for ids in ("int32", "int64")},
    **{
        f"{_LINK}::test_homo_link_neighbor_loader_basic[{per_worker}-{negatives}-bidirectional-cpu]": _ALL_HAVE
        for per_worker in (None, True, False)
        for negatives in (None, 1.0)
    },
    f"{_NEIGHBOR}::test_pyg_lib_and_torch_sparse_homo_equality": _OPERATORS,
    f"{_NEIGHBOR}::test_pyg_lib_and_torch_sparse_hetero_equality": _OPERATORS,
}
"""Node id, without parameters for all of them -> reason."""

NOTHING_OF_OURS: dict[str, str] = {
    f"{_NEIGHBOR}::test_homo_neighbor_loader_basic[auto_filter-induced-int32-cpu]": _RETURNS,
    f"{_NEIGHBOR}::test_homo_neighbor_loader_basic[filter_per_worker-induced-int32-cpu]": _RETURNS,
    f"{_NEIGHBOR}::test_homo_neighbor_loader_basic[filter_in_main-induced-int32-cpu]": _RETURNS,
    f"{_NEIGHBOR}::test_hetero_neighbor_loader_basic[induced-int32]": _RETURNS,
    f"{_HETERO_TRIPLET}[1-True-False]": _RETURNS,
    f"{_HETERO_TRIPLET}[2-True-False]": _RETURNS,
    f"{_HOMO_TRIPLET}[1-True-False]": _RETURNS,
    f"{_HOMO_TRIPLET}[2-True-False]": _RETURNS,
    "modeling/test_loader.py::test_sparse_tensor": _NO_LOADER,
    "modeling/test_loader.py::test_custom_link_dataset": _NO_LOADER,
}
"""Node id, without parameters for all of them -> reason."""


def reason_of(test: str) -> str | None:
    """Why the test of this node id is left out, or None if it is not."""
    return entry_of(test, LEFT_OUT)


def entry_of(test: str, reasons: dict[str, str]) -> str | None:
    """The reason that stands for this node id, or None if there is none."""
    return reasons.get(test) or reasons.get(test.partition("[")[0])
