"""SAGE and SIGN: learn on graphs with and without types, and a checkpoint predicts alike, on further data too."""

import numpy as np
import pytest
import pytorch_lightning as pl
import torch

from lightning_gnnload import (
    SAGE,
    SIGN,
    Graph,
    GraphData,
    GraphDataModule,
    NeighborSampler,
    SeedTable,
    WeightedNeighborSampler,
    infer,
    preaggregate,
)
from lightning_gnnload.errors import GraphDataError, LoaderConfigError, SamplerConfigError, StaleTableError

N = 400


def trainer(root, epochs=0) -> pl.Trainer:
    return pl.Trainer(
        accelerator="cpu",
        max_epochs=epochs,
        limit_val_batches=0,
        default_root_dir=root,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


def homophilous(generator: np.random.Generator, y: np.ndarray, num_edges: int = 6 * N) -> tuple[np.ndarray, np.ndarray]:
    """Edges between nodes of the same class, which the features do not tell."""
    src = generator.integers(0, N, num_edges)
    order = np.argsort(y, kind="stable")
    first = np.searchsorted(y[order], y[src])
    size = np.bincount(y)[y[src]]
    return src, order[first + generator.integers(0, size)]


def plain(label) -> GraphData:
    generator = np.random.default_rng(0)
    y = generator.integers(0, 3, N)
    x = np.eye(3, dtype=np.float32)[y] * (generator.random(N) < 0.3)[:, None]  # few nodes say what they are
    ids = generator.permutation(N)
    return GraphData(Graph.from_coo(*homophilous(generator, y)), x, label(y), ids[:200], ids[200:300], ids[300:])


def typed() -> GraphData:
    """Users are of the kind of the shop that they buy in, which a category of the shop tells, and nothing else."""
    generator = np.random.default_rng(1)
    kind = generator.integers(0, 3, 60)
    shop_of = generator.integers(0, 60, N)
    graph = Graph.from_hetero({"user": N, "a.shop": 60}, {("a.shop", "sells_to", "user"): (shop_of, np.arange(N))})
    seeds = {
        name: SeedTable(np.arange(k, N, 3), node_type="user", y=kind[shop_of][k::3])
        for k, name in enumerate(("train", "val", "test"))
    }
    return GraphData(graph, tables={"a.shop": {"codes": (kind + 2).astype(np.int32)[:, None]}}, num_classes=3, **seeds)


@pytest.mark.parametrize(
    ("data", "metric", "good"),
    [
        (plain(lambda y: y), "test_accuracy", lambda value: value > 0.9),
        (plain(lambda y: y * 0.5), "test_error", lambda value: value < 0.15),
        (typed(), "test_accuracy", lambda value: value > 0.95),
    ],
    ids=["classes", "numbers", "types and categories"],
)
def test_it_learns_what_only_the_graph_tells_and_its_checkpoint_predicts_alike(tmp_path, data, metric, good):
    pl.seed_everything(0)
    module = GraphDataModule(data, NeighborSampler([10, 10]), batch_size=100, num_threads=0, predict="test")
    fit = trainer(tmp_path, epochs=25)
    model = SAGE(hidden=32, lr=0.01)
    fit.fit(model, module)
    [found] = fit.test(model, module, verbose=False)
    assert good(found[metric]), found
    fit.save_checkpoint(tmp_path / "model.ckpt")
    predicted, again = (
        torch.cat(trainer(tmp_path).predict(each, module, ckpt_path=path))
        for each, path in ((model, None), (SAGE(hidden=32), str(tmp_path / "model.ckpt")))
    )
    assert torch.equal(predicted, again)
    # Its layers can be computed one after another, for all nodes at once.
    whole = GraphDataModule(data, NeighborSampler([-1, -1]), num_threads=0, predict="test")
    [exact] = trainer(tmp_path).predict(model, whole)
    rows = infer(model, whole, progress=False)
    rows = rows["user"] if isinstance(rows, dict) else rows
    nodes = data.test if data.table("test") is None else data.table("test").ends[:, 0]
    assert torch.allclose(rows[nodes], exact, atol=1e-5)
    if metric == "test_accuracy":
        assert torch.allclose(predicted.sum(1), torch.ones(len(predicted)))


def test_codes_beyond_those_of_training_count_as_unknown(tmp_path):
    module = GraphDataModule(typed(), NeighborSampler([5]), num_threads=0, predict="test")
    fit, model = trainer(tmp_path, epochs=1), SAGE(hidden=8)
    fit.fit(model, module)
    fit.save_checkpoint(tmp_path / "model.ckpt")
    predicted = []
    for code in (0, 99):  # unknown, and one that the checkpoint has no row for
        data = typed()
        tables = {"a.shop": {"codes": torch.full((60, 1), code)}}
        data = GraphData(data.graph, tables=tables, num_classes=3, **data.seed_tables)
        further = GraphDataModule(data, NeighborSampler([5]), num_threads=0, predict="test")
        predicted.append(
            torch.cat(trainer(tmp_path).predict(SAGE(hidden=8), further, ckpt_path=str(tmp_path / "model.ckpt")))
        )
    assert torch.equal(*predicted)


def test_what_it_cannot_predict_is_refused(tmp_path):
    graph = Graph.from_coo([0, 1], [1, 0])
    links = SeedTable(src=[0], dst=[1], y=[1])
    for data, told in ((GraphData(graph, train=[0]), "there are none"), (GraphData(graph, train=links), "are links")):
        with pytest.raises(GraphDataError, match=told):
            trainer(tmp_path, epochs=1).fit(SAGE(), GraphDataModule(data, NeighborSampler([2]), num_threads=0))


def two_types() -> GraphData:
    """Shops and users with features, and edges both ways."""
    generator = np.random.default_rng(2)
    shop_of = generator.integers(0, 60, N)
    edges = {("shop", "sells_to", "user"): (shop_of, np.arange(N)), ("user", "buys", "shop"): (np.arange(N), shop_of)}
    graph = Graph.from_hetero({"user": N, "shop": 60}, edges)
    x = {name: generator.normal(size=(count, 5)).astype(np.float32) for name, count in (("user", N), ("shop", 60))}
    seeds = {name: {"user": np.arange(k, N, 3)} for k, name in enumerate(("train", "val", "test"))}
    return GraphData(graph, x=x, y={"user": shop_of % 3}, **seeds)


@pytest.mark.parametrize("data", [plain(lambda y: y), two_types()], ids=["plain", "types"])
def test_a_preaggregated_first_layer_takes_the_weights_of_a_sampled_one_and_predicts_alike(tmp_path, data):
    pl.seed_everything(0)
    data = preaggregate(data, progress=False)
    settings = {"batch_size": 100, "num_threads": 0, "predict": "test"}
    whole, less = (GraphDataModule(data, NeighborSampler([-1] * hops), **settings) for hops in (2, 1))
    fit, sampled = trainer(tmp_path, epochs=1), SAGE(hidden=16, first_layer="sampled")
    fit.fit(sampled, whole)
    fit.save_checkpoint(tmp_path / "model.ckpt")
    expected = torch.cat(trainer(tmp_path).predict(sampled, whole))
    dense = SAGE(hidden=16, first_layer="preaggregated")
    predicted = torch.cat(trainer(tmp_path).predict(dense, less, ckpt_path=str(tmp_path / "model.ckpt")))
    torch.testing.assert_close(predicted, expected, rtol=1e-4, atol=1e-6)
    assert dense.state_dict().keys() == sampled.state_dict().keys()
    # A checkpoint that is loaded by itself, and back again; and layers of all nodes, one after another.
    loaded = SAGE.load_from_checkpoint(tmp_path / "model.ckpt", first_layer="preaggregated")
    assert torch.equal(torch.cat(trainer(tmp_path).predict(loaded, less)), predicted)
    rows = infer(dense, less, progress=False)
    rows = rows["user"] if isinstance(rows, dict) else rows
    torch.testing.assert_close(rows[data.test], predicted)
    # Training goes on from it, and ends with the weights that the sampled one would have.
    torch.manual_seed(0)
    fit = trainer(tmp_path, epochs=2)
    fit.fit(SAGE(hidden=16, first_layer="preaggregated"), less, ckpt_path=str(tmp_path / "model.ckpt"))
    again = trainer(tmp_path, epochs=2)
    torch.manual_seed(0)
    again.fit(SAGE(hidden=16, first_layer="sampled"), whole, ckpt_path=str(tmp_path / "model.ckpt"))
    fit.save_checkpoint(tmp_path / "dense.ckpt")
    back = SAGE.load_from_checkpoint(tmp_path / "dense.ckpt", first_layer="sampled")
    torch.testing.assert_close(
        torch.cat(trainer(tmp_path).predict(back, whole)), torch.cat(again.predict(again.model, whole))
    )


def test_means_go_to_the_weights_of_their_edge_type_whatever_the_order_of_types(tmp_path):
    generator = np.random.default_rng(0)
    edges = {("u", name, "i"): generator.integers(0, 20, (2, 60)) for name in ("buys", "views")}

    def of(order) -> GraphData:
        graph = Graph.from_hetero({"u": 20, "i": 20}, {edge_type: edges[edge_type] for edge_type in order})
        x = np.random.default_rng(1).random((20, 4), dtype=np.float32)
        seeds = SeedTable(np.arange(20), node_type="i", y=np.arange(20) % 2)
        data = GraphData(graph, train=seeds, test=seeds, tables={"u": {"x": x}, "i": {"x": x[::-1].copy()}})
        return preaggregate(data, progress=False)

    modules = [GraphDataModule(of(order), NeighborSampler([9]), batch_size=20) for order in (edges, reversed(edges))]
    fit = trainer(tmp_path, epochs=1)
    fit.fit(SAGE(hidden=8, first_layer="preaggregated"), modules[0])
    fit.save_checkpoint(tmp_path / "model.ckpt")
    path = str(tmp_path / "model.ckpt")
    new = [lambda: (SAGE(hidden=8, first_layer="preaggregated"), path), lambda: (SAGE.load_from_checkpoint(path), None)]
    for make in new:
        predictions = []
        for module in modules:
            model, ckpt_path = make()
            fit = trainer(tmp_path)
            fit.test(model, module, ckpt_path=ckpt_path, verbose=False)
            batch = next(iter(module.test_dataloader()))
            with torch.no_grad():
                predictions.append(model.eval()(batch))
        torch.testing.assert_close(*predictions)


def test_a_model_without_a_graph_learns_from_sums_of_hops(tmp_path):
    pl.seed_everything(0)
    data = preaggregate(plain(lambda y: y), hops=2, progress=False)
    settings = {"batch_size": 100, "num_threads": 0, "predict": "test"}
    module = GraphDataModule(data, NeighborSampler([]), **settings)
    fit, model = trainer(tmp_path, epochs=12), SIGN(hidden=32, lr=0.02)
    fit.fit(model, module)
    [found] = fit.test(model, module, verbose=False)
    assert found["test_accuracy"] > 0.9
    fit.save_checkpoint(tmp_path / "model.ckpt")
    expected = torch.cat(fit.predict(model, module))
    loaded = SIGN.load_from_checkpoint(tmp_path / "model.ckpt")
    assert torch.equal(torch.cat(trainer(tmp_path).predict(loaded, module)), expected)
    for of in (module, data):  # of data alone, the number of hops is found by trying
        torch.testing.assert_close(infer(model, of, progress=False)[data.test], expected)
    # Of a checkpoint, it takes the tables of the data at hand, whatever they are called.
    renamed = preaggregate(plain(lambda y: y), hops=2, name="hop", progress=False)
    elsewhere = GraphDataModule(renamed, NeighborSampler([]), **settings)
    assert torch.equal(torch.cat(trainer(tmp_path).predict(loaded, elsewhere)), expected)


def test_without_the_tables_that_it_takes_a_model_says_which_to_make(tmp_path):
    bare, lone = plain(lambda y: y), two_types()
    both = preaggregate(preaggregate(bare, aggr="gcn", progress=False), progress=False)
    stale = preaggregate(plain(lambda y: y), progress=False)
    stale.x.rows.add_(1)
    del lone.tables["x.shop"]
    dense = SAGE(first_layer="preaggregated")
    for model, data, fanouts, error, told in (
        (dense, bare, [2], GraphDataError, r"the mean of 'x' over in-neighbours, .* Make it: preaggregate\(data\)"),
        (dense, two_types(), [2], GraphDataError, "mean of 'x.shop' over in-neighbours by shop__sells_to__user"),
        (dense, stale, [2], StaleTableError, "'x', which it was made of, has changed since"),
        (SAGE(first_layer="sampled"), lone, [2], GraphDataError, "nodes of type 'shop' have none"),
        (
            SIGN(hops=2),
            both,
            [],
            GraphDataError,
            "'x_gcn_1' .gcn of x, self-loops. and 'x_mean_1' .* Say which by aggr=",
        ),
        (SIGN(hops=2, aggr="mean"), both, [], GraphDataError, r"have 'x_mean_1' \(mean of x\). Make them: .* --hops 2"),
        (SIGN(aggr="mean"), both, [2], SamplerConfigError, "has 0 layers, but the sampler drew 1 hops"),
        (
            SIGN(),
            two_types(),
            [],
            GraphDataError,
            r"over 1 to K hops; .* have none\. .* hops=2, node_type='user'\), .* --node-type user\.",
        ),
    ):
        with pytest.raises(error, match=told):
            trainer(tmp_path, epochs=1).fit(model, GraphDataModule(data, NeighborSampler(fanouts), num_threads=0))
    # A refusal leaves nothing behind: the next run makes layers for its own data.
    trainer(tmp_path, epochs=1).fit(dense, GraphDataModule(both, NeighborSampler([2]), num_threads=0))
    with pytest.raises(LoaderConfigError, match="'dense' is not known; give one of 'encoded', 'sampled', 'preagg"):
        SAGE(first_layer="dense")


def weighted(**settings) -> GraphData:
    """Tables of means, of all neighbours alike and by weights, or of one of them."""
    generator = np.random.default_rng(3)
    y = generator.integers(0, 3, N)
    edges = homophilous(generator, y)
    graph = Graph.from_coo(*edges, edge_weight=generator.random(len(edges[0])).astype(np.float32))
    ids = generator.permutation(N)
    x = generator.normal(size=(N, 4)).astype(np.float32)
    data = GraphData(graph, x, y, ids[:200], ids[200:300], ids[300:])
    return preaggregate(data, progress=False, **settings) if settings else data


def test_means_are_weighted_exactly_where_the_sampler_draws_by_weight(tmp_path):
    pl.seed_everything(0)
    alike, by_weight, loops = (
        weighted(weighted=False),
        weighted(weighted=True),
        weighted(weighted=False, self_loops=True),
    )
    plainly, drawn = NeighborSampler([-1]), WeightedNeighborSampler([4])

    def module(data, sampler, **settings):
        return GraphDataModule(data, sampler, batch_size=100, num_threads=0, predict="test", **settings)

    alike_told = (
        r"of all neighbours alike, as NeighborSampler\(.* but 'x_mean_1' \(mean of x, weighted\) is weighted by edge "
        r"weights\. Make it so: preaggregate\(data, weighted=False\), .* --no-weighted"
    )
    weighted_told = (
        r"weighted by edge weights, as WeightedNeighborSampler\(.* is of all neighbours alike\. Make it so: "
        r"preaggregate\(data, weighted=True\), .* Or take NeighborSampler"
    )
    loops_told = r"'x_mean_1' \(mean of x, self-loops\) counts each node among its in-neighbours\. Make it "
    for data, sampler, told in (
        (by_weight, plainly, alike_told),
        (alike, drawn, weighted_told),
        (loops, plainly, loops_told),
    ):
        with pytest.raises(GraphDataError, match=told):
            trainer(tmp_path, epochs=1).fit(SAGE(first_layer="preaggregated"), module(data, sampler))
    mixed = module(by_weight, plainly, eval_sampler=drawn)
    with pytest.raises(
        GraphDataError, match=r"are to be of all neighbours alike, as NeighborSampler\(.*, and weighted"
    ):
        trainer(tmp_path, epochs=1).fit(SAGE(first_layer="preaggregated"), mixed)
    # Of both, each sampler has its own.
    both = preaggregate(alike, weighted=True, name="heavy", progress=False)
    for sampler, name in ((plainly, "x_mean_1"), (drawn, "heavy_1")):
        model = SAGE(first_layer="preaggregated")
        trainer(tmp_path).fit(model, module(both, sampler))
        assert model.layers.means == [name]
    # What a checkpoint was trained on stays, in a run that goes on and in inference, with or without a sampler.
    fit, model = trainer(tmp_path, epochs=1), SAGE(hidden=8, first_layer="preaggregated")
    fit.fit(model, module(alike, plainly))
    path = str(tmp_path / "model.ckpt")
    fit.save_checkpoint(path)
    with pytest.raises(
        GraphDataError, match=r"trained on means of all neighbours alike, but 'x_mean_1' are weighted by"
    ):
        trainer(tmp_path, epochs=2).fit(
            SAGE(hidden=8, first_layer="preaggregated"), module(by_weight, drawn), ckpt_path=path
        )
    loaded = SAGE.load_from_checkpoint(path)
    assert torch.equal(infer(loaded, alike, progress=False), infer(loaded, both, progress=False))
    for data in (by_weight, module(by_weight, drawn)):
        with pytest.raises(GraphDataError, match=r"as this model was trained on such|they are to be of all neighbours"):
            infer(loaded, data, progress=False)
    # Trained by sampling, likewise.
    fit = trainer(tmp_path, epochs=1)
    fit.fit(SAGE(hidden=8, first_layer="sampled"), module(alike, NeighborSampler([-1, -1])))
    fit.save_checkpoint(path)
    again = SAGE.load_from_checkpoint(path, first_layer="preaggregated")
    with pytest.raises(GraphDataError, match="this model was trained on such"):
        infer(again, by_weight, progress=False)
    expected = torch.cat(trainer(tmp_path).predict(fit.model, module(alike, NeighborSampler([-1, -1]))))
    torch.testing.assert_close(infer(again, alike, progress=False)[alike.test].softmax(1), expected.softmax(1))


def test_a_model_without_a_graph_takes_the_sums_that_it_was_trained_on(tmp_path):
    data, sampler = weighted(weighted=False, hops=2), NeighborSampler([])
    fit = trainer(tmp_path, epochs=1)
    fit.fit(SIGN(hops=2), GraphDataModule(data, sampler, num_threads=0))
    path = str(tmp_path / "model.ckpt")
    fit.save_checkpoint(path)
    more = preaggregate(weighted(weighted=True, hops=3), weighted=False, hops=2, name="alike", progress=False)
    loaded = SIGN.load_from_checkpoint(path)
    assert torch.equal(infer(loaded, data, progress=False), infer(loaded, more, progress=False))
    for settings, told in (
        ({"hops": 2}, r"SIGN was trained on the mean of x, which .*; they have 'x_mean_1' \(mean of x, weighted\)"),
        ({"weighted": False}, r"trained on the mean of x, hop 2, which these data do not have"),
        ({"weighted": False, "hops": 2, "self_loops": True}, r"they have 'x_mean_1' \(mean of x, self-loops\)"),
        ({"aggr": "sum", "hops": 2, "weighted": False}, r"they have 'x_sum_1' \(sum of x\)"),
    ):
        other = weighted(**settings)
        with pytest.raises(GraphDataError, match=told):
            infer(SIGN.load_from_checkpoint(path), other, progress=False)
        if settings.get("hops") == 2:
            with pytest.raises(GraphDataError, match=told):
                trainer(tmp_path, epochs=2).fit(SIGN(), GraphDataModule(other, sampler, num_threads=0), ckpt_path=path)


def test_a_model_without_a_graph_takes_all_metapaths_to_its_seeds(tmp_path):
    """Users are of the kind of the shops that they buy in, which only the shops' features tell; so are shops."""
    generator = np.random.default_rng(4)
    kind = generator.integers(0, 3, 60)
    shop_of = np.stack([generator.integers(0, 60, N)] * 2)
    edges = {
        ("a.shop", "sells", "user"): (shop_of[0], np.arange(N)),
        ("a.shop", "rents", "user"): (shop_of[1], np.arange(N)),
        ("user", "buys", "a.shop"): (np.arange(N), shop_of[0]),
    }
    graph = Graph.from_hetero({"user": N, "a.shop": 60}, edges)
    y = {"user": kind[shop_of[0]], "a.shop": kind}
    seeds = {
        name: {"user": np.arange(k, N, 3), "a.shop": np.arange(k, 60, 3)} for k, name in enumerate(("train", "test"))
    }
    x = {"a.shop": np.eye(3, dtype=np.float32)[kind] + generator.normal(size=(60, 3)).astype(np.float32) / 4}
    data = GraphData(graph, x=x, y=y, num_classes=3, **seeds)
    apart = preaggregate(data, hops=2, progress=False)
    together = preaggregate(data, hops=2, merge_relations=True, name="all", progress=False)
    # To users from shops, and to shops from shops by users: by each of two relations, or by both together.
    assert (len(apart.aggregates), len(together.aggregates)) == (4, 2)
    for tables in (apart, together):
        pl.seed_everything(0)
        module = GraphDataModule(tables, NeighborSampler([]), batch_size=60, num_threads=0)
        fit, model = trainer(tmp_path, epochs=20), SIGN(hops=2, hidden=16, lr=0.02)
        fit.fit(model, module)
        [found] = fit.test(model, module, verbose=False)
        assert found["test_accuracy"] > 0.9
        rows = infer(model, module, progress=False)
        batch = next(iter(module.test_dataloader()))
        with torch.no_grad():
            predicted = model.eval()(batch)
        expected = torch.cat([rows[name][batch.nodes[name][: batch.num_seeds[name]]] for name in batch.num_seeds])
        torch.testing.assert_close(predicted.softmax(1), expected)
    both = preaggregate(apart, hops=2, merge_relations=True, name="all", progress=False)
    with pytest.raises(GraphDataError, match=r"by relation, as 'x_mean_1_a_shop__sells__user\.user', and of all"):
        trainer(tmp_path, epochs=1).fit(SIGN(), GraphDataModule(both, NeighborSampler([]), num_threads=0))
    some = preaggregate(data, hops=2, node_type="user", progress=False)
    some.seed_tables.clear()
    with pytest.raises(GraphDataError, match=r"along user__buys__a.shop|sums of x over 1 to 2 hops"):
        trainer(tmp_path, epochs=1).fit(SIGN(hops=2), GraphDataModule(some, NeighborSampler([]), num_threads=0))


def test_inference_sees_what_comes_by_edges_that_few_nodes_have(tmp_path):
    """Only the node with most edges has one of the second type."""
    few = np.repeat(np.arange(30), 2)
    edges = {
        ("u", "often", "u"): (np.arange(80) % 30, np.concatenate([few, np.full(20, 29)])),
        ("v", "once", "u"): ([1], [29]),
    }
    x = {name: np.ones((count, 4), np.float32) for name, count in (("u", 30), ("v", 2))}
    seeds = {"u": np.arange(30)}
    graph = Graph.from_hetero({"u": 30, "v": 2}, edges)
    data = GraphData(graph, x=x, y={"u": np.arange(30) % 2}, train=seeds, test=seeds)
    module = GraphDataModule(data, NeighborSampler([-1]), batch_size=30, num_threads=0, predict="test")
    fit, model = trainer(tmp_path, epochs=1), SAGE(hidden=16)
    fit.fit(model, module)
    expected = torch.cat(fit.predict(model, module))
    torch.testing.assert_close(infer(model, module, progress=False)["u"], expected)


def test_a_refused_run_leaves_torchs_loaders_as_they_were(tmp_path):
    from torch.utils.data import BatchSampler, DataLoader, TensorDataset

    before = [cls.__init__ for cls in (DataLoader, BatchSampler)]
    bad = plain(lambda y: np.where(np.arange(N) == 5, -3, y))
    bad.train = np.arange(N)
    with pytest.raises(GraphDataError, match="labels of the train split are no class"):
        trainer(tmp_path, epochs=1).fit(SAGE(), GraphDataModule(bad, NeighborSampler([2]), num_threads=0))
    assert [cls.__init__ for cls in (DataLoader, BatchSampler)] == before
    assert not [name for name in vars(DataLoader(TensorDataset(torch.ones(2)))) if name.startswith("__pl")]
