"""A tiny hierarchy whose groups are moved, for compiling: no estimation needs it."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from coco_opt.groups.buckets import Buckets
from coco_opt.groups.estimating.posterior.chains import MoveChain, SizeLearner
from coco_opt.groups.estimating.posterior.observations import Answers, Survey, compiled_queries
from coco_opt.groups.estimating.posterior.prior import PriorOptions
from coco_opt.privacy import Geometric


def move_groups() -> None:
    """Take one sweep, which compiles the kernels of an estimation's moves, for arrays of the same types."""
    answers = Answers(0, Buckets.cells(2), np.array([1, 3]), Geometric(Fraction(1)))
    survey = Survey(np.array([-1, 0, 0]), np.array([4, 2, 2]), 2, [answers])
    histograms, shape = np.array([[1, 1, 0], [1, 0, 1]]), np.full(3, 1.0 / 3.0)
    learner = SizeLearner(survey, shape, np.zeros(3, np.bool_), PriorOptions())
    chain = MoveChain(survey, compiled_queries(survey), histograms, np.uint64(1))
    chain.use(learner.learn(histograms.astype(np.float64)))
    chain.advance(1)
