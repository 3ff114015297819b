"""The noisy answer of one region, sealed: integers from the private counts to the noise and after it.

Everything in a Measurement but its noisy ``values`` (and the ``lengths`` of blocks pooled from them) is
public, and nothing else leaves this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Literal, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from coco_opt.errors import InputError, ProblemError
from coco_opt.histograms.counts import CountOfCounts
from coco_opt.privacy.budget import QUERIES, Neighbours, Query
from coco_opt.privacy.ledger_chain import Unit
from coco_opt.privacy.mechanism import (
    Mechanism,
    check_mechanism,
    check_parameter,
    check_source,
    noise_parameter,
    open_stream,
    spread,
    unit_of,
)
from coco_opt.privacy.noise import MAX_VALUE, NoiseSource, NoiseStream

Int64 = NDArray[np.int64]
Loss = Literal["l1", "l2"]
LOSSES: tuple[Loss, ...] = get_args(Loss)
T = TypeVar("T")

RAW_LIMIT = 2_000_000  # groups; above it, rank noise with squared loss is pooled while it is drawn
_CHUNK = 1 << 20  # groups expanded at a time

_NOISE_SCALES = 64  # noise beyond this many scales has probability below 1e-27


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Measurement:
    """Hold one region's noisy answer to one query; its arrays are read-only.

    ``query`` and int64 ``values``: "naive" H[0..K] (groups), "cumulative" Hc[0..K-1] (groups), "rank"
    Hg[1..G] (entities) or, where ``lengths`` (groups) is not None, the sums (entities) of the blocks its
    isotonic fit with squared loss pools, whose fitted values are values / lengths.
    ``groups`` G and ``max_size`` K are public. ``parameter`` is the noise's scale (geometric) or variance (discrete
    Gaussian), ``amount`` what it cost in epsilon or rho.
    Raises ProblemError where the arrays do not fit the query. Kuo et al. 2018, section 4.
    """

    query: Query
    region: str
    groups: int
    max_size: int
    parameter: Fraction
    amount: Fraction
    neighbours: Neighbours
    noise: str
    private: bool
    values: Int64
    lengths: Int64 | None = None
    mechanism: Mechanism = "geometric"

    def __post_init__(self) -> None:
        if self.query not in QUERIES:
            raise ProblemError(f"unknown query {self.query!r}: use one of {', '.join(QUERIES)}")
        check_mechanism(self.mechanism)
        _seal(self.values)
        if self.lengths is not None:
            _seal(self.lengths)
        self._check_shapes()

    def _check_shapes(self) -> None:
        if self.lengths is None:
            cells = {"naive": self.max_size + 1, "cumulative": self.max_size, "rank": self.groups}
            fits = len(self.values) == cells[self.query]
        else:
            fits = self.query == "rank" and len(self.lengths) == len(self.values)
            fits = fits and int(self.lengths.sum()) == self.groups and bool(np.all(self.lengths > 0))
        if not fits:
            raise ProblemError(f"region {self.region!r}: the arrays do not have the shape of a {self.query} answer")

    @property
    def pooled(self) -> bool:
        """Tell whether ``values`` are sums of pooled blocks instead of one noisy value a cell."""
        return self.lengths is not None

    @property
    def unit(self) -> Unit:
        """Return what the measurement was charged in."""
        return unit_of(self.mechanism)

    @property
    def epsilon(self) -> Fraction:
        """Return the pure epsilon it cost; raise ProblemError where it was charged in rho."""
        self._check_geometric("a pure epsilon")
        return self.amount

    @property
    def scale(self) -> Fraction:
        """Return the scale of geometric noise; raise ProblemError for another law."""
        self._check_geometric("a scale")
        return self.parameter

    @property
    def variance(self) -> Fraction:
        """Return the noise variance of a cell that estimates build on: 2 scale^2 (the paper's) or sigma^2."""
        return 2 * self.parameter**2 if self.mechanism == "geometric" else self.parameter

    def _check_geometric(self, what: str) -> None:
        if self.mechanism != "geometric":
            raise ProblemError(f"region {self.region!r}: {self.mechanism} noise has a rho and a variance, not {what}")

    def __reduce__(self) -> tuple[Callable[..., Measurement], tuple[object, ...]]:
        # Unpickled arrays are writable: going through the constructor makes them read-only again.
        return Measurement, tuple(getattr(self, field.name) for field in fields(self))

    def __repr__(self) -> str:
        privacy = "private" if self.private else "NOT PRIVATE"
        what = "scale" if self.mechanism == "geometric" else "variance"
        return (
            f"Measurement({self.query} of {self.region!r}, {self.groups:,} groups, "
            f"max_size={self.max_size:,}, {self.unit}={self.amount}, {self.neighbours}, "
            f"{self.noise} noise of {what} {self.parameter}: {privacy})"
        )


def _seal(array: Int64) -> None:
    if array.dtype != np.int64 or array.ndim != 1:
        raise ProblemError("a measurement holds one-dimensional int64 arrays")
    array.setflags(write=False)


def measure(
    histogram: CountOfCounts,
    query: Query,
    *,
    region: str,
    groups: int,
    max_size: int,
    epsilon: Fraction | None = None,
    rho: Fraction | None = None,
    neighbours: Neighbours,
    source: NoiseSource,
    loss: Loss,
    raw_limit: int = RAW_LIMIT,
) -> Measurement:
    """Return the sealed noisy answer of one region, after clamping its sizes to ``max_size``.

    One of ``epsilon`` (pure: geometric noise) and ``rho`` (zCDP: discrete Gaussian noise) is given. Rank answers of
    more than ``raw_limit`` groups with loss "l2" are pooled while the noise is drawn, so that memory does not grow
    with the groups. Raises ProblemError for parameters that are not valid or noise that was already drawn,
    InputError when the histogram does not hold the public number of groups.
    """
    mechanism, amount = charged(epsilon, rho)
    parameter = noise_parameter(mechanism, query, neighbours, amount)
    check_public(query, loss, groups=groups, max_size=max_size, parameter=parameter, mechanism=mechanism)
    check_source(source, mechanism)
    check_groups(histogram, region, groups)
    clamped = histogram.clamp(max_size)
    stream = open_stream(source, mechanism, parameter, measurement=query, region=region)
    lengths: Int64 | None = None
    if query == "naive":
        values = stream.add_to(clamped.to_dense(max_size))
    elif query == "cumulative":
        values = stream.add_to(clamped.cumulative(max_size)[:-1])
    elif loss == "l2" and groups > raw_limit:
        from coco_opt.privacy.pooled_ranks import pooled_ranks

        values, lengths = pooled_ranks(rank_chunks(clamped), stream)
    else:
        values = _raw_ranks(clamped, stream)
    facts = (query, region, groups, max_size, parameter, amount, neighbours, source.name, source.private)
    return Measurement(*facts, values, lengths, mechanism)


def charged(epsilon: T | None, rho: T | None) -> tuple[Mechanism, T]:
    """Return the mechanism and what it is charged; raise ProblemError unless one of the two is given."""
    if epsilon is not None and rho is None:
        return "geometric", epsilon
    if rho is not None and epsilon is None:
        return "discrete_gaussian", rho
    raise ProblemError("give either epsilon (geometric noise) or rho (discrete Gaussian noise)")


def check_public(
    query: Query,
    loss: Loss,
    *,
    groups: int,
    max_size: int,
    parameter: Fraction,
    mechanism: Mechanism = "geometric",
) -> None:
    """Raise ProblemError unless public parameters alone keep every noisy value and block sum in int64."""
    check_parameter(mechanism, parameter)
    if loss not in LOSSES:
        raise ProblemError(f"unknown loss {loss!r}: use one of {', '.join(LOSSES)}")
    if max_size < 1:
        raise ProblemError("max_size, the public bound on group sizes, must be at least 1")
    if groups < 0:
        raise ProblemError("the public number of groups must not be negative")
    widest = _NOISE_SCALES * spread(mechanism, parameter)
    largest = groups * (max_size + widest) if query == "rank" else Fraction(groups)
    if largest > MAX_VALUE:
        raise ProblemError(
            f"a {query} answer about {groups:,} groups of sizes up to {max_size:,} may not fit in 64 bits: "
            f"lower max_size or raise {unit_of(mechanism)}"
        )


def check_groups(histogram: CountOfCounts, region: str, groups: int) -> None:
    """Raise InputError unless the private histogram holds exactly the public number of groups."""
    if histogram.groups != groups:
        raise InputError(
            "group-count-mismatch",
            f"region {region!r}: the histogram does not hold the public number of groups, {groups:,}",
        )


def rank_chunks(histogram: CountOfCounts, chunk: int | None = None) -> Iterator[Int64]:
    """Yield Hg in order, int64 of at most ``chunk`` (2**20 unless given) groups at a time."""
    chunk = chunk or _CHUNK
    sizes, stops = histogram.rank_runs()
    starts = stops - histogram.counts
    groups = histogram.groups
    for begin in range(0, groups, chunk):
        end = min(begin + chunk, groups)
        first = int(np.searchsorted(stops, begin, side="right"))
        last = int(np.searchsorted(starts, end, side="left"))
        inside = np.minimum(stops[first:last], end) - np.maximum(starts[first:last], begin)
        yield np.repeat(sizes[first:last], inside)


def _raw_ranks(histogram: CountOfCounts, stream: NoiseStream) -> Int64:
    noisy = np.empty(histogram.groups, dtype=np.int64)
    filled = 0
    for ranks in rank_chunks(histogram):
        noisy[filled : filled + len(ranks)] = stream.add_to(ranks)
        filled += len(ranks)
    return noisy
