"""The lists of counts: the user's own copies of the originals, simulated ones, and degree sequences of graphs.

Originals are read from ``hay2010/`` in the data folder: ``net_trace.txt`` (connections of each external address, in
address order), ``social_network.txt`` (degrees), ``search_logs.txt`` (searches in each time slot) and
``search_keywords.txt`` (searches of each keyword), plain text, one integer a line. Degree sequences are from SNAP
(Leskovec and Krevl).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from coco_experiments.data import find_data_file
from coco_experiments.hay2010.simulated_data import (
    NET_TRACE,
    SEARCH_LOGS,
    SEED,
    SOCIAL_NETWORK,
    Placement,
    Totals,
    counts_with,
    place,
)
from coco_opt.array_types import Ints
from coco_opt.errors import InputError, Place

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
