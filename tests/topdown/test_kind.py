"""Tables of persons as a kind of release: what it asks, keeps, refuses in time, publishes and predicts."""

from __future__ import annotations

import base64
import gzip
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from coco_opt import SeededNoise, read_tables_release
from coco_opt.choices import SolverChoices, UncertifiedGap
from coco_opt.errors import ConfigError, InputError
from coco_opt.releases import check, compare, estimate, forecast, measure, release, render_report
from coco_opt.releases.drawing import noisy
from coco_opt.releases.kind import Shown, Truth, Work
from coco_opt.topdown import FullInformation, TableCounts, TableMeasurements, linear_estimates, measure_tables
from coco_opt.topdown.kind import TABLES, rehearsal
from tests.topdown.persons import AGE, SECURE, SEEDED, SEX, TOPDOWN, Heard, bounds, failing, records, write

REPLACE = SEEDED + 'neighbours = "replace"\n'
STATES = '[[topdown.invariants]]\nquery = "total"\nlevel = "state"\n'


@pytest.mark.parametrize("estimation", ["full", "classic", "bottom_up"])
@pytest.mark.parametrize("strategy", ['"workload"', '"identity"', '"optimised"', '["total", "detail"]'])
def test_every_method_releases_what_it_promises(tmp_path: Path, estimation: str, strategy: str) -> None:
    topdown = f'{TOPDOWN}estimation = "{estimation}"\nstrategy = {strategy}\nmicrodata = true\n'
    outcome = release(write(tmp_path, topdown=topdown), tmp_path / "out", page=render_report)
    assert failing(outcome.folder) == []
    assert outcome.manifest["status"] == "NOT PRIVATE"
    assert {path.name for path in outcome.folder.iterdir()} == {
        "tables.parquet",
        "hierarchy.parquet",
        "datapackage.json",
        "manifest.json",
        "estimates.parquet",
        "microdata.parquet",
        "report.html",
    }
    assert "<h2>Solvers and certificates</h2>" in (outcome.folder / "report.html").read_text()


def test_without_much_noise_the_release_is_the_data(tmp_path: Path) -> None:
    outcome = release(write(tmp_path, privacy=SEEDED.replace('"2"', '"200"')), tmp_path / "out")
    tables_release = read_tables_release(outcome.folder)
    truth: dict[str, int] = {}
    for line in records().splitlines()[1:]:
        truth[line] = truth.get(line, 0) + 1
    for line, persons in truth.items():
        region, sex, age = line.split(",")
        table = tables_release.table(f"land/s{region[1]}/c{region[2]}")
        assert table[3 * SEX.index(sex) + AGE.index(age)] == persons
    assert tables_release.table("land").sum() == 300
    estimates = pq.read_table(outcome.folder / "estimates.parquet").to_pydict()
    total = estimates["answer"].index("total")
    assert estimates["estimate"][total] == pytest.approx(300, abs=0.1)


def test_invariants_zeros_and_bounds_hold_exactly(tmp_path: Path) -> None:
    rows = ("land/s0/c1,sex,sex = female,3,40", "land/s1/c2,total,total,,90")
    config = write(
        tmp_path,
        privacy=REPLACE,
        topdown=TOPDOWN + 'structural_zeros = ["sex = male & age = old"]\n',
        persons=records(forbid="male,old"),
        more=STATES,
        data=bounds(tmp_path, *rows),
    )
    outcome = release(config, tmp_path / "out")
    assert failing(outcome.folder) == []
    manifest = json.loads((outcome.folder / "manifest.json").read_text())
    assert {"invariants", "structural_zeros"} <= set(manifest["promises"])
    tables_release = read_tables_release(outcome.folder)
    lines = records(forbid="male,old").splitlines()[1:]
    for state in range(2):
        true = sum(line.startswith(f"r{state}") for line in lines)
        assert tables_release.table(f"land/s{state}").sum() == true
    assert tables_release.table("land").sum() == len(lines)
    stated = pq.read_table(outcome.folder / "invariants.parquet").to_pydict()
    assert {"land/s0", "land/s1", "land/s0/c1", "land/s1/c2"} <= set(stated["region"])
    assert None in stated["upper"]
    assert 90 in stated["upper"]
    frame = pq.read_table(outcome.folder / "estimates.parquet").to_pandas()
    errors = (frame.standard_error**2).groupby([frame.level_name, frame["query"]]).mean() ** 0.5
    for row in forecast(config).as_dict()["predictions"]:
        assert row["standard_error"] == pytest.approx(errors[row["level"], row["query"]], rel=1e-9, abs=1e-12)


def test_exact_answers_that_exclude_public_bounds_are_refused_by_the_check(tmp_path: Path) -> None:
    config = write(tmp_path, REPLACE, more=STATES, data=bounds(tmp_path, "land/s0/c0,total,total,7391,"))
    TABLES.plan(config)
    with pytest.raises(InputError, match=r"'land/s0'.*inconsistent-bounds"):
        check(config)


@pytest.mark.parametrize("uncertified_gap", [UncertifiedGap(), UncertifiedGap(3, 0.25), UncertifiedGap(2, 0.0, 2)])
def test_what_was_not_proved_nearest_is_stated(tmp_path: Path, uncertified_gap: UncertifiedGap) -> None:
    config = write(tmp_path)
    measurement = measure(config).measurement
    method = TABLES.method(config, measurement.measurement_plan)
    result = replace(TABLES.estimate(measurement, method, Work(SolverChoices())), uncertified_gap=uncertified_gap)
    released = TABLES.release(measurement, method, result, config)
    assert released.manifest["unproved"] == {
        "steps": uncertified_gap.steps,
        "worst_relative_gap": uncertified_gap.gap,
        "without_gap": uncertified_gap.unknown,
    }
    page = "".join(TABLES.page(Shown(released.manifest, "spent", measurement, method, result)))
    assert ("<h2>Not proved nearest</h2>" in page) == bool(uncertified_gap)
    assert ("at most 0.25 of their distance" in page) == (uncertified_gap.gap > 0)
    assert ("Of 2 nothing is known" in page) == (uncertified_gap.unknown > 0)


def test_queries_are_fitted_in_passes(tmp_path: Path) -> None:
    passes = 'passes = [{ queries = ["total"] }, { queries = ["sex"], tolerance = 2.0 }]\n'
    outcome = release(write(tmp_path, topdown=TOPDOWN + passes), tmp_path / "out")
    assert failing(outcome.folder) == []
    assert outcome.manifest["config"]["topdown"]["passes"][1] == {"queries": ["sex"], "tolerance": 2.0}


FULL, CLASSIC, BOTTOM_UP = (f'{TOPDOWN}estimation = "{name}"\n' for name in ("full", "classic", "bottom_up"))
BY_QUERY = TOPDOWN + 'strategy = ["total", "sex", "detail"]\nshares = '
ATTRIBUTES = 'attributes = {{ {} }}\nworkload = ["total"]\n'
REFUSED = [
    ("topdown.passes", SECURE, TOPDOWN + 'passes = [{ queries = ["sx"] }]\n', "did you mean 'sex'"),
    ("topdown.workload", SECURE, TOPDOWN.replace('"sex * age"', '"sex * height"'), "height"),
    ("topdown.structural_zeros", SECURE, TOPDOWN + 'structural_zeros = ["sex = mal"]\n', "male"),
    ("topdown.strategy", SECURE, TOPDOWN + 'strategy = ["size"]\n', "size"),
    ("topdown.invariants", SECURE, TOPDOWN + 'invariants = [{ query = "total", level = "town" }]\n', "no level"),
    ("topdown.invariants", SECURE, TOPDOWN + 'invariants = [{ query = "total", level = "state" }]\n', "replace"),
    ("topdown.attributes", SECURE, TOPDOWN.replace("sex =", "region ="), "another name"),
    ("topdown.attributes", SECURE, ATTRIBUTES.format('COUNT = ["a", "b"]'), "another name"),
    ("", SECURE, ATTRIBUTES.format('Region = ["a", "b"]'), "is a column of the release, 'region'"),
    ("", SECURE, ATTRIBUTES.format('level_name = ["a", "b"]'), "is a column of the release, 'level_name'"),
    ("", SECURE, ATTRIBUTES.format('sex = ["a", "b"], Sex = ["c", "d"]'), "'sex' and 'Sex' differ in case only"),
    ("topdown.estimation", SECURE + 'split = ["1/2", "1/2", "0"]\n', FULL, "'full' needs answers of level 2"),
    ("topdown.estimation", SECURE + 'split = ["1/2", "1/2", "0"]\n', BOTTOM_UP, "'bottom_up' needs answers of level 2"),
    (
        "topdown.estimation",
        SECURE + 'split = ["1/2", "0", "1/2"]\n',
        CLASSIC,
        "needs answers of level 1.*or use 'full'",
    ),
    ("topdown.estimation", SECURE + 'split = "leaves"\n', CLASSIC, "needs answers of level 0.*or use 'full'"),
    ("", REPLACE, BOTTOM_UP + STATES, "cannot keep"),
    ("", SEEDED + 'split = ["1/2", "1/2"]\n', TOPDOWN, "3 levels"),
    ("", SEEDED, BY_QUERY + '[["1", "0", "0"], ["1/2", "1/2", "0"]]\n', "2 lists, but the hierarchy has 3 levels"),
    ("", SEEDED, BY_QUERY + '[["1", "0", "0"], ["1/2", "1/2", "0"], ["0", "1", "0"]]\n', "no level measures 'detail'"),
]


@pytest.mark.parametrize(("key", "privacy", "topdown", "words"), REFUSED)
def test_a_wrong_configuration_is_refused_by_its_key(
    tmp_path: Path, key: str, privacy: str, topdown: str, words: str
) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        release(write(tmp_path, privacy, topdown), tmp_path / "out")
    assert key in str(caught.value)
    assert caught.value.exit_code == 2
    assert not (tmp_path / "out").exists()


def test_every_estimation_reads_one_measurement(tmp_path: Path) -> None:
    measurement = measure(write(tmp_path, REPLACE, more=STATES)).measurement
    leaves = TOPDOWN + 'rounding = "nearest"\n'
    for number, topdown in enumerate((TOPDOWN, TOPDOWN + 'estimation = "classic"\n', leaves + "microdata = true\n")):
        result = estimate(measurement, write(tmp_path, REPLACE, topdown, more=STATES))
        assert failing(result.save(tmp_path / f"out{number}")) == []
        assert result.manifest["measurement"] == measurement.measurement_plan.digest
    result = estimate(measurement)
    assert failing(result.save(tmp_path / "alone")) == []
    for key, other in (
        ("attributes", TOPDOWN.replace('"female", "male"', '"male", "female"')),
        ("structural_zeros", TOPDOWN + 'structural_zeros = ["sex = male & age = old"]\n'),
    ):
        config = write(tmp_path, REPLACE, other, more=STATES)
        with pytest.raises(ConfigError, match=rf"topdown.{key}.*measured"):
            estimate(measurement, config)


def test_a_workload_beside_a_strategy_of_its_own_is_free_to_change(tmp_path: Path) -> None:
    own = TOPDOWN + 'strategy = ["total", "detail"]\n'
    other = own.replace('"sex * age"', '"voting"') + (
        'groupings = { voting = { of = "age", groups = { voter = ["adult", "old"], minor = ["child"] } } }\n'
    )
    first, second = (TABLES.plan(write(tmp_path, topdown=text)).measurement_plan for text in (own, other))
    assert first.digest == second.digest
    outcome = release(write(tmp_path, topdown=other), tmp_path / "out")
    assert failing(outcome.folder) == []
    assert "voting" in pq.read_table(outcome.folder / "estimates.parquet").column("query").to_pylist()


BY_LEVEL = (
    TOPDOWN
    + """strategy = ["total", "sex", "detail"]
shares = [["1", "0", "0"], ["1/4", "1/4", "1/2"], ["0", "0", "1"]]
"""
)


def test_shares_by_level_are_paid_told_and_used(tmp_path: Path) -> None:
    config = write(tmp_path, REPLACE, BY_LEVEL, more=STATES)
    plan = TABLES.plan(config)
    amounts = [[float(cost.amount * 3) for cost in level] for level in plan.detail.table_queries.plan.costs]
    np.testing.assert_allclose(amounts, np.multiply([[1, 0, 0], [0.25, 0.25, 0.5], [0, 0, 1]], amounts[0][0]))
    outcome = release(config, tmp_path / "out")
    assert failing(outcome.folder) == []
    table_queries = outcome.manifest["budget"]["questions"]
    measurement_plan = [(row["level"], row["query"]) for row in table_queries if row["query"].startswith("table")]
    assert measurement_plan == [
        (0, "table total"), (1, "table total"), (1, "table sex"), (1, "table detail"), (2, "table detail"),
    ]  # fmt: skip
    measurement = measure(config).measurement
    assert isinstance(linear_estimates(measurement, full=True), FullInformation)
    assert failing(estimate(measurement).save(tmp_path / "alone")) == []
    rows = {(row["level"], row["query"]): row for row in forecast(config).as_dict()["predictions"]}
    assert rows["state", "total"]["standard_error"] == 0.0  # exact
    assert rows["county", "sex"]["standard_error"] < rows["county", "sex"]["standard_error_alone"]
    # A list for all levels is written as one.
    assert TABLES.section_of(TABLES.plan(write(tmp_path)).measurement_plan)["shares"] == ["1/3"] * 3


def test_predicted_errors_are_those_of_many_measurements(tmp_path: Path) -> None:
    plan = TABLES.plan(write(tmp_path))
    predicted = {(row["level"], row["query"]): row for row in forecast(plan.config).as_dict()["predictions"]}
    assert all(row["standard_error"] <= row["standard_error_alone"] + 1e-9 for row in predicted.values())
    counts = TABLES.read(plan)
    query = next(candidate for candidate in plan.detail.workload if candidate.text == "sex")
    truth = counts.answers_to(query.operator, plan.measurement_plan.hierarchy.level_range(1))
    errors = []
    for seed in range(200):
        linear = linear_estimates(measure_tables(counts, plan.detail.table_queries.plan, source=SeededNoise(seed)))
        errors.append(query.operator.apply(linear.tables(1)) - truth)
    # 800 errors, of which those of a region's two answers are correlated: within 20 % at four deviations.
    observed = float(np.sqrt(np.mean(np.square(errors))))
    assert observed == pytest.approx(predicted["state", "sex"]["standard_error"], rel=0.2)


def test_public_records_rehearse_whole_releases(tmp_path: Path) -> None:
    config = write(tmp_path, REPLACE, more=STATES, data=bounds(tmp_path, "land/s0,total,total,9000,"))
    (tmp_path / "public.csv").write_text(records(200))
    prediction = forecast(config, tmp_path / "public.csv", runs=2)
    rows = {(row["level"], row["query"]): row["mean_error"] for row in prediction.as_dict()["rehearsed"]}
    assert rows["state", "total"] == 0.0  # exact
    assert rows["county", "sex"] > 0.0
    assert len(prediction.predicted.tables) == 2
    assert dict(prediction.predicted.notes)["Rehearsed on"].startswith("the public records public.csv")


def test_cells_that_no_query_measures_are_called_guesses(tmp_path: Path) -> None:
    """Two marginals leave the cells open, unless one of them has an answer for each cell that can occur."""
    attributes = TOPDOWN.splitlines()[0]
    notes = TABLES.plan(write(tmp_path, topdown=f'{attributes}\nworkload = ["sex", "age"]\n')).notes
    assert any("the counts of sex * age in the released tables are guesses" in note for note in notes)
    config = write(tmp_path, topdown=f'{attributes}\nworkload = ["sex", "age"]\n')
    outcome = release(config, tmp_path / "out", page=render_report)
    page = (outcome.folder / "report.html").read_text(encoding="utf-8")
    assert "No query measured the cells" in page
    assert "The cells are guesses: not measured, but shared out" in page
    assert outcome.manifest["cells_measured"] is False
    # The figure shows what was measured, in every region.
    packed = re.search(r'id="explorer-data">([A-Za-z0-9+/=]*)</script>', page)
    assert packed is not None
    explored = json.loads(gzip.decompress(base64.b64decode(packed[1])))
    values = {"sex": ("female", "male"), "age": ("child", "adult", "old")}
    assert explored["labels"] == [f"{name} = {value}" for name in values for value in values[name]]
    frame = pd.read_parquet(outcome.folder / "tables.parquet")
    for place, region in enumerate(frame.drop_duplicates("region")["region"]):
        rows = slice(sum(explored["rows"][:place]), sum(explored["rows"][: place + 1]))
        shown = dict(zip(explored["keys"][rows], explored["values"][rows], strict=True))
        own = frame[frame["region"] == region]
        assert explored["weight"][place] == own["persons"].sum()
        for key, label in enumerate(explored["labels"]):
            name, value = label.split(" = ")
            assert shown.get(key, 0) == own.loc[own[name] == value, "persons"].sum()
    for workload, more in (
        ('["sex", "detail"]', ""),
        ('["sex * age"]', ""),
        ('["sex", "age"]', 'structural_zeros = ["sex = male & age = adult | old", "sex = female & age = child"]'),
    ):
        plan = TABLES.plan(write(tmp_path, topdown=f"{attributes}\nworkload = {workload}\n{more}\n"))
        assert not any("guesses" in note for note in plan.notes)


def test_the_page_of_a_posterior_has_the_intervals_of_the_file_for_every_cell_it_shows(tmp_path: Path) -> None:
    config = write(tmp_path, topdown=f'{TOPDOWN}\nestimation = "posterior"')
    outcome = release(config, tmp_path / "out", page=render_report)
    packed = re.search(
        r'id="explorer-data">([A-Za-z0-9+/=]*)</script>', (outcome.folder / "report.html").read_text(encoding="utf-8")
    )
    assert packed is not None
    explored = json.loads(gzip.decompress(base64.b64decode(packed[1])))
    ends = pd.read_parquet(outcome.folder / "intervals.parquet")
    ends = ends[ends["query"] == "detail"].set_index(["region", "answer"])
    paths = list(pd.read_parquet(outcome.folder / "hierarchy.parquet")["region"])
    regions = [path for path, rows in zip(paths, explored["rows"], strict=True) for _ in range(rows)]
    names = ("sex", "age")
    for place, (region, key) in enumerate(zip(regions, explored["keys"], strict=True)):
        values = explored["labels"][key].split(", ")
        own = ends.loc[region, ", ".join(f"{name} = {value}" for name, value in zip(names, values, strict=True))]
        assert (explored["lower"][place], explored["upper"][place]) == (own["lower"], own["upper"])
        assert own["lower"] <= explored["values"][place] <= own["upper"]


def test_nine_in_ten_errors_lie_in_their_range(tmp_path: Path) -> None:
    """Ten made populations, sparse and dense, even and skewed: none has the weights of the simulated persons."""
    inside, counted = 0, 0
    plan = TABLES.plan(write(tmp_path, SEEDED))
    queries, workload = plan.detail.table_queries, plan.detail.workload
    method = TABLES.method(plan.config, plan.measurement_plan).topdown
    ranges = {(row["level"], row["query"]): row for row in forecast(plan.config).as_dict()["rehearsed"]}
    for case in range(10):
        rng = np.random.default_rng(case)
        persons, leaves = int(40 * 3 ** (case % 5)), len(queries.hierarchy.leaves)
        cells = rng.dirichlet(np.full(queries.schema.size, 1.0 + case % 3))
        sizes = rng.lognormal(0.0, 0.5, leaves)
        where = (
            rng.choice(leaves, persons * leaves, p=sizes / sizes.sum()),
            rng.choice(cells.size, persons * leaves, p=cells),
        )
        counts = TableCounts.from_microdata(queries.hierarchy, queries.schema, *where)
        result, _ = rehearsal.rehearsed(counts, queries, method, SolverChoices(), case)
        for level, name in enumerate(plan.measurement_plan.levels):
            for query in workload:
                truth = counts.answers_to(query.operator, counts.hierarchy.level_range(level))
                error, row = np.abs(result.answers(query.operator, level) - truth).mean(), ranges[name, query.text]
                inside, counted = inside + (row["low"] <= error <= row["high"]), counted + 1
    assert inside >= 0.9 * counted
    assert all(row["high"] < 20 * row["low"] for row in ranges.values() if row["level"] == "county")


def test_errors_in_a_part_of_the_regions_grow_to_those_of_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = write(tmp_path, topdown=f'{TOPDOWN}estimation = "bottom_up"\n')
    full = forecast(config, runs=20).as_dict()["rehearsed"]
    monkeypatch.setattr(rehearsal, "_REHEARSED", (5, 5))
    part = forecast(config, runs=20)
    assert "in 5 of 9 regions, extrapolated" in dict(part.predicted.notes)["Rehearsed on"]
    for row, other in zip(part.as_dict()["rehearsed"], full, strict=True):
        assert row["mean_error"] == pytest.approx(other["mean_error"], rel=0.5)


def test_a_workload_that_is_not_measured_is_said(tmp_path: Path) -> None:
    reporter = Heard()
    release(write(tmp_path, topdown=TOPDOWN + 'strategy = ["total"]\n'), tmp_path / "out", reporter=reporter)
    assert sum("Not determined" in line for line in reporter.lines) == 2


@pytest.mark.parametrize("estimation", ["full", "classic", "bottom_up"])
def test_nobody_at_all_can_be_released(tmp_path: Path, estimation: str) -> None:
    topdown = f'{TOPDOWN}estimation = "{estimation}"\nmicrodata = true\n'
    nobody = "region_id,sex,age,count\nr00,male,old,0\n"
    outcome = release(write(tmp_path, SEEDED.replace('"2"', '"300"'), topdown, persons=nobody), tmp_path / "out")
    assert failing(outcome.folder) == []
    assert read_tables_release(outcome.folder).table("land").tolist() == [0] * 6


@pytest.mark.parametrize("estimation", ["full", "bottom_up"])
def test_one_region_alone_can_be_released(tmp_path: Path, estimation: str) -> None:
    topdown = f'{TOPDOWN}estimation = "{estimation}"\nmicrodata = true\n'
    persons = "region_id,sex,age,count\nr,male,old,1000000\nr,female,child,2\nr,female,old,0\n"
    config = write(tmp_path, SEEDED.replace('"2"', '"300"'), topdown, persons=persons)
    (tmp_path / "hierarchy.csv").write_text("region_id,nation\nr,land\n")
    outcome = release(config, tmp_path / "out")
    assert failing(outcome.folder) == []
    assert read_tables_release(outcome.folder).table("land").tolist() == [2, 0, 0, 0, 0, 1_000_000]


def test_levels_that_are_done_are_kept_with_their_certificates(tmp_path: Path) -> None:
    config, folder = write(tmp_path), tmp_path / "scratch"
    measurement = measure(config).measurement
    method = TABLES.method(config, measurement.measurement_plan)
    first = TABLES.estimate(measurement, method, Work(SolverChoices(), scratch=folder))
    assert [path.name for path in folder.iterdir()] == ["levels-002"]
    again = TABLES.estimate(measurement, method, Work(SolverChoices(), scratch=folder))
    assert [again.level(level).tolist() for level in range(3)] == [first.level(level).tolist() for level in range(3)]
    assert again.certificates == first.certificates


def test_solvers_are_compared_on_a_split_and_a_rounding_of_made_persons(tmp_path: Path) -> None:
    comparison = compare(write(tmp_path, SECURE), size=60)
    assert {row.problem for row in comparison.rows} == {"topdown_split", "table_rounding"}
    assert comparison.caught
    assert not comparison.missed
    assert comparison.data.startswith("simulated persons")


@pytest.mark.parametrize("privacy", [SEEDED, REPLACE])
def test_neighbours_differ_by_one_person_and_keep_exact_answers(tmp_path: Path, privacy: str) -> None:
    replaced = privacy == REPLACE
    plan = TABLES.plan(write(tmp_path, privacy, more=STATES if replaced else ""))
    like = TABLES.simulated_data(plan, branches=2)
    assert like.plan.measurement_plan.hierarchy.regions == 7
    assert like.plan.measurement_plan.region_ids[-1] == "r11"
    pair = TABLES.neighbours(like)
    first, second = (TABLES.statistics(like.plan.measurement_plan, table) for table in (pair.first, pair.second))
    apart = {name: np.abs(first[name] - second[name]).sum() for name in first}
    assert set(apart.values()) <= {0, 1, 2}
    assert apart["county"] == (2 if replaced else 1)
    exact = (noisy(like.plan, table, SeededNoise(1)) for table in (pair.first, pair.second))
    constraints = [TableMeasurements.of(measurement).invariants.bounds for measurement in exact]
    assert all(np.array_equal(a.lower, b.lower) for a, b in zip(*constraints, strict=True))


def test_made_data_show_the_errors(tmp_path: Path) -> None:
    config = write(tmp_path)
    private = TABLES.read(TABLES.plan(config))
    result = release(config, tmp_path / "out", page=render_report, truth=Truth(private)).estimate
    assert result is not None
    (errors,) = result.errors().values()
    released = result.result.level(2)
    assert errors[2] == pytest.approx(np.abs(released - private.level_tables(2)).sum(axis=1).mean())
    assert "<h2>Error by level</h2>" in (tmp_path / "out/report.html").read_text()


def test_a_draft_is_a_configuration_once_values_are_filled_in(tmp_path: Path) -> None:
    header = ("region_id", "sex", "age group", "count")
    assert TABLES.file_key(header) == "records"
    assert TABLES.file_key(("region_id", "nation")) == "hierarchy"
    assert TABLES.file_key(("region", "query", "answer", "lower", "upper")) == "bounds"
    assert TABLES.file_key(("entity_id", "group_id")) is None
    draft = TABLES.draft({"records": header, "hierarchy": ("region_id", "nation", "state")})
    section = draft.section.replace("[topdown]\n", "", 1).replace("= [] ", '= ["a", "b"] ')
    assert '"age group" = ["a", "b"]' in section
    config = write(tmp_path, topdown=section.split("[solvers]")[0])
    assert list(config.method.attributes) == ["sex", "age group"]
    assert config.method.workload == ("total", "sex", "age group", "detail")
