"""How a count splits between two halves of an interval: a mixture from spikes to smooth data, its weights learned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from coco_opt.array_types import Floats, Ints
from coco_opt.ranges.estimating.posterior.layout import Layout

if TYPE_CHECKING:
    from coco_opt.kernels.posterior_splits import Components, Splits


CONCENTRATIONS = (0.25, 1.5, 8.0, 40.0, 200.0, 2_000.0, np.inf)
"""Of the beta-binomial components, after the first component, which puts all in one child.

They are far apart: chains change slowly between components that explain the same counts.
"""

_CLASSES = (0, 4, 16, 64, 256, 1_024, 4_096)  # least counts of the classes that have weights of their own
_STRENGTH = 40.0  # of a class's weights around its width's, and of those around the weights of all
_GROWTH = 1.2  # of the distances of knots from the nearest end, or from one half
_UNIT = 16.0  # of the prior of the weights of all, in splits altogether


def _knots(most: int) -> Floats:
    """Return knots from 0 to 1, dense at both ends, to a fraction of one in ``most``, and at one half."""
    ends = 0.5 * _GROWTH ** -np.arange(np.ceil(np.log(4.0 * most) / np.log(_GROWTH)))
    middle = 0.25 * _GROWTH ** -np.arange(np.ceil(0.5 * np.log(most + 1.0) / np.log(_GROWTH)) + 8)
    half = np.concatenate([[0.0], ends, 0.5 - middle])
    return np.unique(np.concatenate([half, 1.0 - half]))


@dataclass(frozen=True, eq=False, slots=True)
class SplitComponents:
    """The components, which chains share: tables of small counts, and distribution functions of larger counts.

    ``small`` [shapes, components, count, left count], ``cumulative`` [shapes, components, buckets, knots], ``classes``
    the class of each small count, then of each bucket.
    """

    layout: Layout
    small: Floats
    knots: Floats
    cumulative: Floats
    classes: Ints

    @classmethod
    def of(cls, layout: Layout, most: int) -> SplitComponents:
        """Return the components for counts up to ``most``."""
        from coco_opt.kernels.posterior_splits import RATIO, SMALL

        buckets = max(int(np.log(max(most, SMALL + 1) / SMALL) / np.log(RATIO)) + 2, 1)
        middles = np.asarray(SMALL * RATIO ** (np.arange(buckets) + 0.5), np.float64)
        sizes = np.concatenate([np.arange(SMALL), middles])
        classes = np.searchsorted(_CLASSES, sizes, side="right") - 1
        knots = _knots(most)
        small = np.stack([_small(share, SMALL) for share in layout.shapes])
        cumulative = np.stack([_cumulative(share, middles, knots) for share in layout.shapes])
        return cls(layout, small, knots, cumulative, classes.astype(np.int64))


class SplitPrior:
    """The mixture of a chain: components that do not change, and weights [widths, classes, components] that do."""

    def __init__(self, components: SplitComponents) -> None:
        """Begin with equal weights."""
        number = len(CONCENTRATIONS) + 1
        self.fixed = components
        self.overall = np.full(number, 1.0 / number)
        self.by_width = np.tile(self.overall, (int(components.layout.width.max()) + 1, 1))
        self.weight = np.tile(self.by_width[:, None, :], (1, len(_CLASSES), 1))

    def splits(self) -> Splits:
        """Return the mixture by the present weights."""
        from coco_opt.kernels.posterior_splits import SMALL, Splits

        fixed = self.fixed
        widths, shapes = fixed.layout.kinds.T
        weights = self.weight[widths][:, fixed.classes]
        small, cumulative = (
            np.stack([np.einsum("nk,kna->na", own, parts[shape]) for own, shape in zip(each, shapes, strict=True)])
            for each, parts in ((weights[:, :SMALL], fixed.small), (weights[:, SMALL:], fixed.cumulative))
        )
        return Splits(small, fixed.knots, cumulative, np.ascontiguousarray(weights[:, SMALL:, 0]))

    def components(self) -> Components:
        """Return the components and the present weights."""
        from coco_opt.kernels.posterior_splits import Components

        fixed = self.fixed
        layout = fixed.layout
        return Components(fixed.small, fixed.cumulative, layout.shape, layout.width, self.weight, fixed.classes)

    def draw_weights(self, labels: Ints, rng: np.random.Generator) -> None:
        """Draw the weights given how many splits [widths, classes, components] each component made.

        They are Dirichlet around the weights of the width, and these around the weights of all: a Chinese restaurant
        franchise (Teh, Jordan, Beal and Blei 2006).
        """
        sent = _tables(labels, _STRENGTH * self.by_width[:, None, :], rng).sum(axis=1)
        passed = _tables(sent, _STRENGTH * self.overall[None, :], rng).sum(axis=0)
        self.overall = _dirichlet(_UNIT / passed.size + passed, rng)
        self.by_width = _dirichlet(_STRENGTH * self.overall + sent, rng)
        self.weight = _dirichlet(_STRENGTH * self.by_width[:, None, :] + labels, rng)


def _dirichlet(parameters: Floats, rng: np.random.Generator) -> Floats:
    draws = np.maximum(rng.standard_gamma(parameters), 1e-12)
    return np.asarray(draws / draws.sum(axis=-1, keepdims=True))


def _tables(customers: Ints, strength: Floats, rng: np.random.Generator) -> Ints:
    """Draw the number of tables of so many customers each (Antoniak 1974)."""
    opened = np.zeros(customers.shape, np.int64)
    strength = np.broadcast_to(strength, customers.shape)
    for place in zip(*np.nonzero(customers), strict=True):
        seated = np.arange(int(customers[place]))
        opened[place] = np.count_nonzero(rng.random(seated.size) * (strength[place] + seated) < strength[place])
    return np.maximum(opened, customers > 0)


def _small(share: float, size: int) -> Floats:
    """Return the components' probabilities [components, count, left count] of counts below ``size``."""
    from scipy.special import betaln, gammaln, xlog1py, xlogy

    count, a = np.arange(size)[:, None], np.arange(size)[None, :]
    rest = np.maximum(count - a, 0)
    choose = gammaln(count + 1) - gammaln(a + 1) - gammaln(rest + 1)
    within = a <= count
    alone = np.where(a == count, share, 0.0) + np.where(a == 0, 1.0 - share, 0.0)
    out = [np.where(within, alone, 0.0)]
    for concentration in CONCENTRATIONS:
        if np.isinf(concentration):
            log = choose + xlogy(a, share) + xlog1py(rest, -share)
        else:
            left, right = concentration * share, concentration * (1.0 - share)
            log = choose + betaln(a + left, rest + right) - betaln(left, right)
        out.append(np.where(within, np.exp(log), 0.0))
    return np.stack(out)


def _cumulative(share: float, counts: Floats, knots: Floats) -> Floats:
    """Return the distribution functions [components, buckets, knots] of the left share, of beta distributions.

    Their variances are those of beta-binomial counts. Knots are warped: one half stands for the expected ``share``. The
    first component has no share between 0 and 1.
    """
    from scipy.special import betainc

    unwarped = knots * share / (knots * share + (1.0 - knots) * (1.0 - share))
    out = [np.zeros((counts.size, knots.size))]
    for concentration in CONCENTRATIONS:
        matched = counts - 1.0
        if np.isfinite(concentration):
            matched = counts * (concentration + 1.0) / (concentration + counts) - 1.0
        matched = matched[:, None]
        out.append(np.asarray(betainc(matched * share, matched * (1.0 - share), unwarped[None, :]), np.float64))
    return np.stack(out)
