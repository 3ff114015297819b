"""What no query counts: values swapped in a leaf, and the prior that such counts follow."""

from __future__ import annotations

import numpy as np
import pytest

from coco_opt.histograms import Hierarchy
from coco_opt.kernels import posterior_table_shares
from coco_opt.topdown.schema import Schema
from tests.posterior.tiny_tables import all_leaves, chain_of, distance, log_likelihood, log_table, log_totals, model_of
from tests.topdown.estimation import measured

ONE_LEAF = Hierarchy.from_paths([("land", "north")])
SCHEMA = Schema({"sex": ["female", "male"], "age": ["child", "adult"]})
TRUE = np.array([[2, 0, 0, 1]])
SHARE = np.array([0.4, 0.3, 0.2, 0.1])


def test_values_are_swapped_as_often_as_tables_are_probable() -> None:
    model = model_of(measured(2, ONE_LEAF, SCHEMA, TRUE, ["sex", "age"], 3))
    chain = chain_of(model, TRUE, 5)
    chain.prior.share[1:, :-1] = SHARE
    chain.prior.strength[:] = 2.0
    posterior_table_shares.set_draw(chain.prior, 0.2)
    every = all_leaves(1, 4, 4)
    logs = [log_likelihood(model, t) + log_totals(chain, t) + log_table(t[0], SHARE, 2.0) for t in every]
    assert distance(chain, every, logs, 20_000, chain.sweep) < 0.08
    assert chain.state.tried[4, 1] > 1000


@pytest.mark.parametrize(
    ("queries", "free"), [(["sex", "age"], True), (["sex * age"], False), (["sex", "sex * age"], False)]
)
def test_values_are_swapped_only_where_no_answer_changes(queries: list[str], free: bool) -> None:
    start = np.array([[20, 10, 10, 20]])
    model = model_of(measured(2, ONE_LEAF, SCHEMA, start, queries, 3))
    chain = chain_of(model, start, 5)
    chain.advance(200)
    assert (chain.state.tried[4, 1] > 0) == free
    again = model.answers(tuple(chain.leaves() for _ in range(2)))[1]
    assert (chain.state.value == again).all()


def test_chains_agree_on_what_no_query_counts() -> None:
    """Two chains that begin at opposite tables of the same sums forget where they began."""
    model = model_of(measured(2, ONE_LEAF, SCHEMA, np.array([[100, 100, 100, 100]]), ["sex", "age"], 1))
    means = []
    for start in ([[190, 10, 10, 190]], [[10, 190, 190, 10]]):
        chain = chain_of(model, np.array(start), 5)
        counts = []
        for _ in range(400):
            chain.advance(8)
            counts.append(chain.leaves().dense()[0, 0])
        means.append(np.mean(counts[100:]))
    assert abs(means[0] - means[1]) < 40.0
