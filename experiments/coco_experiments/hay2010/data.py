"""The lists of counts: the user's own copies of the originals, simulated ones, and degree sequences of graphs.

Originals are read from ``hay2010/`` in the data folder: ``net_trace.txt`` (connections of each external address, in
address order), ``social_network.txt`` (degrees), ``search_logs.txt`` (searches in each time slot) and
``search_keywords.txt`` (searches of each keyword), plain text, one integer a line. Degree sequences are from SNAP
(Leskovec and Krevl).

Simulated data stand in for originals, which may not be redistributed: same totals, other data. They have the published
number of values, of nonzero values, the sum, the maximum and, where known, the number of distinct values, all exactly.
Everything else (which values repeat, where counts lie in the domain) follows from the simple rules below and a fixed
seed; nothing was adjusted to an experiment's outcome.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from coco_experiments.data import find_data_file
from coco_opt.array_types import Ints
from coco_opt.errors import InputError, Place, ProblemError

Placement = Literal["clustered", "rising", "none"]

SEED = 2010


@dataclass(frozen=True, slots=True)
class Totals:
    """Published totals of a list of counts; ``distinct`` counts the value 0 too where it occurs, None if unknown."""

    values: int
    nonzero: int
    total: int
    largest: int
    distinct: int | None = None

    @classmethod
    def of(cls, counts: Ints) -> Totals:
        """Return the totals of counts (n,)."""
        return cls(
            counts.size,
            int(np.count_nonzero(counts)),
            int(counts.sum()),
            int(counts.max(initial=0)),
            int(np.unique(counts).size),
        )

    def agrees(self, other: Totals) -> bool:
        """Return whether all totals that both know are equal."""
        same_distinct = self.distinct is None or other.distinct is None or self.distinct == other.distinct
        return same_distinct and (self.values, self.nonzero, self.total, self.largest) == (
            other.values,
            other.nonzero,
            other.total,
            other.largest,
        )


NET_TRACE = Totals(65_536, 2_218, 25_714, 1_423, 107)
SOCIAL_NETWORK = Totals(11_342, 11_342, 674_708, 1_678, 304)
SEARCH_LOGS = Totals(32_768, 15_686, 335_889, 496)


def counts_with(totals: Totals, rng: np.random.Generator) -> Ints:
    """Return counts (values,), sorted, with exactly these totals.

    The distinct values are 1, 2, 3, ... as long as a geometric progression to the maximum grows by less than 1, and
    that progression from there (all of 1 to the maximum where their number is unknown). Each occurs at least once; the
    other counts are drawn with probabilities value^-a, where a gives the right mean, and then moved by single units
    until the sum is exact. Raises ProblemError for totals that this rule cannot meet.
    """
    support = _support(totals)
    free = totals.nonzero - support.size
    missing = totals.total - int(support.sum())
    if free < 0 or not free * support[0] <= missing <= free * support[-1]:
        raise ProblemError("no list of counts of this shape has these totals: check the number of distinct values")
    shares = _power_law(support, missing / free if free else 1.0)
    times = rng.multinomial(free, shares).astype(np.int64)
    _correct(support, times, missing - int(times @ support), rng)
    zeros = np.zeros(totals.values - totals.nonzero, np.int64)
    return np.concatenate([zeros, np.repeat(support, times + 1)])


def _support(totals: Totals) -> Ints:
    zero = int(totals.nonzero < totals.values)
    distinct = totals.largest if totals.distinct is None else totals.distinct - zero
    steps = np.arange(1, distinct + 1)
    progression = np.rint(totals.largest ** (steps / distinct)).astype(np.int64)
    support: Ints = steps + np.maximum.accumulate(np.maximum(progression - steps, 0))
    if support[-1] != totals.largest:
        raise ProblemError("more distinct values than the maximum has room for")
    return support


def _power_law(support: Ints, mean: float) -> NDArray[np.float64]:
    """Return probabilities proportional to support^-a with this mean, by bisection on a."""
    low, high = -50.0, 50.0
    logs = np.log(support)
    for _ in range(100):
        middle = (low + high) / 2
        weights = np.exp(-middle * logs + (middle * logs).min())
        if (weights @ support) / weights.sum() > mean:
            low = middle
        else:
            high = middle
    shares: NDArray[np.float64] = weights / weights.sum()
    return shares


def _correct(support: Ints, times: Ints, missing: int, rng: np.random.Generator) -> None:
    """Move drawn counts to a neighbouring value, in place, until ``missing`` units are made up for."""
    gaps = np.diff(support)
    while missing:
        fits = gaps <= abs(missing)
        movable = times[:-1] > 0 if missing > 0 else times[1:] > 0
        places = np.flatnonzero(fits & movable)
        if places.size == 0:
            raise ProblemError("the sum cannot be met with these distinct values")
        i = int(rng.choice(places))
        up = 1 if missing > 0 else -1
        times[i] -= up
        times[i + 1] += up
        missing -= up * int(gaps[i])


def place(counts: Ints, placement: Placement, rng: np.random.Generator) -> Ints:
    """Return the counts (a power of 2 of them) spread over an ordered domain.

    "clustered", for addresses: a cascade gives 0.9 of every interval's weight to one half, chosen by a coin, and
    places are drawn by weight. "rising", for time: the weight grows from the first to the last place as the square of
    the place, and larger counts tend to come later. "none" returns them sorted.
    """
    if placement == "none":
        return counts
    weight = _cascade(counts.size, rng) if placement == "clustered" else np.linspace(0.0, 1.0, counts.size + 1)[1:] ** 2
    placed = np.zeros_like(counts)
    filled = counts[counts > 0]
    # The smallest of exponential times with these rates: sampling by weight without replacement.
    times = rng.standard_exponential(counts.size) / weight
    places = np.sort(np.argsort(times, kind="stable")[: filled.size])
    if placement == "clustered":
        placed[places] = rng.permutation(filled)
    else:
        rank = np.argsort(np.arange(filled.size) + rng.normal(0.0, 0.2 * filled.size, filled.size), kind="stable")
        placed[places[rank]] = filled
    return placed


def _cascade(size: int, rng: np.random.Generator) -> NDArray[np.float64]:
    if size & (size - 1):
        raise ProblemError("clustered placement needs a domain that is a power of 2")
    weight = np.ones(1)
    while weight.size < size:
        left = np.where(rng.random(weight.size) < 0.5, 0.9, 0.1)
        weight = np.stack([weight * left, weight * (1 - left)], axis=1).ravel()
    return weight


ORIGINAL, SIMULATED_DATA, SNAP, MADE = "original", "simulated", "SNAP", "made"
_COUNT = re.compile(rb"[0-9]{1,18}")

DEGREES = {
    "ca-HepTh": "snap_degrees/ca-HepTh_degrees.txt",
    "email-Enron": "snap_degrees/email-enron_degrees.txt",
    "as-oregon1": "snap_degrees/as-oregon1_degrees.txt",
}


@dataclass(frozen=True, eq=False, slots=True)
class Counts:
    """A list of true counts, int64 (n,), in the order of its domain; ``origin`` says what kind of data it is."""

    name: str
    origin: str
    values: Ints

    @property
    def label(self) -> str:
        """Return the name with the origin, as tables and figures show it."""
        return self.name if self.origin in (SNAP, MADE) else f"{self.name} ({self.origin})"

    @property
    def ranks(self) -> Ints:
        """Return the counts in rank order, smallest first: the unattributed histogram."""
        return np.sort(self.values)


@dataclass(frozen=True, slots=True)
class _Source:
    name: str
    file: str
    totals: Totals
    placement: Placement


NET_TRACE_SOURCE = _Source("NetTrace", "hay2010/net_trace.txt", NET_TRACE, "clustered")
SOCIAL_NETWORK_SOURCE = _Source("Social Network", "hay2010/social_network.txt", SOCIAL_NETWORK, "none")
SEARCH_LOGS_SOURCE = _Source("Search Logs", "hay2010/search_logs.txt", SEARCH_LOGS, "rising")
KEYWORDS_FILE = "hay2010/search_keywords.txt"


def read_counts(path: Path) -> Ints:
    """Return the counts of a text file, int64 (n,): one nonnegative integer a line, blank lines only at the end.

    Raises InputError with the line, never its content.
    """
    lines = path.read_bytes().rstrip().splitlines()
    if not lines:
        raise InputError("empty-file", "there are no counts: write one integer a line", Place(path.name))
    for number, line in enumerate(lines, 1):
        if not _COUNT.fullmatch(line.strip()):
            raise InputError(
                "not-a-count", "expected one nonnegative integer of at most 18 digits", Place(path.name, number)
            )
    return np.array([int(line) for line in lines], dtype=np.int64)


def simulated_data(source: _Source) -> Counts:
    """Return the simulated version of a data set; the same every time."""
    rng = np.random.default_rng([SEED, len(source.name)])
    return Counts(source.name, SIMULATED_DATA, place(counts_with(source.totals, rng), source.placement, rng))


def original_or_simulated(source: _Source, folder: Path | None = None) -> Counts:
    """Return the user's own copy of a data set where there is one, else its simulated version."""
    path = find_data_file(source.file, folder)
    return simulated_data(source) if path is None else Counts(source.name, ORIGINAL, read_counts(path))


def unattributed(folder: Path | None = None) -> list[Counts]:
    """Return what figure 5 needs: three data sets of the paper, then three degree sequences that are present.

    For Search Logs the paper takes searches by keyword, of which no totals are known: the user's own file if there is
    one, else the counts of the time slots.
    """
    keywords = find_data_file(KEYWORDS_FILE, folder)
    logs = (
        original_or_simulated(SEARCH_LOGS_SOURCE, folder)
        if keywords is None
        else Counts("Search Logs keywords", ORIGINAL, read_counts(keywords))
    )
    first = [original_or_simulated(source, folder) for source in (NET_TRACE_SOURCE, SOCIAL_NETWORK_SOURCE)]
    return [*first, logs, *degree_sequences(folder)]


def degree_sequences(folder: Path | None = None) -> list[Counts]:
    """Return the SNAP degree sequences that are in the data folder."""
    paths = {name: find_data_file(file, folder) for name, file in DEGREES.items()}
    return [Counts(name, SNAP, read_counts(path)) for name, path in paths.items() if path is not None]


def universal(folder: Path | None = None) -> list[Counts]:
    """Return what figure 6 needs: NetTrace by address and Search Logs by time slot."""
    return [original_or_simulated(source, folder) for source in (NET_TRACE_SOURCE, SEARCH_LOGS_SOURCE)]


def generated(size: int) -> Counts:
    """Return small simulated counts over a domain of ``size`` (a power of 2, at least 256) for quick runs."""
    rng = np.random.default_rng([SEED, size])
    totals = Totals(size, size // 8, size, size // 4, 12)
    return Counts("simulated data", MADE, place(counts_with(totals, rng), "clustered", rng))
