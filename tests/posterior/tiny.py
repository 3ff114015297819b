"""Tiny hierarchies whose posterior is found by enumeration."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np

from coco_opt.array_types import Floats, Ints
from coco_opt.groups.buckets import Buckets
from coco_opt.groups.estimating.posterior.chains import Learned
from coco_opt.groups.estimating.posterior.observations import Answers, Survey


def histograms(groups: int, sizes: int) -> Iterator[tuple[int, ...]]:
    """Yield every histogram of so many groups over sizes 0 .. sizes - 1."""
    if sizes == 1:
        yield (groups,)
        return
    for first in range(groups + 1):
        for rest in histograms(groups - first, sizes - 1):
            yield (first, *rest)


def states(survey: Survey) -> list[Ints]:
    """Return every table of the leaves' histograms (leaves, K + 1)."""
    each = [list(histograms(int(survey.groups[leaf]), survey.max_size + 1)) for leaf in survey.leaves]
    return [np.array(state) for state in itertools.product(*each)]


def table_of(survey: Survey, state: Ints) -> Ints:
    """Return the cumulative counts of all regions (regions, K)."""
    table = np.zeros((survey.parent.size, survey.max_size), np.int64)
    table[survey.leaves] = np.cumsum(state, axis=1)[:, :-1]
    for region in range(survey.parent.size - 1, 0, -1):
        table[survey.parent[region]] += table[region]
    return table


def truth(one: Answers, row: Ints, groups: int) -> Ints:
    """Return what the question asks, from first principles."""
    if isinstance(one.query, Buckets):
        pairs = zip(one.query.begin, one.query.end, strict=True)
        return np.array([row[begin:end].sum() for begin, end in pairs])
    sizes = [(row < rank).sum() for rank in range(1, groups + 1)]
    return np.maximum(np.array(sizes), one.query.floor)


def log_likelihood(survey: Survey, table: Ints) -> float:
    """Return the log-likelihood of all answers up to a constant."""
    found = 0.0
    for one in survey.answers:
        away = np.abs(truth(one, table[one.region], int(survey.groups[one.region])) - one.values)
        found += float(one.distribution.log_weight(away).sum())
    return found


def log_prior(prior: Learned, state: Ints) -> float:
    """Return the log prior of the leaves' histograms up to a constant."""
    found = 0.0
    for leaf, size in np.ndindex(state.shape):
        count = int(state[leaf, size])
        found += count * math.log(prior.probabilities[leaf, size]) - math.lgamma(count + 1)
    return found


def posterior(survey: Survey, prior: Learned) -> tuple[list[Ints], Floats]:
    """Return all states and their chances."""
    found = states(survey)
    logs = np.array([log_likelihood(survey, table_of(survey, state)) + log_prior(prior, state) for state in found])
    probabilities = np.exp(logs - logs.max())
    return found, probabilities / probabilities.sum()


def some_prior(leaves: int, max_size: int, *, seed: int = 5) -> Learned:
    """Return a prior of no regularity."""
    return Learned(np.random.default_rng(seed).dirichlet(np.full(max_size + 1, 2.0), leaves))


def marginals(weight: Floats, probabilities: Floats) -> Floats:
    """Return P(x_i = n) (cells, groups + 1) of one row of cumulative counts under a multinomial prior, by matrices.

    ``weight`` is the likelihood of every state. Given their sum, multinomial counts are independent Poisson numbers.
    """
    cells, states = weight.shape
    rise = np.arange(states) - np.arange(states)[:, None]
    factorial = np.array([float(math.factorial(max(n, 0))) for n in rise.ravel().tolist()]).reshape(rise.shape)
    steps = [np.where(rise >= 0, ((states - 1) * pi) ** np.maximum(rise, 0.0) / factorial, 0.0) for pi in probabilities]
    ahead, behind = [steps[0][0] * weight[0]], [steps[cells][:, -1]]
    for i in range(1, cells):
        ahead.append(ahead[-1] @ steps[i] * weight[i])
        behind.insert(0, steps[cells - i] @ (weight[cells - i] * behind[0]))
    both = np.array(ahead) * np.array(behind)
    return np.asarray(both / both.sum(axis=1, keepdims=True))
