"""A tiny hierarchy whose groups are moved, for compiling: no estimation needs it."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from coco_opt.groups.buckets import Buckets
from coco_opt.groups.estimating.posterior.observations import Answers, Survey
from coco_opt.groups.estimating.posterior.sampler import SamplerOptions, sample_posterior
from coco_opt.kernels.arrays import read_only
from coco_opt.privacy import Geometric


def move_groups() -> None:
    """Draw a few tables, which compiles the kernels of moves and records in the order of an estimation's calls."""
    answers = Answers(0, Buckets.cells(2), np.array([1, 3]), Geometric(Fraction(1)))
    # Parents and groups cannot be written in a measurement either; kernels are compiled for either kind of array.
    survey = Survey(read_only(np.array([-1, 0, 0])), read_only(np.array([4, 2, 2])), 2, [answers])
    brief = SamplerOptions(chains=1, burn_in=1, most_burn_in=1, draws=4, least_rounds=1, most_rounds=1)
    posterior = sample_posterior(survey, 1, options=brief, sizes=True)
    for counted in (posterior.cumulative, posterior.summaries):
        if counted is not None:
            counted.quantile(1, 2)
