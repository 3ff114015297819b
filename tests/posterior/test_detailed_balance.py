"""Moves of groups are reversible: every path of each kind of proposal is followed, and the flows are compared.

Random numbers are replaced by choices: a comparison with one, or an integer drawn by it, branches with its
probabilities. So the transition probabilities of tiny hierarchies are exact, and detailed balance holds to rounding.
"""

from __future__ import annotations

import importlib.util
import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from coco_opt.groups.buckets import Buckets
from coco_opt.groups.estimating.posterior.chains import Learned, MoveChain, MoveOptions, MoveTables, Scattered
from coco_opt.groups.estimating.posterior.observations import Answers, Ranks, Survey, compiled_queries
from coco_opt.groups.estimating.posterior.prior import Hats, only_last
from coco_opt.kernels import compile as compiling
from coco_opt.kernels import posterior_moves
from coco_opt.privacy import Geometric
from tests.posterior import tiny

MAX_SIZE, GROUPS = 2, 2
NOISE = Geometric(Fraction(3))
SURVEY = Survey(
    np.array([-1, 0, 0]),
    np.array([2 * GROUPS, GROUPS, GROUPS]),
    MAX_SIZE,
    [
        Answers(0, Buckets.cells(MAX_SIZE), np.array([2, 3]), NOISE),
        Answers(1, Ranks(), np.array([0, 2]), NOISE),
        Answers(2, Buckets(np.array([0]), np.array([2])), np.array([3]), NOISE),
    ],
)
BASE = np.array([0.3, 0.5, 0.2])
WINDOWS = ((0, 3), (1, 3))
HATS = Hats.at([0, 2], only_last(MAX_SIZE + 1))
"""Size 1 is half of each hat; the last size has a hat of its own as well."""

State = tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
"""The histogram of each leaf, and how many of its groups are of the later hat of their size."""


class Choices:
    """One path through a program that makes random choices, and the paths that branch off from it."""

    def __init__(self, prefix: Sequence[int]) -> None:
        self.prefix, self.taken, self.probability = prefix, list[int](), 1.0
        self.others: list[list[int]] = []

    def of(self, probabilities: Sequence[float]) -> int:
        possible = [n for n, each in enumerate(probabilities) if each > 0.0]
        if len(self.taken) < len(self.prefix):
            chosen = self.prefix[len(self.taken)]
        else:
            chosen = possible[0]
            self.others += [[*self.taken, other] for other in possible[1:]]
        self.taken.append(chosen)
        self.probability *= probabilities[chosen]
        return chosen

    def happens(self, probability: float) -> bool:
        return self.of([1.0 - min(max(probability, 0.0), 1.0), min(max(probability, 0.0), 1.0)]) == 1


class Uniform:
    """A uniform number times ``scale``, plus ``added`` where it is a logarithm: known only as far as it is compared."""

    __array_ufunc__ = None

    def __init__(self, choices: Choices, scale: float = 1.0, *, log: bool = False, added: float = 0.0) -> None:
        self.choices, self.scale, self.log, self.added = choices, scale, log, added

    def __mul__(self, factor: float) -> Uniform:
        return Uniform(self.choices, self.scale * float(factor))

    def __sub__(self, less: float) -> Uniform:
        return Uniform(self.choices, log=True, added=self.added - float(less))

    def __lt__(self, other: float) -> bool:
        below = math.exp(min(float(other) - self.added, 0.0)) if self.log else float(other) / self.scale
        return self.choices.happens(below)

    def __ge__(self, other: float) -> bool:
        return not self < other

    def __gt__(self, other: float) -> bool:
        return not self < other


class Exponential:
    """The exponential of a uniform number times ``scale``, known only by its integer part."""

    def __init__(self, uniform: Uniform) -> None:
        self.uniform = uniform

    def __int__(self) -> int:
        scale = self.uniform.scale
        return 1 + self.uniform.choices.of([math.log1p(1.0 / k) / scale for k in range(1, round(math.exp(scale)))])


@pytest.fixture(scope="module")
def moves() -> ModuleType:
    """Return the moves as they are written, without compilation, with choices in the place of random numbers."""

    def same(function: Callable[..., Any]) -> Callable[..., Any]:
        return function

    spec = importlib.util.spec_from_file_location("moves_as_written", posterior_moves.__file__)
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiling, "compiled", same)
        patch.setattr(compiling, "compiled_in_place", same)
        spec.loader.exec_module(module)
    module.uniform = lambda words: Uniform(words[0])
    module.below = lambda words, n: words[0].of([1.0 / n] * int(n))
    module._window = lambda words, sizes, least: WINDOWS[words[0].of([0.5, 0.5])]
    functions = {name: getattr(math, name) for name in ("log1p", "lgamma")}
    module.math = SimpleNamespace(
        log=lambda x: Uniform(x.choices, log=True) if isinstance(x, Uniform) else math.log(x),
        exp=lambda x: Exponential(x) if isinstance(x, Uniform) else math.exp(x),
        **functions,
    )
    return module


def begun(prior: Learned) -> tuple[MoveChain, MoveTables]:
    """Return a chain and its tables, in which every kind of move is drawn."""
    start = np.zeros((2, MAX_SIZE + 1), np.int64)
    start[:, 0] = GROUPS
    chain = MoveChain(SURVEY, compiled_queries(SURVEY), start, np.uint64(1))
    options = MoveOptions(by_group=0.4, independent=0.5, several=0.5, within=0.5, traded=1.0, trades=1.0, shifts=1.0)
    tables = MoveTables(SURVEY, prior, options)
    tables.plan = tables.plan._replace(steps=np.array([1, 2]))
    chain.use(prior, tables)
    return chain, tables


def scattered() -> Learned:
    return Learned(np.tile(BASE, (2, 1)), Scattered(BASE, HATS, 1.5))


def leaf_states(tables: MoveTables) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return all histograms of a leaf with all counts of its groups by hat."""
    part = tables.prior.part.tolist()
    states = []
    for histogram in tiny.histograms(GROUPS, MAX_SIZE + 1):
        uppers = [range(count + 1) if 0.0 < share < 1.0 else (0,) for count, share in zip(histogram, part, strict=True)]
        states += [(histogram, upper) for upper in itertools.product(*uppers)]
    return states


def log_prior(chain: MoveChain, tables: MoveTables, leaf: int, state: tuple[tuple[int, ...], tuple[int, ...]]) -> float:
    """Return the log prior of one leaf up to a constant: multinomial, or Polya's urn of the groups by size and hat."""
    inner, prior = chain._state, tables.prior
    total, of_hat = 0.0, np.zeros(inner.mass.size)
    for size, (count, upper) in enumerate(zip(*state, strict=True)):
        if tables.basis.parent.size == 0:
            total += count * math.log(inner.factors[leaf, size]) - math.lgamma(count + 1)
            continue
        for hat, number in ((0, count - upper), (1, upper)):
            if number:
                place, share = prior.left[size] + hat, prior.part[size] if hat else 1.0 - prior.part[size]
                of_hat[place] += number
                total += number * math.log(inner.shape[size] * share / inner.mass[place]) - math.lgamma(number + 1)
    if tables.basis.parent.size:
        alpha = inner.alpha[leaf]
        total += sum(math.lgamma(a + n) - math.lgamma(a) for a, n in zip(alpha, of_hat, strict=True) if n)
    return total


def law(chain: MoveChain, tables: MoveTables) -> dict[State, float]:
    """Return the probabilities of all states."""
    logs: dict[State, float] = {}
    for state in itertools.product(leaf_states(tables), repeat=2):
        table = tiny.table_of(SURVEY, np.array([each[0] for each in state]))
        priors = sum(log_prior(chain, tables, leaf, each) for leaf, each in enumerate(state))
        logs[state] = tiny.log_likelihood(SURVEY, table) + priors
    weights = {state: math.exp(each - max(logs.values())) for state, each in logs.items()}
    return {state: each / sum(weights.values()) for state, each in weights.items()}


def set_to(chain: MoveChain, tables: MoveTables, state: State) -> Any:
    """Return the chain's state with other histograms and hats."""
    histograms = np.array([each[0] for each in state])
    fresh = MoveChain(SURVEY, chain._queries, histograms, np.uint64(1))._state
    inner = chain._state._replace(
        histograms=fresh.histograms.astype(np.int64),
        occupied=fresh.occupied.astype(np.int64),
        place=fresh.place.astype(np.int64),
        occupied_count=fresh.occupied_count,
        residual=fresh.residual,
        ranks=fresh.ranks,
        upper=np.array([each[1] for each in state]),
        of_hat=np.zeros_like(chain._state.of_hat),
    )
    if tables.basis.parent.size:
        for leaf, region in enumerate(tables.prior.region):
            np.add.at(inner.of_hat[region], tables.prior.left, inner.histograms[leaf] - inner.upper[leaf])
            np.add.at(inner.of_hat[region], tables.prior.left + 1, inner.upper[leaf])
    return inner


def paths(inner: Any, propose: Callable[..., object], tables: MoveTables) -> Iterator[tuple[State, float]]:
    """Yield where each path of a proposal of the first leaf leads from a state, and its probability."""
    fields = ("histograms", "occupied", "place", "occupied_count", "residual", "ranks", "upper", "of_hat")
    waiting: list[list[int]] = [[]]
    while waiting:
        choices = Choices(waiting.pop())
        copy = inner._replace(words=[choices], **{field: getattr(inner, field).copy() for field in fields})
        propose(copy, tables.prior, tables.plan, 0)
        waiting += choices.others
        rows = zip(copy.histograms.tolist(), copy.upper.tolist(), strict=True)
        yield tuple((tuple(histogram), tuple(upper)) for histogram, upper in rows), choices.probability


@pytest.mark.parametrize("kind", ["_try", "_try_exchange", "_try_trade", "_try_shift"])
@pytest.mark.parametrize("prior", ["multinomial", "scattered"])
def test_each_kind_of_proposal_is_in_detailed_balance(moves: ModuleType, kind: str, prior: str) -> None:
    chain, tables = begun(scattered() if prior == "scattered" else Learned(np.array([BASE, BASE[::-1]])))
    probabilities = law(chain, tables)
    propose = partial(getattr(moves, kind), chain._queries)
    flow: dict[tuple[State, State], float] = defaultdict(float)
    for state, weight in probabilities.items():
        total = 0.0
        for after, probability in paths(set_to(chain, tables, state), propose, tables):
            flow[state, after] += weight * probability
            total += probability
        assert total == pytest.approx(1.0)
    assert len(flow) > len(probabilities)
    for (state, after), amount in flow.items():
        assert amount == pytest.approx(flow.get((after, state), 0.0), rel=1e-9, abs=1e-15), (state, after)
