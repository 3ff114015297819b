"""Every verb on every kind: the command line asks none which it is."""

from __future__ import annotations

import csv
import json
import re
from fractions import Fraction
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
import pytest

from coco_opt.config import load_config
from coco_opt.privacy.accounting import rho_of_epsilon_delta
from tests.cli.helpers import KINDS, SECURE, Data, Runner, paid, write_sizes

GAUSSIAN = 'mechanism = "discrete_gaussian"\n'
PAIR = GAUSSIAN + 'epsilon = "1"\ndelta = "1/1000000"\n' + SECURE


@pytest.fixture(params=sorted(KINDS))
def data(request: pytest.FixtureRequest) -> Data:
    return KINDS[request.param]


def test_check_reads_everything_pays_nothing_and_says_no_count(data: Data, tmp_path: Path, coco: Runner) -> None:
    config = data.write(tmp_path, privacy=SECURE)
    ran = coco("check", config)
    assert (ran.code, ran.errors) == (0, [])
    for key in data.files:
        assert re.search(rf"{key} +{key}\.csv +(private|public) +every row is fine", ran.out)
    rows = max(len(text.splitlines()) - 1 for text in data.files.values())
    assert str(rows) not in ran.out + ran.err
    assert not (tmp_path / "private").exists()
    found = json.loads(coco("check", config, "--json").out)
    assert [row["key"] for row in found["files"]] == list(data.files)
    assert [row["private"] for row in found["files"]].count(True) == 1
    assert found["cost"] == {"epsilon": "1"}


def test_check_counts_groups_above_the_bound_for_the_holder_alone(tmp_path: Path, coco: Runner) -> None:
    sizes = "nation,size,groups\nland,3,4\nland,20,7\nland,21,2\nland,30,1\n"
    config = write_sizes(tmp_path, sizes)
    found = coco("check", config)
    assert "Groups larger than max_size = 20: 3. Each counts as a group of 20, which leaves out 12 of" in found.out
    assert "larger" not in coco("check", config, "--json").out + coco("measure", config).out
    config = write_sizes(tmp_path, sizes.replace("land,21,2\nland,30,1\n", ""))
    assert "larger" not in coco("check", config).out


def test_check_tries_the_solvers_and_the_method(data: Data, tmp_path: Path, coco: Runner) -> None:
    kind = sorted(data.problems)[0]
    config = data.write(tmp_path, more=f'[solvers]\n{kind} = "brute-farce"')
    (line,) = coco("check", config).errors
    assert f"[solvers.{kind}]" in line


def test_plan_states_costs_from_public_facts_alone(data: Data, tmp_path: Path, coco: Runner) -> None:
    config = data.write(tmp_path, privacy=SECURE)
    (tmp_path / f"{next(iter(data.files))}.csv").unlink()  # the private table
    ran = coco("plan", config, "--runs", "1")
    assert (ran.code, ran.errors) == (0, [])
    for words in ("Queries", "epsilon = 1", "geometric noise of scale", "zCDP rho = 1/2", "Memory", "Nothing was"):
        assert words in ran.out
    found = json.loads(coco("plan", config, "--json", "--runs", "1").out)
    assert sum(Fraction(row["cost"]["epsilon"]) for row in found["questions"]) == Fraction(found["epsilon"]) == 1
    assert found["memory_bytes"] > 0
    assert not (tmp_path / "private").exists()


def test_a_pair_buys_more_than_zcdp_says_and_what_is_released_keeps_it(
    data: Data, tmp_path: Path, coco: Runner
) -> None:
    config = data.write(tmp_path, privacy=PAIR)
    assert coco("release", config, "--out", tmp_path / "out", "--json").code == 0
    budget = json.loads((tmp_path / "out" / "manifest.json").read_text())["budget"]
    planned = json.loads(coco("plan", config, "--json", "--runs", "1").out)
    assert planned["rho"] == budget["rho"]
    assert planned["implied"] == budget["implied"]
    assert budget["asked"] == {"epsilon": "1", "delta": "1/1000000"}
    zcdp = rho_of_epsilon_delta(Fraction(1), Fraction(1, 10**6))
    assert Fraction(21, 20) < Fraction(budget["rho"]) / zcdp < Fraction(6, 5)
    assert Fraction(99, 100) < Fraction(budget["implied"]["curve"]["1/1000000"]) <= 1
    assert "would keep" not in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert re.search("together are .epsilon, delta.-differentially private, with epsilon at most 0[.0-9]+ at", page)
    assert re.search("; epsilon at most (0.99[0-9]*|1) at delta = 1/1000000; epsilon at most 1[.0-9]+ at", page)
    assert coco("verify", tmp_path / "out", "--ledger", config).code == 0
    assert coco("release", config, "--out", tmp_path / "again").code == 0
    assert paid(tmp_path).count("RESERVED") == 1


def test_measured_once_estimated_in_every_way(data: Data, tmp_path: Path, coco: Runner) -> None:
    config, published = data.write(tmp_path, privacy=SECURE), tmp_path / "open"
    ran = coco("measure", config, "--publish", published)
    assert (ran.code, ran.errors) == (0, [])
    assert "This opens the account of dataset 'land'" in ran.out
    assert "\nPRIVATE: epsilon = 1 spent" in ran.out
    assert "paid now" in ran.out
    again = json.loads(coco("measure", config, "--json").out)
    assert (again["paid"], again["epsilon"], again["status"]) == (False, "1", "private")
    assert paid(tmp_path) == ["GRANTED", "RESERVED", "MEASURED"]
    (stored,) = tmp_path.glob("private/runs/*/measurement")
    assert "--publish DIR publishes it for free [file-not-found]" in coco("export", stored).errors[0]
    (tmp_path / f"{next(iter(data.files))}.csv").unlink()

    by_folder, by_run, by_default = (tmp_path / name for name in ("folder", "run", "default"))
    config.write_text(config.read_text() + f"{data.other}\n")
    assert coco("estimate", published, config, "--out", by_folder).code == 0
    assert coco("estimate", again["run"], config, "--out", by_run).code == 0
    assert coco("estimate", published, "--out", by_default).code == 0
    assert [coco("verify", folder).code for folder in (by_folder, by_run, by_default)] == [0, 0, 0]
    method, default = (json.loads((folder / "manifest.json").read_text()) for folder in (by_run, by_default))
    assert (by_folder / "manifest.json").read_bytes() == (by_run / "manifest.json").read_bytes()
    assert method["measurement"] == default["measurement"]
    assert method["config"] != default["config"]
    assert default["config"]["privacy"]["epsilon"] == "1"
    assert paid(tmp_path) == ["GRANTED", "RESERVED", "MEASURED", "RELEASED"]

    assert coco("estimate", again["run"]).errors[0].endswith("name its configuration too [file-not-found]")
    assert coco("estimate", published, config, "--out", by_run).code == 2


def test_another_budget_in_the_config_is_not_claimed_by_an_estimate(data: Data, tmp_path: Path, coco: Runner) -> None:
    config, published = data.write(tmp_path), tmp_path / "open"
    assert coco("measure", config, "--publish", published).code == 0
    config.write_text(config.read_text().replace('epsilon = "1"', 'epsilon = "7"').replace("seed = 5", "seed = 6"))
    assert coco("estimate", published, config, "--out", tmp_path / "out").code == 0
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["config"]["privacy"]["epsilon"] == manifest["budget"]["epsilon"] == "1"


def test_release_verify_and_ledger(data: Data, tmp_path: Path, coco: Runner) -> None:
    config, out = data.write(tmp_path, privacy=SECURE), tmp_path / "out"
    ran = coco("release", config, "--out", out)
    assert (ran.code, ran.errors) == (0, [])
    assert "This opens the account of dataset 'land'" in ran.out
    assert "\nPRIVATE: epsilon = 1 spent" in ran.out
    verified = coco("verify", out, "--ledger", config)
    assert verified.code == 0
    assert "paid" in verified.out
    assert "recorded" in verified.out
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "NOT PRIVATE" not in page
    assert "http" not in page

    found = json.loads(coco("ledger", config, "--json").out)
    assert [account["left"] for account in found["accounts"]] == ["0"]
    (run,) = found["runs"]
    assert (run["state"], run["estimable"], run["amount"]) == ("RELEASED", True, "1")
    assert Path(run["measurement"]).is_dir()
    again = json.loads(coco("release", config, "--json").out)
    assert (again["paid"], again["run"]) == (False, run["run"])
    assert coco("ledger", config, "--forget", run["run"]).code == 0
    (run,) = json.loads(coco("ledger", config, "--json").out)["runs"]
    assert (run["estimable"], run["measurement"]) == (False, None)
    assert coco("estimate", run["run"], config).code == 2


def test_verify_tells_what_was_paid_from_what_is_claimed(data: Data, tmp_path: Path, coco: Runner) -> None:
    config, out = data.write(tmp_path, privacy=SECURE), tmp_path / "out"
    assert coco("release", config, "--out", out).code == 0
    manifest = json.loads((out / "manifest.json").read_text())
    manifest["budget"]["epsilon"] = "1/10"
    (out / "manifest.json").write_text(json.dumps(manifest))
    found = json.loads(coco("verify", out, "--ledger", config, "--json").out)
    failed = {check["name"] for check in found["checks"] if not check["passed"]}
    assert {"paid", "recorded"} <= failed
    other = data.write(tmp_path / "elsewhere", privacy=SECURE)
    assert "no run of this ledger measured these queries" in coco("verify", out, "--ledger", other).out


def test_a_seeded_release_says_so_and_pays_nothing(data: Data, tmp_path: Path, coco: Runner) -> None:
    config = data.write(tmp_path)
    found = json.loads(coco("release", config, "--out", tmp_path / "out", "--json").out)
    assert found["status"] == "NOT PRIVATE"
    assert found["solvers"]
    assert "NOT PRIVATE" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert coco("verify", tmp_path / "out", "--ledger", config).code == 0
    measured = json.loads(coco("measure", config, "--json").out)
    (run,) = json.loads(coco("ledger", config, "--json").out)["runs"]
    assert (run["run"], run["state"], run["estimable"]) == (measured["run"], "NOT PRIVATE", True)
    assert coco("estimate", measured["run"], config, "--out", tmp_path / "again").code == 0
    assert coco("ledger", config, "--forget", measured["run"]).code == 0
    assert json.loads(coco("ledger", config, "--json").out)["runs"] == []
    assert paid(tmp_path) == []


def test_compare_runs_every_solver_and_catches_the_planted_answer(data: Data, tmp_path: Path, coco: Runner) -> None:
    config, table = data.write(tmp_path), tmp_path / "rows.csv"
    ran = coco("compare", config, "--size", "8", "--json", "--csv", table)
    rows = json.loads(ran.out)["rows"]
    assert ran.code in (0, 4)
    assert {row["problem"] for row in rows} == data.problems
    assert {row["status"] for row in rows if row["planted"]} == {"GAP_TOO_LARGE"}
    certified = [row for row in rows if row["status"] == "OPTIMAL"]
    assert {"highs", "piqp", "clarabel"} <= {row["solver"] for row in certified}
    assert all(abs(row["difference"]) <= 2 * row["tolerance"] + 1e-9 for row in certified)
    with table.open(newline="") as file:
        assert [row["solver"] for row in csv.DictReader(file)] == [row["solver"] for row in rows]


def test_compare_takes_made_data_or_a_measurement_where_noise_is_private(
    data: Data, tmp_path: Path, coco: Runner
) -> None:
    config, published = data.write(tmp_path, privacy=SECURE), tmp_path / "open"
    made = json.loads(coco("compare", config, "--size", "3", "--json").out)
    assert "was not opened" in made["data"]
    assert paid(tmp_path) == []
    run = json.loads(coco("measure", config, "--publish", published, "--json").out)["run"]
    for target in ((published,), (run, "--config", config)):
        found = json.loads(coco("compare", *target, "--size", "3", "--json").out)
        assert "nothing more is spent" in found["data"]
        assert data.problems <= {row["problem"] for row in found["rows"]}  # without the config, those of the default
    assert paid(tmp_path) == ["GRANTED", "RESERVED", "MEASURED"]


def test_releases_under_several_keys_are_compared_without_the_private_table(
    data: Data, tmp_path: Path, coco: Runner
) -> None:
    config, table = data.write(tmp_path, privacy=SECURE), tmp_path / "errors.csv"
    settings = load_config(config)
    for table_key in settings.private_tables:
        source = settings.data.table_of(table_key)
        if source.path is not None:
            source.path.unlink()
    grid = ("--vary", "privacy.epsilon=1/4,8", "--vary", "solvers.default=auto,highs")
    ran = coco("compare", config, *grid, "--runs", "3", "--json", "--csv", table, "--profile", tmp_path / "picture")
    assert ran.code == 0, ran.err
    rows = json.loads(ran.out)["rows"]
    levels = dict.fromkeys(row["level"] for row in rows)
    errors = {(row["privacy.epsilon"], row["solvers.default"], row["level"]): row["error"] for row in rows}
    assert len(errors) == 4 * len(levels)
    assert all(
        errors["8", solver, level] < errors["1/4", solver, level] for solver in ("auto", "highs") for level in levels
    )
    with table.open(newline="") as file:
        assert [row["level"] for row in csv.DictReader(file)] == [row["level"] for row in rows]
    assert (tmp_path / "picture.png").stat().st_size > 0
    assert paid(tmp_path) == []


def test_a_combination_that_cannot_be_released_says_why(data: Data, tmp_path: Path, coco: Runner) -> None:
    config = data.write(tmp_path, privacy=SECURE)
    for wrong, words in (("loss=l1", "--vary loss=l1: write SECTION.KEY"), ("solvers.defalt=highs", "did you mean")):
        refused = coco("compare", config, "--vary", wrong)
        assert (refused.code, words in refused.err) == (2, True), refused.err
    ran = coco("compare", config, "--vary", "solvers.default=auto,gurobi", "--runs", "1", "--json")
    notes = [row["note"] for row in json.loads(ran.out)["rows"]]
    assert ("no solver is called 'gurobi'" in notes[-1], notes[0]) == (True, "")


def test_estimating_a_published_measurement_needs_nothing_that_it_does_not_use(
    data: Data, tmp_path: Path, coco: Runner
) -> None:
    config, published = data.write(tmp_path, privacy=SECURE, more=data.other), tmp_path / "open"
    assert coco("measure", config, "--publish", published).code == 0
    section = data.section.splitlines()[0]
    short = tmp_path / "short.toml"
    short.write_text(f"{section}\n{data.other}\n", encoding="utf-8")
    for name, file in (("long", config), ("short", short)):
        assert coco("estimate", published, file, "--out", tmp_path / name).code == 0
    manifests = [json.loads((tmp_path / name / "manifest.json").read_text()) for name in ("long", "short")]
    long, short_files = ({k: v for k, v in one["files"].items() if k.endswith(".parquet")} for one in manifests)
    assert long == short_files
    assert manifests[0]["budget"]["questions"] == manifests[1]["budget"]["questions"]
    assert coco("verify", tmp_path / "short").code == 0
    assert coco("compare", published, "--config", short, "--size", "3").code == 0
    (tmp_path / "other.toml").write_text(f"[{'ranges' if section != '[ranges]' else 'groups'}]\n", encoding="utf-8")
    assert f"use a {section} section" in coco("estimate", published, tmp_path / "other.toml").err


def test_check_says_what_is_left_and_whether_it_fits(data: Data, tmp_path: Path, coco: Runner) -> None:
    config = data.write(tmp_path, privacy=f'{SECURE}\ntotal = "3/2"')
    assert "opens one of epsilon = 3/2" in coco("check", config).out
    assert paid(tmp_path) == []
    assert coco("measure", config).code == 0
    ran = coco("check", config)
    assert ran.code == 0
    assert "nothing: run" in ran.out
    assert "was paid to measure the same" in ran.out
    planned = coco("plan", config, "--runs", "1").out
    assert re.search(r"Next: coco-opt release \S+\s+pays nothing, unless the data changed \(run", planned)
    config.write_text(config.read_text().replace('epsilon = "1"', 'epsilon = "2/3"'), encoding="utf-8")
    ran = coco("check", config)
    assert ran.code == 3
    assert "DOES NOT FIT: 1/2 of epsilon = 3/2 is left" in ran.out
    assert "--grant" in ran.out
    planned = coco("plan", config, "--runs", "1")
    assert "would be refused. It DOES NOT FIT: 1/2 of epsilon = 3/2 is left" in " ".join(planned.out.split())
    assert "makes the release" not in planned.out
    found = coco("check", config, "--json")
    assert found.code == 3
    assert json.loads(found.out)["budget"]["left"] == "1/2"
    config.write_text(config.read_text().replace('epsilon = "2/3"', 'epsilon = "1/2"'), encoding="utf-8")
    assert "fits: 1/2 of epsilon = 3/2 is left" in coco("check", config).out
    assert coco("measure", config).code == 0
    seeded = data.write(tmp_path / "seeded")
    assert "pays nothing" in coco("check", seeded).out


@pytest.mark.parametrize("delimiter", [",", ";"])
def test_tables_are_written_as_csv_that_spreadsheets_open(
    data: Data, delimiter: str, tmp_path: Path, coco: Runner
) -> None:
    folder, out = tmp_path / "release", tmp_path / "tables"
    assert coco("release", data.write(tmp_path), "--out", folder).code == 0
    assert coco("export", folder, "--out", out, "--delimiter", delimiter).code == 0
    assert coco("verify", folder).code == 0
    tables = sorted(folder.glob("*.parquet"))
    assert sorted(path.stem for path in out.glob("*.csv")) == [path.stem for path in tables]
    described = {resource["path"] for resource in json.loads((out / "datapackage.json").read_text())["resources"]}
    assert described == {path.name for path in out.glob("*.csv")}
    about = (out / "README.txt").read_text(encoding="utf-8-sig")
    for path in tables:
        text = out / f"{path.stem}.csv"
        assert text.read_bytes().startswith(b"\xef\xbb\xbf")
        known = pd.read_parquet(path)
        with text.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.reader(file, delimiter=delimiter))
        assert [name for name in rows[0] if name in known.columns] == list(known.columns)
        assert all(f"\n{name}: " in about for name in rows[0])
        assert len(rows) - 1 == len(known)
        if {"size", "groups"} <= set(known.columns):
            place = rows[0].index("groups")
            assert [int(row[place]) for row in rows[1:]] == known["groups"].tolist()
    assert "[bad-option]" in coco("export", folder, "--xlsx", "--raw").err
    if find_spec("xlsxwriter"):
        for name in ("book", "book.xlsx"):
            made = coco("export", folder, "--xlsx", "--out", tmp_path / name)
            assert (made.code, "book.xlsx" in made.out) == (0, True)
            (tmp_path / "book.xlsx").unlink()
            assert json.loads((tmp_path / "book.datapackage.json").read_text())["resources"][0]["path"] == "book.xlsx"
    assert "[folder-exists]" in coco("export", folder, "--out", out).err
    assert "[file-not-found]" in coco("export", tmp_path, "--out", tmp_path / "none").err
    assert not (tmp_path / "none").exists()
