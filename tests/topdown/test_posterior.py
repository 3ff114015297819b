"""Releases of tables by the posterior: what they promise, their intervals, and constraints in every draw."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coco_opt import configure, estimate, measure, read_tables_release, release, render_report
from coco_opt.errors import ConfigError, InputError
from coco_opt.topdown.estimating.linear.best_linear import best_linear
from coco_opt.topdown.estimating.posterior import sampler
from coco_opt.topdown.kind.explored import widths_of
from coco_opt.topdown.kind.plan import plan_tables
from coco_opt.topdown.noisy_measurements import TableMeasurements
from tests.topdown.persons import SEEDED, TOPDOWN, bounds, failing, records, write

REPLACE = SEEDED + 'neighbours = "replace"\n'
STATES = '[[topdown.invariants]]\nquery = "total"\nlevel = "state"\n'
POSTERIOR = TOPDOWN + 'estimation = "posterior"\n'


@pytest.fixture(autouse=True)
def _few_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler.SamplerOptions, "affordable", lambda options, moves: (2, 120, 120))


def test_a_release_has_intervals_that_are_checked(tmp_path: Path) -> None:
    outcome = release(write(tmp_path, topdown=POSTERIOR), tmp_path / "out", page=render_report)
    assert failing(outcome.folder) == []
    assert "intervals" in outcome.manifest["promises"]
    assert outcome.manifest["posterior"]["draws"] >= 24
    corrected = outcome.manifest["posterior"]["corrected"]
    assert all(0.0 < row["weight"] <= 1.0 and row["query"] for row in corrected)
    assert outcome.manifest["posterior"]["moved"] == []
    widened = outcome.manifest["posterior"]["widened"]
    assert all(row["factor"] > 1.0 and row["level"] == "county" and row["query"] for row in widened)
    assert "<h2>Posterior</h2>" in (outcome.folder / "report.html").read_text()
    tables = read_tables_release(outcome.folder)
    for region in ("land", "land/s0", "land/s1/c2"):
        intervals = tables.intervals(region)
        assert intervals.coverage == 0.9
        assert (intervals.lower <= tables.table(region)).all()
        assert (tables.table(region) <= intervals.upper).all()
        total = tables.table(region).sum()
        assert intervals.queries["total"][0][0] <= total <= intervals.queries["total"][1][0]
    file = outcome.folder / "intervals.parquet"
    rows = pq.read_table(file)
    for name, values, words in (
        ("upper", [-1] * rows.num_rows, "not in order"),
        ("lower", rows.column("upper").to_pylist(), "does not hold the released answer"),
        ("answer", ["no such"] * rows.num_rows, "has no such answer"),
    ):
        place = rows.column_names.index(name)
        pq.write_table(rows.set_column(place, name, pa.array(values, rows.schema.field(name).type)), file)
        assert any(words in failure for failure in failing(outcome.folder))
    pq.write_table(pa.concat_tables([rows, rows.slice(0, 1)]), file)
    assert any("occurs twice" in failure for failure in failing(outcome.folder))
    pq.write_table(rows.slice(1), file)
    assert any("leaves out an answer" in failure for failure in failing(outcome.folder))


def test_a_map_shows_the_widths_of_the_releases_own_intervals_or_of_unbiased_estimates(tmp_path: Path) -> None:
    config = write(tmp_path, topdown=POSTERIOR)
    measured = measure(config)
    made, plain = estimate(measured), estimate(measured, configure(config, topdown={"estimation": "full"}))
    schema, linear = made.result.schema, best_linear(TableMeasurements.of(measured.measurement).own)
    words, widths = widths_of(made.shown, schema, linear)
    totals = [made.intervals(path).queries["total"] for path in measured.measurement.hierarchy.paths]
    assert words == "width of the 90 % interval of the number of persons"
    assert widths.tolist() == [upper[0] - lower[0] for lower, upper in totals]
    words, widths = widths_of(plain.shown, schema, linear)
    frame = plain.to_pandas("estimates")
    errors = frame[frame["query"] == "total"]["standard_error"].to_numpy()
    assert words == "width of the 95 % interval of the unbiased estimate"
    np.testing.assert_allclose(widths, 2 * 1.959964 * errors, rtol=1e-6)


def test_a_map_shows_widths_of_the_total_where_the_workload_leaves_it_out(tmp_path: Path) -> None:
    config = write(tmp_path, topdown=POSTERIOR.replace('"total", ', ""))
    measured = measure(config)
    made = estimate(measured)
    _, widths = widths_of(made.shown, made.result.schema, best_linear(TableMeasurements.of(measured.measurement).own))
    assert "total" not in made.intervals("land").queries
    assert made.result.posterior.correction is not None
    assert widths.shape == (measured.measurement.hierarchy.regions,)
    assert (widths >= 0).all()


def test_the_same_measurement_gives_the_same_release_in_memory_and_saved(tmp_path: Path) -> None:
    measurement = measure(write(tmp_path)).measurement
    config = write(tmp_path, topdown=POSTERIOR)
    first, again = estimate(measurement, config), estimate(measurement, config)
    assert (first["land"] == again["land"]).all()
    own, other = first.intervals("land/s0"), again.intervals("land/s0")
    assert (own.lower == other.lower).all()
    assert (own.upper == other.upper).all()
    read = read_tables_release(first.save(tmp_path / "saved"))
    saved = read.intervals("land/s0")
    assert (saved.lower == own.lower).all()
    assert (saved.queries["total"][1] == own.queries["total"][1]).all()
    assert read.to_pandas("intervals").equals(first.to_pandas("intervals").astype(read.to_pandas("intervals").dtypes))
    with pytest.raises(InputError, match="unknown-table"):
        read.to_pandas("nothing")
    for changes in (first - again, read - first):
        rows = changes[changes["region"] == "land/s0"]
        assert (rows["converged"] | ~rows["beyond_noise"]).all()
        names = [" ".join(row) for row in zip(*(rows[name] for name in read.schema.attributes), strict=True)]
        labels = [label.split(", ") for label in read.schema.labels()]
        place = {" ".join(part.split(" = ")[1] for part in label): cell for cell, label in enumerate(labels)}
        cells = [place[name] for name in names]
        reach = np.hypot(
            own.upper[cells] - read.table("land/s0")[cells], read.table("land/s0")[cells] - own.lower[cells]
        )
        np.testing.assert_allclose(rows["upper"], reach)
        assert set(np.flatnonzero(own.upper)) <= set(cells)
    none = estimate(measurement, write(tmp_path, topdown=POSTERIOR + "intervals = 0.0\n"))
    assert failing(none.save(tmp_path / "none")) == []
    for result in (none, read_tables_release(tmp_path / "none")):
        with pytest.raises(InputError, match="no-intervals"):
            result.intervals("land")


def test_invariants_zeros_and_bounds_hold_in_every_draw(tmp_path: Path) -> None:
    rows = ("land/s0/c1,sex,sex = female,3,40", "land/s1/c2,total,total,,90")
    more = POSTERIOR + 'structural_zeros = ["sex = male & age = old"]\n'
    people, data = records(forbid="male,old"), bounds(tmp_path, *rows)
    config = write(tmp_path, privacy=REPLACE, topdown=more, persons=people, more=STATES, data=data)
    outcome = release(config, tmp_path / "out")
    assert failing(outcome.folder) == []
    assert {"intervals", "invariants", "structural_zeros"} <= set(outcome.manifest["promises"])
    tables = read_tables_release(outcome.folder)
    lines = people.splitlines()[1:]
    for state in range(2):
        true = sum(line.startswith(f"r{state}") for line in lines)
        lower, upper = tables.intervals(f"land/s{state}").queries["total"]
        assert lower[0] == upper[0] == true


def test_constraints_that_do_not_nest_are_said_and_give_no_intervals(tmp_path: Path) -> None:
    both = "".join(f'[[topdown.invariants]]\nquery = "{query}"\nlevel = "county"\n' for query in ("sex", "age"))
    config = write(tmp_path, privacy=REPLACE, topdown=POSTERIOR, more=both)
    assert any("do not nest" in note for note in plan_tables(config).notes)
    nested = write(tmp_path, privacy=REPLACE, topdown=POSTERIOR, more=both.replace('"age"', '"sex"'))
    assert not any("do not nest" in note for note in plan_tables(nested).notes)
    config = write(tmp_path, privacy=REPLACE, topdown=POSTERIOR, more=both)
    outcome = release(config, tmp_path / "out")
    assert failing(outcome.folder) == []
    assert outcome.manifest["posterior"] == {"connected": False}
    assert "intervals" not in outcome.manifest["promises"]
    full = release(write(tmp_path, privacy=REPLACE, more=both), tmp_path / "other")
    own, other = (read_tables_release(done.folder) for done in (outcome, full))
    assert np.array_equal(own.table("land"), other.table("land"))


def test_intervals_are_of_the_posterior_alone(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"topdown\.intervals"):
        release(write(tmp_path, topdown=TOPDOWN + "intervals = 0.9\n"), tmp_path / "out")
