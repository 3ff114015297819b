"""A made state in the layout of the 2020 Census Noisy Measurement Files: imported, estimated and verified."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import coco_opt as co
from coco_opt import load_config, verify_release
from coco_opt.errors import Place
from coco_opt.releases.verify import verify_folder
from coco_opt.topdown import FullInformation, TableMeasurements, parse_query
from coco_opt.topdown.estimating.linear.best_linear import best_linear
from coco_opt.topdown.kind.noisy_measurement_files.columns import PublishedQueries
from coco_opt.topdown.kind.plan import schema_of_config
from tests.cli.helpers import Runner
from tests.topdown.census_layout import LEVELS, PERSONS, RHO, UNITS, rho_of, write
from tests.topdown.estimation import DenseSolution, check_estimates

CONFIG = '[topdown]\nattributes = "census2020-pl94-{}"\n'


def config(folder: Path, product: str, more: str = "") -> Path:
    path = folder / f"{product}.toml"
    path.write_text(CONFIG.format(product) + more)
    return path


def test_persons_of_a_state_are_imported_estimated_and_verified(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exact = write(tmp_path, PERSONS, np.random.default_rng(1))
    toml = config(tmp_path, "persons", 'workload = ["total", "hhgq", "race_groups", "votingage * hispanic"]\n')
    coco, out = Runner(capsys), tmp_path / "theirs"
    ran = coco("import", toml, tmp_path / PERSONS.product, "--out", out)
    assert (ran.code, ran.errors) == (0, [])
    assert "1 of level 'US', 2 of level 'State', 3 of level 'County', 4 of level 'Tract'" in ran.out
    assert "7 of level 'Block_Group' (2 without answers), 13 of level 'Block' (3 without answers)" in ran.out
    assert "hhgq by County" in ran.out
    assert f"rho {sum(RHO.values()):g}, of all answers of a leaf" in ran.out
    assert [check.detail for check in verify_folder(out) if not check.passed] == []
    measurement, _ = co.read_measurement(out)
    measured = TableMeasurements.of(measurement)
    assert measurement.measurement_plan.levels == tuple(LEVELS.values())
    assert sorted(measured.hierarchy.names) == sorted(exact)
    # Tracts, block groups and blocks have other noise where a unit is bypassed, or none at all.
    assert {level for level, _ in measured.by_region} == {3, 4, 5}
    number, share = [query.text for query in measured.queries].index("total"), 1 / 45
    for region, code in enumerate(measured.hierarchy.names):
        level = int(measured.hierarchy.level[region])
        variance = measured.region_variances(level, number)[region - int(measured.hierarchy.level_start[level])]
        assert variance == pytest.approx(1 / (rho_of(code) * share) if rho_of(code) else np.inf, rel=1e-4)
    bounds = {(bound.level, bound.query.text): bound for bound in measured.invariants.bounds}
    assert sorted(bounds) == sorted([(0, "total"), *((level, "hhgq") for level in range(6))])
    assert bounds[0, "total"].lower.tolist() == bounds[0, "total"].upper.tolist() == [[exact["0"].sum()]]

    ran = coco("estimate", out, toml, "--out", tmp_path / "release")
    assert (ran.code, ran.errors) == (0, [])
    assert [check.detail for check in verify_release(tmp_path / "release") if not check.passed] == []
    manifest = json.loads((tmp_path / "release" / "manifest.json").read_text())
    assert manifest["status"] == "as its publisher states"
    release = co.read_release(tmp_path / "release")
    for code in ("0", "050", "150"):
        path = measured.hierarchy.paths[measured.hierarchy.names.index(code)]
        totals = release.table(path).sum()
        assert abs(int(totals) - int(exact[code].sum())) < 40


def test_units_of_a_state_are_those_of_dense_algebra(tmp_path: Path) -> None:
    """Exact numbers of units in every region, differing variances, bypassed units: estimates and covariances."""
    write(tmp_path, UNITS, np.random.default_rng(2))
    measurement = co.read_noisy_measurements(tmp_path / UNITS.product, config(tmp_path, "units"))
    measured = TableMeasurements.of(measurement)
    estimates = best_linear(measured, full=True)
    assert isinstance(estimates, FullInformation)
    check_estimates(estimates, DenseSolution(measured), [parse_query("h1", measured.schema).operator])
    chosen = load_config(
        config(tmp_path, "units", more='workload = ["h1"]\nestimation = "posterior"\n'), measures=False
    )
    for name, settings in (("full", None), ("posterior", chosen)):
        release = co.estimate(measurement, settings)
        assert [check.detail for check in verify_release(release.save(tmp_path / name)) if not check.passed] == []
    assert (tmp_path / "posterior" / "intervals.parquet").is_file()


def test_names_of_queries_and_constraints_alone_say_the_same_as_columns(tmp_path: Path) -> None:
    schema = schema_of_config(load_config(config(tmp_path, "persons", 'workload = ["total"]\n'), measures=False))
    queries, place = PublishedQueries(schema), Place("f")
    constraints = {
        "total_con": ("*",) * 4,
        "hhgq_total_lb_con": ("hhgq", "*", "*", "*"),
        "hhgq_total_ub_con": ("hhgq", "*", "*", "*"),
        "nurse_nva_0_con": ("gqNursingTotal", "nonvoting", "*", "*"),
    }
    for name, columns in {**PERSONS.queries, **constraints}.items():
        by_name, by_columns = queries.of(name, (), place), queries.of(name, columns, place)
        assert by_name.shape == by_columns.shape
        assert str(by_name.query and by_name.query.text) == str(by_columns.query and by_columns.query.text)
