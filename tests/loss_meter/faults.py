"""Faults to plant in the shipped program, each of which the loss meter must see."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from coco_opt.errors import ProblemError
from coco_opt.groups import queries
from coco_opt.groups.kind import files as groups_files
from coco_opt.groups.measuring import measure as groups_measure
from coco_opt.histograms import Hierarchy
from coco_opt.privacy import DiscreteGaussian, Geometric, Neighbours, Sensitivity
from coco_opt.privacy import queries as noisy_answers
from coco_opt.ranges.domain import DomainTree
from coco_opt.topdown.queries import Query

Patch = pytest.MonkeyPatch

# The package has functions of these names.
estimate: Any = import_module("coco_opt.releases.estimate")
measure: Any = import_module("coco_opt.releases.measure")


@dataclass(frozen=True)
class Fault:
    """A fault and where it shows: ``seen`` is "epsilon" or "rho" above the budget, or a public thing that differs."""

    plant: Callable[[Patch], None]
    case: str
    distribution: str
    neighbours: Neighbours
    pair: str
    seen: str
    method: str = "none"


def _group_sensitivity(query: str, neighbours: str, l1: int, squared: int) -> Callable[[Patch], None]:
    def plant(patch: Patch) -> None:
        table = queries._OF_SIZES if query == "sizes" else queries._OF_OTHERS
        patch.setitem(table, neighbours, Sensitivity(l1, squared))  # type: ignore[arg-type]

    return plant


def _narrow_geometric(patch: Patch) -> None:
    def opened(distribution: Geometric, source: Any, *, measurement: str, region: str) -> Any:
        return source.stream(distribution.scale * Fraction(9, 10), measurement=measurement, region=region)

    patch.setattr(Geometric, "opened", opened)


def _narrow_gaussian(patch: Patch) -> None:
    def opened(distribution: DiscreteGaussian, source: Any, *, measurement: str, region: str) -> Any:
        return source.gaussian_stream(
            distribution.parameter * Fraction(81, 100), measurement=measurement, region=region
        )

    patch.setattr(DiscreteGaussian, "opened", opened)


def _at_the_noise(patch: Patch, change: Callable[[Any, Any, Any], Any]) -> None:
    """Have ``change`` see each part's noisy answers, which it may replace, with the noise that made them."""
    honest = noisy_answers.Noise.add_to

    def add_to(noise: Any, part: Any) -> Any:
        return change(noise, part, honest(noise, part))

    patch.setattr(noisy_answers.Noise, "add_to", add_to)


def _measured_twice(patch: Patch) -> None:
    def mean_of_two(noise: Any, part: Any, noisy: Any) -> Any:
        if part.query.level:
            return noisy
        stream = part.query.distribution.opened(noise._source, measurement="again", region=part.label)
        return (noisy + stream.add_to(part.values)) // 2

    _at_the_noise(patch, mean_of_two)


def _clamped_after(patch: Patch) -> None:
    _at_the_noise(patch, lambda noise, part, noisy: np.clip(noisy, part.values.min(), part.values.max()))


def _root_without_noise(patch: Patch) -> None:
    _at_the_noise(patch, lambda noise, part, noisy: noisy if part.query.level else part.values)


def _watched(patch: Patch, see: Callable[[Any, Any], None]) -> None:
    """Have ``see`` told the private table when it was read, and the reporter."""
    honest = measure._read

    def read(plan: Any, reporter: Any) -> Any:
        private = honest(plan, reporter)
        see(private, reporter)
        return private

    patch.setattr(measure, "_read", read)


def _in_the_manifest(entry: Callable[[Any], Any]) -> Callable[[Patch], None]:
    def plant(patch: Patch) -> None:
        seen: dict[str, Any] = {}
        honest = estimate.manifest_of
        _watched(patch, lambda private, reporter: seen.update(input=entry(private)))
        patch.setattr(estimate, "manifest_of", lambda *constraints: {**honest(*constraints), **seen})

    return plant


def _digest(private: Any) -> str:
    return hashlib.sha256(b"".join(array.tobytes() for array in private.arrays)).hexdigest()


def _of_true_persons(change: Callable[[Mapping[str, Any], Any], Mapping[str, Any]]) -> Callable[[Patch], None]:
    """Return what changes the rows of histograms.parquet by the true table of groups."""

    def plant(patch: Patch) -> None:
        seen: list[Any] = []
        _watched(patch, lambda private, reporter: seen.append(private))
        honest = groups_files.histogram_table

        def table(*constraints: Any) -> Any:
            made = honest(*constraints)
            if not seen:  # the rehearsal, before the private table is read
                return made
            return replace(made, parts=[change(part, seen[-1]) for part in made.parts])

        patch.setattr(groups_files, "histogram_table", table)

    return plant


def _entities(private: Any) -> dict[str, int]:
    tree: Hierarchy = private.hierarchy
    return {path: private.region(at).entities for at, path in enumerate(tree.paths)}


def _rows(part: Mapping[str, Any], keep: Any) -> dict[str, Any]:
    return {name: np.asarray(_plain(column))[keep] for name, column in part.items()}


def _plain(column: Any) -> Any:
    return [column.texts[code] for code in column.codes] if hasattr(column, "codes") else column


def _by_true_size(part: Mapping[str, Any], private: Any) -> Mapping[str, Any]:
    entities = _entities(private)
    return _rows(part, np.argsort([entities[path] for path in _plain(part["region"])], kind="stable"))


def _without_empty(part: Mapping[str, Any], private: Any) -> Mapping[str, Any]:
    entities = _entities(private)
    return _rows(part, [entities[path] > 0 for path in _plain(part["region"])])


def _says_rows(patch: Patch) -> None:
    _watched(patch, lambda private, reporter: reporter.line(f"{private.identity()['rows_read']} rows were read"))


def _fails_where_nobody_lives(patch: Patch) -> None:
    def see(private: Any, reporter: Any) -> None:
        if 0 in _entities(private).values():
            raise ProblemError("a county is empty")

    _watched(patch, see)


def _buckets_share_a_cell(patch: Patch) -> None:
    honest = groups_measure.exact_answers

    def shared(*measurement_plan: Any) -> Any:
        values = honest(*measurement_plan)
        values[1:-1] += values[2:]
        return values

    patch.setattr(groups_measure, "exact_answers", shared)


def _scale_from_data(patch: Patch) -> None:
    """Choose the noise by whether there is anybody in the third cell."""

    def narrower(noise: Any, part: Any, noisy: Any) -> Any:
        if not part.values[2]:
            return noisy
        distribution = replace(part.query.distribution, scale=part.query.distribution.scale + 1)
        return distribution.opened(noise._source, measurement="wider", region=part.label).add_to(part.values)

    _at_the_noise(patch, narrower)


_ADDED, _MOVED = "one added to an empty group of an empty county", "one moved between groups of one size"
_BUCKETS, _ROWS = "buckets by edges", "one added with three rows alike"
FAULTS: Mapping[str, Fault] = {
    "sizes at a sensitivity of 1": Fault(
        _group_sensitivity("sizes", "add_remove", 1, 1), "sizes", "geometric", "add_remove", _ADDED, "epsilon"
    ),
    "moved ranks at the sensitivity of added ones": Fault(
        _group_sensitivity("ranks", "replace", 1, 1), "ranks", "geometric", "replace", _MOVED, "epsilon"
    ),
    "moved sizes at a squared sensitivity of 4": Fault(
        _group_sensitivity("sizes", "replace", 4, 4), "sizes", "gaussian", "replace", _MOVED, "rho"
    ),
    "moved buckets at the sensitivity of added ones": Fault(
        _group_sensitivity("buckets", "replace", 1, 1),
        *(_BUCKETS, "gaussian", "replace", "one moved to an empty county", "rho"),
    ),
    "buckets that share a cell": Fault(
        _buckets_share_a_cell, _BUCKETS, "geometric", "add_remove", "one added to a group of 3", "epsilon"
    ),
    "a tree at the sensitivity of one level": Fault(
        lambda patch: patch.setattr(DomainTree, "sensitivity", lambda tree, neighbours="": Sensitivity(1, 1)),
        *("tree", "geometric", "add_remove", "one removed", "epsilon", "noisy"),
    ),
    "replaced persons at the sensitivity of added ones": Fault(
        lambda patch: patch.setattr(Query, "sensitivity", lambda query, neighbours: Sensitivity(1, 1)),
        *("workload", "gaussian", "replace", "one of another sex and age, and county", "rho", "full"),
    ),
    "a person of three rows at the sensitivity of one": Fault(
        lambda patch: patch.setattr(Sensitivity, "of_rows", lambda one, rows: one),
        *("rows a person", "geometric", "add_remove", _ROWS, "epsilon", "full"),
    ),
    "a squared sensitivity that grows as the rows do": Fault(
        lambda patch: patch.setattr(
            Sensitivity, "of_rows", lambda one, rows: Sensitivity(one.l1 * rows, one.l2_squared * rows)
        ),
        *("rows a person", "gaussian", "add_remove", _ROWS, "rho", "full"),
    ),
    "geometric noise scaled by 0.9": Fault(
        _narrow_geometric, "cells", "geometric", "add_remove", "one removed", "epsilon", "noisy"
    ),
    "Gaussian noise scaled by 0.9": Fault(
        _narrow_gaussian, "cells", "gaussian", "add_remove", "one removed", "rho", "noisy"
    ),
    "a level asked twice and paid once": Fault(
        _measured_twice, "cumulative", "geometric", "add_remove", _ADDED, "epsilon"
    ),
    "noise whose scale depends on the data": Fault(
        _scale_from_data, "cells", "geometric", "add_remove", "one added to an empty cell", "noise", "noisy"
    ),
    "answers clamped to the true range after the noise": Fault(
        _clamped_after, "cumulative", "geometric", "add_remove", _ADDED, "noisy/"
    ),
    "the root without noise": Fault(_root_without_noise, "cumulative", "geometric", "add_remove", _ADDED, "noisy/"),
    "the number of private rows in the manifest": Fault(
        _in_the_manifest(lambda private: private.identity()["rows_read"]),
        *("cells", "geometric", "add_remove", "one removed", "manifest.json", "noisy"),
    ),
    "a digest of the private table in the manifest": Fault(
        _in_the_manifest(_digest),
        *("cells", "geometric", "replace", "one moved to the next cell", "manifest.json", "noisy"),
    ),
    "rows in the order of true sizes": Fault(
        _of_true_persons(_by_true_size),
        *("cumulative", "geometric", "replace", "one moved to an empty county", "histograms.parquet"),
    ),
    "regions without anybody left out": Fault(
        _of_true_persons(_without_empty), "cumulative", "geometric", "add_remove", _ADDED, "histograms.parquet"
    ),
    "the number of private rows on standard output": Fault(
        _says_rows, "cumulative", "geometric", "add_remove", _ADDED, "output"
    ),
    "an exit code that tells of an empty region": Fault(
        _fails_where_nobody_lives, "cumulative", "geometric", "add_remove", _ADDED, "exit code"
    ),
}
