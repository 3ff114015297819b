"""Real data sets, where the user has them, which are never part of the package; and simulated ones, from a seed."""

from __future__ import annotations

import csv
import gzip
import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from coco_opt.errors import ConfigError
from coco_opt.groups.measuring.private import PrivateCounts
from coco_opt.histograms import Hierarchy


def group_sizes(groups: int, max_size: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return the sizes of ``groups`` groups, int64 in 1..max_size, unsorted: most small, one in ten log-uniform."""
    small = rng.geometric(0.4, groups)
    large = np.exp(rng.uniform(0.0, np.log(max_size), groups)).astype(np.int64)
    sizes = np.where(rng.random(groups) < 0.9, small, large)
    return np.clip(sizes, 1, max_size).astype(np.int64)


def counts_of_runs(
    hierarchy: Hierarchy, leaf: NDArray[np.int64], sizes: NDArray[np.int64], counts: NDArray[np.int64]
) -> PrivateCounts:
    """Return private counts from runs in any order: ``counts[k]`` groups of ``sizes[k]`` in leaf ``leaf[k]``.

    Leaves count from 0 within ``hierarchy.leaves``; runs of one leaf and size are added up, empty ones dropped.
    O(runs log runs).
    """
    order = np.lexsort((sizes, leaf))
    order = order[counts[order] > 0]
    leaf, sizes, counts = leaf[order], sizes[order], counts[order]
    new = np.ones(leaf.size, dtype=bool)
    new[1:] = (leaf[1:] != leaf[:-1]) | (sizes[1:] != sizes[:-1])
    first = np.flatnonzero(new)
    merged = np.add.reduceat(counts, first) if first.size else counts
    leaves = len(hierarchy.leaves)
    groups = np.zeros(leaves, np.int64)
    np.add.at(groups, leaf, counts)
    offsets = np.searchsorted(leaf[first], np.arange(leaves + 1)).astype(np.int64)
    rows = int(first.size)
    return PrivateCounts(hierarchy, hierarchy.aggregate(groups), offsets, sizes[first], merged, rows, rows)


def generated_counts(parents: int, leaves: int, groups: int, max_size: int, rng: np.random.Generator) -> PrivateCounts:
    """Return three levels: a root, ``parents`` regions and ``leaves`` in each, ``groups`` groups in every leaf."""
    paths = [("all", f"part{p}", f"leaf{p}-{leaf}") for p in range(parents) for leaf in range(leaves)]
    hierarchy = Hierarchy.from_paths(paths)
    sizes = np.concatenate([group_sizes(groups, max_size, rng) for _ in paths])
    leaf = np.repeat(np.arange(len(paths), dtype=np.int64), groups)
    return counts_of_runs(hierarchy, leaf, sizes, np.ones(sizes.size, np.int64))


VARIABLE = "COCO_OPT_DATA"
DEFAULT = Path("..", "shared", "data")
HAWAII_MAX_SIZE = 900  # entities; the largest block has fewer, and the bound is public
BLOCK_COLUMNS = {
    "pop": "pop",
    "white": "white_nh",
    "black": "black_nh",
    "hispanic": "hisp",
    "aian": "aian_nh",
    "asian": "asian_nh",
    "nhpi": "nhpi_nh",
}

_REPOSITORY = Path(__file__).resolve().parents[2]


def data_file(relative: str, folder: Path | None = None) -> Path:
    """Return the path of a data file below ``folder``, $COCO_OPT_DATA or ../shared/data (first that is given).

    Raises ConfigError, saying where to put it, where it is absent.
    """
    path = find_data_file(relative, folder)
    if path is None:
        looked = ", ".join(str(root) for root in _roots(folder))
        raise ConfigError(
            "",
            f"the data file {relative} is not below {looked}: put it there, or set {VARIABLE} to the folder "
            f"that holds {Path(relative).parts[0]!r} (or use --small, which makes its own data)",
        )
    return path


def find_data_file(relative: str, folder: Path | None = None) -> Path | None:
    """Return the path of a data file, or None where it is absent."""
    return next((root / relative for root in _roots(folder) if (root / relative).is_file()), None)


def _roots(folder: Path | None) -> list[Path]:
    chosen = folder or (Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None)
    return [chosen] if chosen is not None else [DEFAULT, _REPOSITORY / DEFAULT]


def taxi(folder: Path | None = None) -> PrivateCounts:
    """Read Taxi: 360,872 taxis by neighbourhood of Manhattan, sizes are pickups; 3 levels, 28 leaves."""
    from coco_opt.groups.measuring.sizes import read_sizes

    return read_sizes(data_file("kuo2018/taxi_neighbourhoods.csv", folder))


def hawaiian(folder: Path | None = None) -> PrivateCounts:
    """Read Hawaiian: native Hawaiians in each of 11,155,486 census blocks; one region."""
    from coco_opt.groups.measuring.sizes import read_sizes

    return read_sizes(data_file("kuo2018/hawaiian_blocks_nation.csv", folder), root="nation")


def hawaii_blocks(column: str = "nhpi", folder: Path | None = None) -> PrivateCounts:
    """Read the 25,016 census blocks of Hawaii: a group is a block, its size the people of ``column`` in it.

    Four levels from the geoid: state / county / tract / block group. Columns: pop, white, black, hispanic, aian, asian,
    nhpi (races: non-Hispanic alone; nhpi: native Hawaiian and other Pacific islander). Raises ConfigError for another
    one or where the file is absent.
    """
    if column not in BLOCK_COLUMNS:
        raise ConfigError("", f"no column {column!r} of blocks: use one of {', '.join(BLOCK_COLUMNS)}")
    geoids, sizes = _blocks(data_file("census2010_blocks/hi_2010_block.csv.gz", folder), BLOCK_COLUMNS[column])
    # Of the 15 digits: 2 state, 3 county, 6 tract, and the first of the block's 4 is its block group.
    paths = [(geoid[:2], geoid[:5], geoid[:11], geoid[:12]) for geoid in geoids]
    hierarchy = Hierarchy.from_paths(sorted(set(paths)))
    place = {path: hierarchy.index(path) - hierarchy.leaves.start for path in set(paths)}
    leaf = np.array([place[path] for path in paths], np.int64)
    return counts_of_runs(hierarchy, leaf, np.array(sizes, np.int64), np.ones(leaf.size, np.int64))


def _blocks(path: Path, column: str) -> tuple[list[str], list[int]]:
    with gzip.open(path, "rt", newline="", encoding="utf-8") as file:
        rows = [(row["geoid"].zfill(15), int(row[column])) for row in csv.DictReader(file)]
    return [geoid for geoid, _ in rows], [size for _, size in rows]


def own_copy(relative: str, folder: Path | None = None) -> PrivateCounts | None:
    """Read the user's own copy of a file of the paper, or return None where there is none.

    Columns: levels root first (none: one region, called nation), then size and groups, as ``read_sizes`` takes them.
    """
    from coco_opt.groups.measuring.sizes import read_sizes

    path = find_data_file(relative, folder)
    if path is None:
        return None
    with path.open(encoding="utf-8") as file:
        levels = len(next(csv.reader(file), [])) - 2
    return read_sizes(path, root=None if levels > 0 else "nation")
