"""Small hierarchies of groups, their measurements and releases, planted faults, and what every release must keep."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from coco_opt import Config, CountOfCounts, Hierarchy, SeededNoise, parse_config
from coco_opt.array_types import Ints
from coco_opt.groups import GroupsMeasurements, RegionMeasurement, measure_hierarchy
from coco_opt.histograms import sum_of_leaves
from coco_opt.privacy import Cost, Epsilon, Measurement
from tests.releases.drawn import restate

MAX_SIZE = 12


class NoNoise:
    """A source of both laws that adds nothing and remembers what was opened: (parameter, measurement, region)."""

    name = "none"
    private = False

    def __init__(self) -> None:
        self.opened: list[tuple[Fraction, str, str]] = []

    def stream(self, scale: Fraction, *, measurement: str, region: str) -> NoNoise:
        """Open nothing."""
        self.opened.append((scale, measurement, region))
        return self

    def gaussian_stream(self, variance: Fraction, *, measurement: str, region: str) -> NoNoise:
        """Open nothing."""
        return self.stream(variance, measurement=measurement, region=region)

    def add_to(self, values: Ints) -> Ints:
        """Add nothing."""
        assert values.dtype == np.int64
        return values.copy()

    def draw(self, n: int) -> Ints:
        """Draw zeros."""
        return np.zeros(n, dtype=np.int64)


class Told(NoNoise):
    """A source that answers what it is told, whatever the data are: the values of each region, by path."""

    def __init__(self, answers: Mapping[str, Sequence[int]]) -> None:
        super().__init__()
        self._answers = answers

    def add_to(self, values: Ints) -> Ints:
        """Return what was told of the region opened last."""
        return np.array(self._answers[self.opened[-1][2]], np.int64)


def costs(shares: Sequence[Fraction | int | None], unit: type[Cost] = Epsilon) -> list[Cost]:
    """Return one cost a level; None is no share."""
    return [unit(Fraction(share or 0)) for share in shares]


def thirds(levels: int = 3) -> list[Cost]:
    """Return epsilon 1 in equal parts."""
    return costs([Fraction(1, levels)] * levels)


def measured(
    hierarchy: Hierarchy,
    truth: Sequence[CountOfCounts],
    queries: str | Sequence[str] = "cumulative",
    *,
    seed: int | None = 3,
    shares: Sequence[Fraction | int | None] | None = None,
    max_size: int = MAX_SIZE,
    **settings: Any,
) -> Measurement:
    """Return a measurement with seeded noise, without any for the seed None; epsilon 1 unless ``shares`` are given.

    Numbers of groups are public, unless ``counts_share`` says that they are measured too.
    """
    levels = hierarchy.levels
    defaults: dict[str, Any] = {
        "costs": thirds(levels) if shares is None else costs(shares),
        "neighbours": "add_remove",
        "source": NoNoise() if seed is None else SeededNoise(seed),
        **settings,
    }
    measurement_plan: Any = [queries] * levels if isinstance(queries, str) else list(queries)
    private = settings.get("counts_share") is not None
    counts = None if private else np.array([histogram.groups for histogram in truth])
    return measure_hierarchy(truth, hierarchy, counts, queries=measurement_plan, max_size=max_size, **defaults)


def answer(
    histogram: CountOfCounts, query: str, source: Any, cost: Cost | None = None, **settings: Any
) -> RegionMeasurement:
    """Return the noisy answer of one region, which is its own hierarchy."""
    region = Hierarchy.from_paths([("n",)])
    options = {"source": source, "costs": [cost or Epsilon(Fraction(1))], **settings}
    return GroupsMeasurements(measured(region, [histogram], query, **options))[0]


def three_levels(rng: np.random.Generator) -> tuple[Hierarchy, list[CountOfCounts]]:
    """Return three levels of regions with random histograms."""
    hierarchy = Hierarchy.from_paths([("n", f"s{i}", f"c{j}") for i in range(3) for j in range(1 + i)])
    cells = MAX_SIZE + 1
    leaves = [
        CountOfCounts.from_dense(rng.integers(0, 40, cells) * (rng.random(cells) < 0.6)) for _ in hierarchy.leaves
    ]
    return hierarchy, sum_of_leaves(hierarchy, leaves)


def assert_consistent(
    hierarchy: Hierarchy,
    truth: Sequence[CountOfCounts],
    released: Sequence[CountOfCounts],
    max_size: int = MAX_SIZE,
) -> None:
    """Check the public numbers of groups, the bound on sizes, and that children add up to their parents."""
    for region in range(hierarchy.regions):
        assert released[region].groups == truth[region].groups
        assert released[region].max_size <= max_size
        children = hierarchy.children(region)
        if len(children):
            assert released[region].equals(CountOfCounts.total(released[child] for child in children))


SIZES = "nation,state,size,groups\n" + "".join(
    f"land,{state},{size},{groups}\n"
    for state, counts in (("north", (2, 30, 21, 9, 1)), ("south", (0, 12, 40, 3, 2)), ("east", (1, 5, 2, 2, 0)))
    for size, groups in enumerate(counts)
)
SEEDED = 'noise = "seeded"\nseed = 5'


def config_of(
    folder: Path, *, privacy: str = "", budget: str = 'epsilon = "1"', more: str = "", **groups: object
) -> Config:
    """Write the table and return the configuration of its release; of dataset "towns" unless its noise is seeded."""
    (folder / "sizes.csv").write_text(SIZES)
    single = {} if {"bucket_growth", "bucket_edges"} & set(groups) else {"bucket_growth": 0}
    split = "" if "split" in privacy else 'split = "uniform"'
    lines = "\n".join(
        f"{key} = {json.dumps(value)}"
        for key, value in {"max_size": 12, **single, "consistency": "matching", **groups}.items()
    )
    dataset = "" if "seeded" in privacy or "dataset" in privacy else 'dataset = "towns"'
    text = f'[data]\nsizes = "sizes.csv"\n[privacy]\n{budget}\n{split}\n{dataset}\n{privacy}\n[groups]\n{lines}\n{more}'
    return parse_config(text, folder, file="towns.toml")


Change = Callable[[dict[str, list[Any]]], None]


def changed_copy(folder: Path, copy: Path, name: str, change: Change) -> Path:
    """Return a copy of a release with other columns in one file, and that file's digest in the manifest."""
    copy.mkdir()
    for file in folder.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    columns = pq.read_table(copy / name).to_pydict()
    change(columns)
    pq.write_table(pa.table(columns), copy / name, write_page_checksum=True)
    restate(copy)
    return copy


def shift(column: str, by: float) -> Change:
    """Return the change that moves a column's first value."""

    def change(columns: dict[str, list[Any]]) -> None:
        columns[column][0] += by

    return change
