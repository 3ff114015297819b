"""A made state in the layout of the 2020 Census Noisy Measurement Files (P.L. 94-171), as their documentation says.

One folder a level that is named like a file, in it ``DPQuery`` and ``Constraint``, in these one folder a state part, in
which Spark wrote part files. Geocodes are those of the optimised spine: 3 characters for the part of a state outside
(0) or inside (1) American Indian areas, 9 for a county, then tract, block group, and 16 more for the block. Where a
unit is bypassed, its children stand in its place with the budget of both, and have one child each without any budget.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import coco_opt as co
from coco_opt import load_config, verify_release
from coco_opt.array_types import Ints
from coco_opt.errors import Place
from coco_opt.releases.verify import verify_folder
from coco_opt.topdown import FullInformation, TableMeasurements, parse_query
from coco_opt.topdown.estimating.linear.best_linear import best_linear
from coco_opt.topdown.kind.noisy_measurement_files.columns import PublishedQueries
from coco_opt.topdown.kind.plan import schema_of_config
from tests.cli.helpers import Runner
from tests.topdown.estimation import DenseSolution, check_estimates

LEVELS = {1: "US", 3: "State", 9: "County", 10: "Tract", 11: "Block_Group", 27: "Block"}
RHO = {"US": 0.5, "State": 0.5, "County": 1.0, "Tract": 1.5, "Block_Group": 3.0, "Block": 1.0}
# Block groups, with the number of their blocks; a county of 150 is that of an American Indian area.
BLOCK_GROUPS = {"05010001111": 3, "05010001112": 2, "05010001121": 3, "15010001111": 2}
BYPASSED = {"05010003111": 1, "05010003112": 1, "05010003113": 1}
"""The places of a bypassed block group, each with the one block that it stands for: the blocks have no budget."""
ALONE = ("0501000112", "1501000111")
"""Tracts of one block group: these were bypassed, and the block groups have no budget."""


@dataclass(frozen=True)
class Layout:
    """Attributes and their sizes, the ways in which the queries count each, and those of the constraints."""

    sizes: Mapping[str, int]
    queries: Mapping[str, tuple[str, ...]]
    groups: Mapping[str, tuple[Ints, int]]
    product: str


_ALL = ("detailed",) * 4
PERSONS = Layout(
    {"hhgq": 8, "votingage": 2, "hispanic": 2, "cenrace": 63},
    {
        "total_dpq": ("*", "*", "*", "*"),
        "cenrace_dpq": ("*", "*", "*", "cenrace"),
        "hispanic_dpq": ("*", "*", "hispanic", "*"),
        "votingage_dpq": ("*", "votingage", "*", "*"),
        "hhinstlevels_dpq": ("hhinstlevels", "*", "*", "*"),
        "hhgq_dpq": ("hhgq", "*", "*", "*"),
        "hispanic * cenrace_dpq": ("*", "*", "hispanic", "cenrace"),
        "votingage * hispanic * cenrace_dpq": ("*", "votingage", "hispanic", "cenrace"),
        "detailed_dpq": _ALL,
    },
    {"hhinstlevels": (np.array([0, 1, 1, 1, 1, 2, 2, 2]), 3)},
    "US_Person_PL_PROD",
)
UNITS = Layout({"h1": 2}, {"detailed_dpq": ("detailed",)}, {}, "US_Unit_PL_PROD")


def blocks() -> list[str]:
    """Return the geocodes of all blocks: that of the block group, and the block's 16 digits."""
    codes = []
    for group, count in {**BLOCK_GROUPS, **BYPASSED}.items():
        tract = f"{group[1:3]}{group[5:8]}{group[9]:0>6}"
        codes += [f"{group}{tract}{group[10]}{group[10]}{number:03d}0"[:27] for number in range(1, count + 1)]
    return codes


def rho_of(code: str) -> float:
    """Return a unit's budget: bypassed units gave theirs to those that stand in their place."""
    level = LEVELS[len(code)]
    if code[:11] in BYPASSED:
        return {"Block_Group": RHO["Block_Group"] + RHO["Block"], "Block": 0.0}.get(level, RHO[level])
    if code[:10] in ALONE:
        return {"Tract": RHO["Tract"] + RHO["Block_Group"], "Block_Group": 0.0}.get(level, RHO[level])
    return RHO[level]


def tables(layout: Layout, rng: np.random.Generator) -> dict[str, Ints]:
    """Return the exact tables of all units."""
    shape = tuple(layout.sizes.values())
    out: dict[str, Ints] = {}
    for code in blocks():
        table = rng.poisson(0.01 if len(shape) > 1 else 6.0, shape).astype(np.int64)
        if len(shape) > 1:
            table[0, 1, 0, 0] += rng.poisson(20)
            table[3, 0] = 0  # nobody under 18 lives in a nursing facility
        for above in ("0", *(code[:width] for width in LEVELS if width > 1)):
            out[above] = out.get(above, 0) + table
    return out


def answers(layout: Layout, table: Ints, how: tuple[str, ...]) -> tuple[Ints, list[int]]:
    """Return the exact answers to a query, and its shape, 1 for attributes that it does not count."""
    for axis, way in enumerate(how):
        if way == "*":
            table = table.sum(axis=axis, keepdims=True)
        elif way in layout.groups:
            labels, count = layout.groups[way]
            parts = [table.take(np.flatnonzero(labels == k), axis).sum(axis, keepdims=True) for k in range(count)]
            table = np.concatenate(parts, axis=axis)
    return table.reshape(-1), list(table.shape)


def noisy_rows(layout: Layout, exact: Mapping[str, Ints], rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    """Yield the rows of noisy answers: units without budget have none."""
    for code, table in exact.items():
        for number, (name, how) in enumerate(layout.queries.items()):
            if rho := rho_of(code) * (1 + number) / sum(range(1, 1 + len(layout.queries))):
                values, shape = answers(layout, table, how)
                noise = np.rint(rng.normal(0.0, np.sqrt(1.0 / rho), values.size)).astype(np.int64)
                columns = dict(zip(layout.sizes, how, strict=True))
                stated = {"query_shape": shape, "value": (values + noise).tolist(), "variance": 1.0 / rho}
                yield {"geocode": code, "query_name": name, **columns, **stated, "plb": rho}


def constraint_rows(layout: Layout, exact: Mapping[str, Ints]) -> Iterator[dict[str, Any]]:
    """Yield the rows of constraints: the number of units; facilities by type, totals, and nursing facilities."""
    for code, table in exact.items():
        total = [int(table.sum())]
        if layout is UNITS:
            yield _constraint(layout, code, "total_con", ("*",), "=", [1], total)
            continue
        facilities = (table.sum(axis=(1, 2, 3)) > 0).astype(np.int64)
        facilities[0] = 0
        most = np.where(np.arange(8) == 0, 99_999 * total[0], 99_999 * facilities)
        types = ("hhgq", "*", "*", "*")
        yield _constraint(layout, code, "hhgq_total_lb_con", types, ">=", [8, 1, 1, 1], facilities.tolist())
        yield _constraint(layout, code, "hhgq_total_ub_con", types, "<=", [8, 1, 1, 1], most.tolist())
        nobody = ("gqNursingTotal", "nonvoting", "*", "*")
        yield _constraint(layout, code, "nurse_nva_0_con", nobody, "=", [1, 1, 1, 1], [0])
        if len(code) == 1:
            yield _constraint(layout, code, "total_con", ("*",) * 4, "=", [1, 1, 1, 1], total)


def _constraint(
    layout: Layout, code: str, name: str, how: tuple[str, ...], sign: str, shape: list[int], value: list[int]
) -> dict[str, Any]:
    columns = dict(zip(layout.sizes, how, strict=True))
    stated = {"query_shape": shape, "value": value, "variance": 0.0, "sign": sign}
    return {"geocode": code, "query_name": name, **columns, **stated}


def write(folder: Path, layout: Layout, rng: np.random.Generator) -> dict[str, Ints]:
    """Write the files of a product, and return its exact tables. Each part of the state has other types of columns."""
    exact = tables(layout, rng)
    listed = {"DPQuery": list(noisy_rows(layout, exact, rng)), "Constraint": list(constraint_rows(layout, exact))}
    for kind, rows in listed.items():
        for width, level in LEVELS.items():
            for part in ("0", "05", "15"):
                inside = [row for row in rows if len(row["geocode"]) == width and row["geocode"][: len(part)] == part]
                if width == 1:
                    inside = inside if part == "0" else []
                elif part == "0":
                    continue
                if inside:
                    below = f"State={part}0" if width > 1 else "."
                    path = folder / layout.product / f"{level}.parquet" / kind / below
                    path.mkdir(parents=True, exist_ok=True)
                    (path / "_SUCCESS").touch()
                    schema = _schema(layout, kind, other=part == "15")
                    table = pa.Table.from_pylist(inside, schema=schema)
                    pq.write_table(table, path / "part-00000-made-c000.snappy.parquet", row_group_size=7)
    return exact


def _schema(layout: Layout, kind: str, other: bool) -> pa.Schema:
    text, number = (pa.binary(), pa.int32()) if other else (pa.string(), pa.int64())
    columns = {"geocode": text, "query_name": text, **dict.fromkeys(layout.sizes, text)}
    columns |= {"query_shape": pa.list_(pa.int16() if other else pa.int32()), "value": pa.list_(number)}
    columns |= {"variance": pa.float64() if other else pa.float32()}
    return pa.schema({**columns, **({"sign": text} if kind == "Constraint" else {"plb": pa.float64()})})


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
