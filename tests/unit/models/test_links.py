"""LinkPredictor beside plain computations of what it trains on, ranks and recommends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from lightning_gnnload import (
    SAGE,
    EvenOrder,
    Graph,
    GraphData,
    GraphDataModule,
    LinkPredictor,
    Negatives,
    NeighborSampler,
    PredictionWriter,
    SeedTable,
    UserIds,
)
from lightning_gnnload.errors import GraphDataError, LoaderConfigError
from lightning_gnnload.models.links.heads import HEADS, head_of
from lightning_gnnload.plugin.compat import pl
from tests.oracle.ranking import measures
from tests.runif import RunIf

USERS, ITEMS, BUYS, BACK = 24, 30, ("user", "buys", "item"), ("item", "rev_buys", "user")
NAMES = ["mrr", "hits@5", "recall@5", "ndcg@5", "map@5"]
QUIET: dict[str, Any] = {
    "accelerator": "cpu",
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}


def purchases(num: int = 200) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.integers(0, USERS, num), rng.integers(0, ITEMS, num), np.sort(rng.integers(0, 1000, num))


def shop(timed: bool, several: bool = False) -> GraphData:
    """The last 60 purchases are to be predicted: of a graph with times as they are, else of one without them; or of
    users at two times, with all that they buy later."""
    user, item, time = purchases()
    old = slice(None) if timed else slice(0, 140)
    edges = {BUYS: (user[old], item[old]), BACK: (item[old], user[old])}
    times = dict.fromkeys(edges, time[old]) if timed else None
    graph = Graph.from_hetero({"user": USERS, "item": ITEMS}, edges, edge_time=times, keep_order=True)

    def table(first: int, last: int) -> SeedTable:
        rows = np.arange(first, last)
        columns: dict[str, Any] = {"time": time[rows]} if timed else {}
        if timed or last <= 140:
            columns["edge_ids"] = rows
        return SeedTable(src=user[rows], dst=item[rows], edge_type=BUYS, **columns)

    def asked() -> SeedTable:
        at = np.repeat([time[140], time[170]], USERS)
        lists = [
            item[(user == who) & (time >= when)] for who, when in zip(np.tile(np.arange(USERS), 2), at, strict=True)
        ]
        rows = [number for number, targets in enumerate(lists) if len(targets)]
        ptr = np.cumsum([0, *(len(lists[number]) for number in rows)])
        src = np.tile(np.arange(USERS), 2)[rows]
        dst = np.concatenate([lists[number] for number in rows])
        return SeedTable(src=src, dst=dst, dst_ptr=ptr, edge_type=BUYS, time=at[rows])

    generator = torch.Generator().manual_seed(1)
    x = {"user": torch.randn(USERS, 4, generator=generator), "item": torch.randn(ITEMS, 4, generator=generator)}
    user_ids = {
        "user": UserIds.of([f"u{k}" for k in range(USERS)], column="who"),
        "item": UserIds.of(range(100, 130), column="sku"),
    }
    test = asked() if several else table(140, 200)
    return GraphData(graph, x=x, train=table(0, 140), test=test, user_ids=user_ids)


def module_of(data: GraphData, batch_size: int = 16, **settings: Any) -> GraphDataModule:
    # All neighbours: what a node's row is can be computed by itself.
    sampler = NeighborSampler([-1, -1], before="<" if data.graph.clock is not None else None)
    negatives = settings.pop("negatives", Negatives("in_batch"))
    return GraphDataModule(data, sampler, batch_size, num_threads=0, negatives=negatives, **settings)


def begun(model: LinkPredictor, module: GraphDataModule, **settings: Any) -> pl.Trainer:
    trainer = pl.Trainer(max_steps=3, limit_val_batches=0, **QUIET, **settings)
    trainer.fit(model, module)
    return trainer


def predictor(**settings: Any) -> LinkPredictor:
    pl.seed_everything(3, verbose=False)
    encoder = settings.pop("encoder", None) or SAGE(hidden=8, dropout=0.0)
    return LinkPredictor(encoder, num_outputs=6, metrics=NAMES, **settings)


def rows_at(model: LinkPredictor, module: GraphDataModule, node_type: str, time: int | None) -> torch.Tensor:
    count = USERS if node_type == "user" else ITEMS
    times = {} if time is None else {"time": np.full(count, time)}
    (batch,) = module.loader_of(SeedTable(np.arange(count), node_type=node_type, **times), 100)
    with torch.no_grad():
        return model.embed(batch)


# Rows with several targets are of users at a time.
@pytest.mark.parametrize(("timed", "several"), [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize("filtered", [False, True])
def test_ranks_among_all_items_equal_plain_lists_of_answers(timed: bool, several: bool, filtered: bool) -> None:
    data, user_item_time = shop(timed, several), purchases()
    model = predictor(rank="all", filtered=filtered, most_moments=100)
    module = module_of(data)
    trainer = begun(model, module)
    results = [trainer.test(model, module_of(data, size), verbose=False)[0] for size in (7, 64)]
    assert results[0] == pytest.approx(results[1])  # whatever the mini-batches

    model.eval()
    user, item, bought_at = user_item_time
    table = data.table("test")
    answers: dict[tuple[int, int | None], list[int]] = {}
    ptr = np.arange(len(table) + 1) if table.dst_ptr is None else table.dst_ptr
    for row in range(len(table)):
        key = int(table.ends[row, 0]), int(table.time[row]) if timed else None
        answers.setdefault(key, []).extend(table.targets[ptr[row] : ptr[row + 1]].tolist())
    values: dict[str, list[float]] = {name: [] for name in NAMES}
    for (who, when), right in answers.items():
        users = rows_at(model, module, "user", when)
        # Of rows that are edges, items see what came before, by a sampler with "<" what came before that.
        items = rows_at(model, module, "item", when if when is None or several else when - 1)
        score = (users[who].double() @ items.double().t()).float()
        known = set(item[(user == who) & (bought_at < when)] if timed else item[:140][user[:140] == who])
        usable = [k for k in range(ITEMS) if k in right or not filtered or k not in known]
        # A target that comes twice is two right answers.
        listed = sorted(
            [*set(usable), *[k for k in set(right) for _ in range(right.count(k) - 1)]], key=lambda k: -score[k]
        )
        for name, value in measures([k in right for k in listed], 5).items():
            values[name].append(value)
    for name in NAMES:
        assert results[0][f"test_{name}"] == pytest.approx(np.mean(values[name]), abs=1e-6), name


@pytest.mark.parametrize("index", ["exact", pytest.param("faiss", marks=RunIf(extras="faiss"))])
def test_predictions_are_the_best_items_by_the_users_own_ids(index: str, tmp_path: Path) -> None:
    data, (user, item, time) = shop(timed=True), purchases()
    model = predictor(top_k=4, exclude_known=True, index=index)
    module = module_of(data)
    begun(model, module)
    model.eval()
    asked = SeedTable(np.array([3, 3, 5]), node_type="user", time=np.array([1001, 400, -5]))
    tables = []
    for size in (1, 8):
        path = tmp_path / f"{size}.npz"
        trainer = pl.Trainer(callbacks=[PredictionWriter(path)], **QUIET)
        rankings: Any = trainer.predict(model, module_of(data, size, predict=asked))
        assert [len(ranking.items) for ranking in rankings] == [min(size, 3)] * (3 // min(size, 3))
        assert rankings[0].candidates == range(USERS, USERS + ITEMS)
        tables.append(dict(np.load(path)))
    for name in tables[0]:
        np.testing.assert_allclose(tables[0][name], tables[1][name], rtol=1e-5) if name == "score" else None
        assert name == "score" or tables[0][name].tolist() == tables[1][name].tolist()
    table = tables[0]
    assert list(table) == ["row", "who", "time", "rank", "sku", "score"]
    for row, (who, when) in enumerate(((3, 1001), (3, 400), (5, -5))):
        at = table["row"] == row
        users, items = (rows_at(model, module, name, when) for name in ("user", "item"))
        score = (users[who].double() @ items.double().t()).float()
        known = set(item[(user == who) & (time < when)].tolist())
        wanted = sorted(set(range(ITEMS)) - known, key=lambda k: (-score[k], k))[:4]
        assert table["sku"][at].tolist() == [100 + k for k in wanted]
        assert table["rank"][at].tolist() == [1, 2, 3, 4]
        assert set(table["who"][at]) == {f"u{who}"}
        np.testing.assert_allclose(table["score"][at], score[wanted], rtol=1e-5)


@pytest.mark.parametrize("negatives", [Negatives("in_batch"), None])
def test_the_softmax_among_other_rows_is_corrected_for_popularity(negatives: Negatives | None) -> None:
    data = shop(timed=False)
    model, module = predictor(rank="all"), module_of(data, negatives=negatives)
    begun(model, module)
    batch, model.log = next(iter(module.train_dataloader())), lambda *_, **__: None
    user, item, _ = purchases()
    with torch.no_grad():
        loss = model.training_step(batch, 0)
        rows = model._rows(batch)
        links = batch.links[BUYS]
        src, dst = rows["user"][links["src"]], rows["item"][links["dst"]]
        log_q = torch.from_numpy(np.bincount(item[:140], minlength=ITEMS)).log()[batch.nodes["item"][links["dst"]]]
        logits, own = src @ dst.t() - log_q, torch.eye(len(src), dtype=torch.bool)
        # Another row's item that this user has bought is no negative: ever, or in this mini-batch.
        rows_of = links["input_id"].numpy()
        bought = slice(0, 140) if negatives is not None else rows_of
        is_known = torch.tensor([[item[j] in item[bought][user[bought] == user[i]] for j in rows_of] for i in rows_of])
        wanted = F.cross_entropy(logits.masked_fill(is_known & ~own, -torch.inf), torch.arange(len(src)))
    torch.testing.assert_close(loss, wanted)


@pytest.mark.parametrize("head", HEADS)
def test_a_head_scores_pairs_as_it_scores_tables(head: Any) -> None:
    torch.manual_seed(0)
    model = head_of(head, 6, 2, None if head == "mlp" else 0.5)
    src, dst = torch.randn(5, 6), torch.randn(7, 6)
    query, item = model.query(src, 1), model.item(dst, 1)
    pairs = torch.stack([model(src[[k]].expand(7, -1), dst, 1) for k in range(5)])
    for scores in (model.table(query, item), model.exact(query, item), model(src, dst.expand(5, -1, -1), 1)):
        torch.testing.assert_close(scores, pairs)
    if head == "mlp":
        model._PAIRS = 10  # in parts
        torch.testing.assert_close(model.exact(query, item), pairs)


@pytest.mark.parametrize(
    ("loss", "mode", "num_hard"), [("bce", "triplet", 2), ("bpr", "joint", None), ("bce", "binary", None)]
)
def test_links_of_several_types_with_two_towers_train_on_their_negatives(loss: Any, mode: Any, num_hard: Any) -> None:
    user, item, _ = purchases()
    views = ("user", "views", "item")
    edges = {BUYS: (user[:80], item[:80]), BACK: (item[:80], user[:80]), views: (user[80:], item[80:])}
    graph = Graph.from_hetero({"user": USERS, "item": ITEMS}, edges, keep_order=True)
    tables = {name: SeedTable(src=edges[name][0], dst=edges[name][1]) for name in (BUYS, views)}
    data = GraphData(graph, x={"user": torch.randn(USERS, 4), "item": torch.randn(ITEMS, 4)}, train=tables)
    corrupt = "dst" if mode == "joint" else "both"
    module = module_of(data, 20, order=EvenOrder(), negatives=Negatives(mode, num=5, corrupt=corrupt))
    towers = {"user": SAGE(hidden=8, dropout=0.0), "item": SAGE(hidden=4, dropout=0.0)}
    model = predictor(encoder=towers, head="distmult", loss=loss, num_hard=num_hard)
    begun(model, module)
    batch, model.log = next(iter(module.train_dataloader())), lambda *_, **__: None
    with torch.no_grad():
        model.head.relation.uniform_()
        trained = model.training_step(batch, 0)
        rows, losses = model._rows(batch), []
        for number, name in enumerate((BUYS, views)):
            links = batch.links[name]
            score = lambda a, b, n=number: (rows["user"][a] * model.head.relation[n] * rows["item"][b]).sum(-1)  # noqa: E731
            positive, terms = score(links["src"], links["dst"]), []
            num_rows = len(links["input_id"])
            if mode == "binary":
                label = links["label"]
                losses.append((F.binary_cross_entropy_with_logits(positive, label), num_rows))
                continue
            for row in range(num_rows):
                negatives = links["negatives"][row].tolist()
                scores = [
                    float(score(links["src"][row], k) if corrupt == "dst" or at < 3 else score(k, links["dst"][row]))
                    for at, k in enumerate(negatives)
                    if links["negative_mask"][row, at]
                ]
                terms.append(torch.tensor(sorted(scores, reverse=True)[:num_hard]))
            if loss == "bce":
                parts = torch.cat([F.softplus(-positive), F.softplus(torch.cat(terms))])
            else:
                parts = torch.cat([F.softplus(scores - own) for scores, own in zip(terms, positive, strict=True)])
            losses.append((parts.mean(), num_rows))
    wanted = sum(value * count for value, count in losses) / sum(count for _, count in losses)
    torch.testing.assert_close(trained, wanted)


def test_a_graph_without_types_and_scores_of_links(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    src, dst = rng.integers(0, 40, (2, 300))
    graph = Graph.from_coo(src, dst, num_nodes=40, keep_order=True)
    table = SeedTable(src=src[:100], dst=dst[:100], edge_ids=np.arange(100))
    data = GraphData(graph, x=torch.randn(40, 4), train=table, val=table, test=table)
    model = predictor(head="bilinear", top_k=None)
    settings: dict[str, Any] = {"negatives": Negatives("triplet", num=9)}
    trainer = pl.Trainer(max_epochs=1, **{**QUIET, "enable_checkpointing": True}, default_root_dir=tmp_path)
    trainer.fit(model, module_of(data, 32, **settings))
    assert 0 < trainer.callback_metrics["val_mrr"] < 1
    module = module_of(data, 32, predict="test", **settings)
    path = next(tmp_path.rglob("*.ckpt"))
    again = LinkPredictor.load_from_checkpoint(path, encoder=SAGE(hidden=8, dropout=0.0))
    scores = torch.cat(trainer.predict(again, module))
    assert scores.shape == (100,)
    batch = next(iter(module.predict_dataloader()))
    rows, at = again.embed(batch), batch.seed_columns
    torch.testing.assert_close(scores[:32], again.score(rows[at["src"]], rows[at["dst"]]).detach())


WRONG_SETTINGS: list[tuple[dict[str, Any], str]] = [
    ({"head": "cosine"}, "head"),
    ({"loss": "hinge"}, "loss"),
    ({"top_k": 0}, "top_k is 0"),
    ({"num_hard": True}, "num_hard is True"),
    ({"head": "mlp", "temperature": 0.1}, "temperature=0.1"),
    ({"temperature": "warm"}, "temperature='warm'"),
    ({"head": "mlp", "index": "faiss"}, "index='faiss'"),
    ({"encoder": torch.nn.Linear(2, 2)}, "is a Linear"),
]


@pytest.mark.parametrize(("settings", "words"), WRONG_SETTINGS)
def test_settings_that_do_not_go_together(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(LoaderConfigError, match=words):
        predictor(**settings)


def test_data_that_it_cannot_learn() -> None:
    timed, untimed = shop(timed=True), shop(timed=False)
    with pytest.raises(LoaderConfigError, match="has none"):
        begun(predictor(), module_of(untimed, negatives=None))  # to rank the test rows among
    with pytest.raises(LoaderConfigError, match="of mode 'binary'"):
        begun(predictor(), module_of(untimed, negatives=Negatives("binary")))
    with pytest.raises(LoaderConfigError, match="encoders are given for user"):
        begun(predictor(encoder={"user": SAGE()}), module_of(untimed))
    nodes = GraphData(timed.graph, train=SeedTable([1, 2], node_type="user", time=[5, 6]))
    with pytest.raises(GraphDataError, match="the seeds are nodes"):
        begun(predictor(), module_of(nodes))
    # Items would show the very edges that are asked about.
    leaky = GraphData(
        untimed.graph,
        x=untimed.tables and {"user": torch.randn(USERS, 4)},
        train=untimed.table("train"),
        test=untimed.table("train"),
    )
    model = predictor(rank="all")
    trainer = begun(model, module_of(leaky))
    with pytest.raises(GraphDataError, match="items would know who is asked about"):
        trainer.test(model, module_of(leaky), verbose=False)
