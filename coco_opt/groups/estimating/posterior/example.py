"""A tiny hierarchy whose groups are moved, for compiling: no estimation needs it."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from coco_opt.groups.buckets import Buckets
from coco_opt.groups.estimating.posterior.chains import MoveChain, SizeLearner
from coco_opt.groups.estimating.posterior.observations import Answers, Survey, compiled_queries
from coco_opt.groups.estimating.posterior.prior import PriorOptions
from coco_opt.groups.estimating.posterior.recording import Range, Tally, together, views_of
from coco_opt.groups.estimating.posterior.sampler import SamplerOptions, sample_posterior
from coco_opt.kernels.arrays import read_only
from coco_opt.privacy import Geometric


def move_groups() -> None:
    """Draw a few tables, which compiles the kernels of moves and records, those that take longest first."""
    chain = _chain()
    chain.use(SizeLearner(_survey(), np.ones(3), np.zeros(3, np.bool_), PriorOptions()).learn(np.ones((2, 3))))
    chain.advance(1)
    brief = SamplerOptions(chains=1, burn_in=1, most_burn_in=1, draws=4, least_rounds=1, most_rounds=1)
    posterior = sample_posterior(_survey(), 1, options=brief, sizes=True)
    for counted in (posterior.cumulative, posterior.summaries):
        if counted is not None:
            counted.quantile(1, 2)


def record_draws() -> None:
    """Record a table, which compiles the kernels of records."""
    survey, table = _survey(), np.empty((3, 2), np.int64)
    _chain().fill(table)
    for view in views_of(survey.groups, survey.max_size, sizes=True):
        values = Range(view)
        values.see(table, anew=True)
        tally = Tally(values.windows())
        tally.count(view.of(table))
        together([tally], 1).quantile(1, 2)


def _survey() -> Survey:
    answers = Answers(0, Buckets.cells(2), np.array([1, 3]), Geometric(Fraction(1)))
    # Parents and groups cannot be written in a measurement either; kernels are compiled for either kind of array.
    return Survey(read_only(np.array([-1, 0, 0])), read_only(np.array([4, 2, 2])), 2, [answers])


def _chain() -> MoveChain:
    return MoveChain(_survey(), compiled_queries(_survey()), np.array([[1, 1, 0], [0, 1, 1]]), np.uint64(1))
