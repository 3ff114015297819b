"""Releases of ranges from a configuration: checked, measured, estimated, verified, planned, compared."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coco_opt import Config, UniversalHistogram, estimate, forecast, measure, parse_config, release, verify_release
from coco_opt.errors import ConfigError, InputError
from coco_opt.estimators import estimator_rows
from coco_opt.files.folder import FileTable, parquet, read_columns
from coco_opt.files.regions import stored_regions
from coco_opt.privacy.noise_distributions import distribution_of
from coco_opt.ranges.kind import RANGES
from coco_opt.ranges.kind.files import RANGES_FILE, TYPES, read_ranges_release
from coco_opt.ranges.kind.page import _Answers
from coco_opt.releases import render_report
from coco_opt.releases.kind import Folder

ESTIMATORS = tuple(row.name for row in estimator_rows("ranges"))

DAYS = 90
TEXT = """
[data]
values = "visits.csv"
[privacy]
epsilon = "1"
noise = "seeded"
seed = 5
[ranges]
cells = 90
"""
REPLACE = ("seed = 5", 'seed = 5\nneighbours = "replace"')
RHO = ('epsilon = "1"', 'mechanism = "discrete_gaussian"\nrho = "1/8"')
EDGES = ("cells = 90", "edges = [0, 7, 14, 30, 90]\nfan_out = 2")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    values = np.random.default_rng(3).binomial(DAYS - 1, 0.4, 800)
    (tmp_path / "visits.csv").write_text("\n".join(["value", *map(str, values)]) + "\n")
    return tmp_path


def config(folder: Path, *changes: tuple[str, str], more: str = "") -> Config:
    text = TEXT
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return parse_config(text + more, folder, file="visits.toml")


def truth(folder: Path) -> np.ndarray:
    return np.bincount(np.loadtxt(folder / "visits.csv", skiprows=1, dtype=np.int64), minlength=DAYS)


@pytest.mark.parametrize(
    ("estimator", "changes"),
    [
        *((estimator, ()) for estimator in ESTIMATORS),
        ("nonnegative", (RHO,)),
        ("zeroed", (REPLACE,)),
        ("posterior", (RHO, REPLACE)),
        ("consistent", (EDGES,)),
    ],
)
def test_releases_verify_and_answer_any_range(
    folder: Path, estimator: str, changes: tuple[tuple[str, str], ...]
) -> None:
    made = release(config(folder, *changes, more=f'estimator = "{estimator}"\n'))
    checks = verify_release(made.folder)
    assert [row for row in checks if not row.passed] == []
    assert {"measurement", "rows", "promises", "finite", "standard_errors"} <= {row.name for row in checks}
    histogram = read_ranges_release(made.folder)
    estimated, error = histogram.between(7, 30)
    assert histogram.estimator == estimator
    assert abs(estimated - truth(folder)[7:30].sum()) < 6 * error + (30 if estimator == "zeroed" else 0)
    table = read_columns(made.folder / RANGES_FILE, tuple(TYPES))
    assert table.column_names == list(TYPES)
    assert (table["start"][0].as_py(), table["stop"][0].as_py()) == (0, DAYS)


def test_two_statements_of_one_tree_are_one_measurement(folder: Path) -> None:
    number, listed = (config(folder, more=f"fan_out = {text}\n") for text in ("9", "[2, 9, 9]"))
    assert RANGES.plan(number).measurement_plan.digest == RANGES.plan(listed).measurement_plan.digest
    assert estimate(measure(number).measurement, listed).kind.name == "ranges"
    with pytest.raises(ConfigError, match="the measurement's is 9"):
        estimate(measure(number).measurement, config(folder, more="fan_out = [3, 6, 5]\n"))


def test_intervals_on_the_page_are_of_counts(folder: Path) -> None:
    """A reader is told of no half and of fewer than no persons."""
    measured, begin = measure(config(folder)).measurement, np.arange(DAYS)
    histogram, unbiased = (UniversalHistogram.fit(measured, name) for name in ("nonnegative", "consistent"))
    low, high = _Answers(histogram, 0.0, unbiased).likely(begin, begin + 1)
    assert low.min() == 0
    assert (np.rint([low, high]) == [low, high]).all()
    assert ((low <= truth(folder)) & (truth(folder) <= high)).mean() >= 0.85


@pytest.mark.parametrize("changes", [(), (EDGES,)])
def test_the_page_states_no_value_within_a_cell(folder: Path, changes: tuple[tuple[str, str], ...]) -> None:
    made = release(config(folder, ('epsilon = "1"', 'epsilon = "20"'), *changes), page=render_report)
    page = (made.folder / "report.html").read_text(encoding="utf-8")
    values = np.loadtxt(folder / "visits.csv", skiprows=1, dtype=np.int64)
    for name, shares in (("median", (0.5, 0.5)), ("middle half", (0.25, 0.75))):
        text = re.search(rf"{name}[^<]*</dt><dd class='value'>([\d to]+)<", page)
        assert text is not None
        low, *high = map(int, text[1].split(" to "))
        first, last = np.quantile(values, shares, method="inverted_cdf")
        assert low <= first
        assert last <= (high or [low])[0]
    assert ("where the median lies" in page) == bool(changes)


@pytest.mark.parametrize("estimator", ["consistent", "nonnegative"])
def test_counts_are_integers_and_rounding_moves_no_range_by_more_than_one(folder: Path, estimator: str) -> None:
    measured = measure(config(folder)).measurement
    fitted = UniversalHistogram.fit(measured, estimator)
    made = estimate(measured, config(folder, more=f'estimator = "{estimator}"\n'))
    histogram = made.result.histogram
    np.testing.assert_array_equal(histogram.nodes, np.rint(histogram.nodes))
    begin, end = np.triu_indices(DAYS + 1)
    assert np.abs(histogram.ranges(begin, end).estimate - fitted.ranges(begin, end).estimate).max() <= 1.0 + 1e-9
    assert (histogram.cells.min() >= 0) == (estimator == "nonnegative")
    written = made.save(folder / "made")
    assert "whole_numbers" in json.loads((written / "manifest.json").read_text())["promises"]
    assert all(row.passed for row in verify_release(written))


def test_estimation_refuses_another_domain(folder: Path) -> None:
    measured = measure(config(folder)).measurement
    other = [("cells = 90", "cells = 91"), EDGES, ("cells = 90", "cells = 90\nfan_out = 64")]
    for change in (*other, ("cells = 90", 'cells = 90\noutside = "clamp"')):
        with pytest.raises(ConfigError, match="the measurement"):
            estimate(measured, config(folder, change))


def _rewritten(folder: Path, **columns: Any) -> None:
    table = read_columns(folder / RANGES_FILE, tuple(TYPES))
    values = {name: columns.get(name, table[name].to_numpy()) for name in TYPES}
    (folder / RANGES_FILE).write_bytes(parquet(FileTable.of(values, TYPES)))


def _failed(folder: Path, manifest: Mapping[str, Any]) -> list[str]:
    """Return the kind's own checks that fail; the engine's would see any changed byte."""
    release_folder = Folder(folder, manifest, stored_regions(folder))
    return [row.name for row in RANGES.verify(release_folder) if not row.passed]


def test_verification_finds_what_was_changed(folder: Path) -> None:
    made = release(config(folder, more="fan_out = 4\n"))
    manifest = json.loads((made.folder / "manifest.json").read_text())
    assert _failed(made.folder, manifest) == []
    table = read_columns(made.folder / RANGES_FILE, tuple(TYPES))
    estimate_, error, start = (table[name].to_numpy().copy() for name in ("estimate", "standard_error", "start"))
    lower, wider, moved, infinite = estimate_.copy(), error.copy(), start.copy(), estimate_.copy()
    lower[-1], wider[5], moved[7], infinite[3] = -1.0, wider[5] * 1.001, 3, np.inf
    for changed, broken in (
        ({"estimate": lower}, ["nonnegative", "children_sum_to_parents"]),
        ({"standard_error": wider}, ["standard_errors"]),
        ({"start": moved}, ["rows"]),
        ({"estimate": infinite}, ["finite", "children_sum_to_parents"]),
    ):
        copy = shutil.copytree(made.folder, folder / "copy")
        _rewritten(copy, **changed)
        assert _failed(copy, manifest) == broken
        shutil.rmtree(copy)
    fractions = FileTable.of({name: table[name].to_numpy() for name in TYPES}, {**TYPES, "start": "double"})
    (made.folder / RANGES_FILE).write_bytes(parquet(fractions))
    assert _failed(made.folder, manifest) == ["integers", "rows"]


def test_verification_finds_a_changed_manifest(folder: Path) -> None:
    made = release(config(folder, more="fan_out = 4\nfractions = true\n"))
    manifest = json.loads((made.folder / "manifest.json").read_text())

    def changed(*path: Any, value: Any) -> dict[str, Any]:
        copy = json.loads(json.dumps(manifest))
        inner = copy
        for step in path[:-1]:
            inner = inner[step]
        inner[path[-1]] = value
        return copy

    level_query = ("budget", "questions", 0)
    assert _failed(made.folder, changed("ranges", "fan_out", value=5))[0] == "measurement"
    assert _failed(made.folder, changed("ranges", "outside", value="clamp")) == ["measurement"]
    assert _failed(made.folder, changed("ranges", "estimator", value="zeroed")) == ["promises"]
    assert _failed(made.folder, changed("ranges", "fractions", value=False)) == ["promises"]
    assert _failed(made.folder, changed("promises", value=["finite"])) == ["promises"]
    assert _failed(made.folder, changed("budget", "epsilon", value="1/2")) == ["measurement"]
    assert _failed(made.folder, changed(*level_query, "scale", value="1")) == ["measurement", "standard_errors"]
    for path, value in (
        (("ranges",), {}),
        (("ranges", "edges"), [0, 1]),
        (("ranges", "cells"), 10**18),
        ((*level_query, "law"), "cauchy"),
    ):
        with pytest.raises(InputError, match=r"bad-manifest|unknown-law"):
            _failed(made.folder, changed(*path, value=value))


def test_forecast_states_exact_standard_errors(folder: Path) -> None:
    planned = forecast(config(folder, more="fan_out = 4\n"))
    by_fan_out = {row["fan_out"]: row["standard_errors"] for row in planned.predicted.plain["predicted"]}
    histogram = UniversalHistogram.fit(measure(config(folder, more="fan_out = 4\n")).measurement)
    assert by_fan_out[4][str(DAYS)] == pytest.approx(histogram.range(0, DAYS)[1])
    alone = distribution_of({"law": "geometric", "scale": "1"}).variance
    assert by_fan_out[None]["1"] == pytest.approx(alone**0.5)
    table, _ = planned.predicted.tables
    assert [row[0] for row in table.rows if "asked" in row[0]] == ["4 (asked)"]
    chosen = forecast(config(folder, more='fan_out = "auto"\n')).predicted.tables[0].rows
    assert [row[0].split()[1] for row in chosen if "(" in row[0]] == ["(chosen)"]
    assert planned.seconds is not None
