"""Every mistake a user can make: exit code 2, one clear line that says where, and no private value in it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import coco_opt.cli
from coco_opt.errors import BudgetError, CocoOptError, SolverError
from tests.cli.helpers import (
    CANARY,
    ENTITIES,
    GROUPS,
    HIERARCHY,
    SIZES,
    Runner,
    write_config,
    write_sizes,
    write_tables,
)

BAD_TABLES = [
    (
        "group-in-two-leaves",
        {"groups": GROUPS + "g1,r2\n"},
        ("groups.csv", "row 7", "column 'group_id'"),
    ),
    (
        "two-parents",
        {"hierarchy": HIERARCHY + "r1,land,south\n"},
        ("hierarchy.csv", "row 4", "column 'region_id'"),
    ),
    ("unknown-group", {"entities": ENTITIES + f"e99,{CANARY}\n"}, ("entities.csv", "row 12", "'group_id'")),
    ("duplicate-entity", {"entities": ENTITIES + "e3,g4\n"}, ("entities.csv", "row 12", "'entity_id'")),
    ("unknown-region", {"groups": GROUPS + "g9,r9\n"}, ("groups.csv", "row 7", "'region_id'")),
    ("missing-column", {"groups": "group_id,area\ng1,r1\n"}, ("groups.csv", "row 1", "'region_id'")),
    ("no-header", {"entities": f"{CANARY},g1\ne2,g1\n"}, ("entities.csv", "row 1")),
    ("empty-file", {"entities": ""}, ("entities.csv",)),
]


@pytest.mark.parametrize(("code", "texts", "wheres"), BAD_TABLES, ids=[row[0] for row in BAD_TABLES])
def test_bad_tables(code: str, texts: dict[str, str], wheres: tuple[str, ...], tmp_path: Path, coco: Runner) -> None:
    ran = coco("release", write_tables(tmp_path, **texts), "--out", tmp_path / "out")
    assert (ran.code, ran.out) == (2, "")
    (line,) = ran.err.splitlines()
    assert line.startswith("error: ")
    assert f"[{code}]" in line
    assert [where for where in wheres if where not in line] == []
    assert CANARY not in line
    assert "Traceback" not in ran.err
    assert not (tmp_path / "out").exists()


def test_negative_size(tmp_path: Path, coco: Runner) -> None:
    ran = coco("release", write_sizes(tmp_path, SIZES + "land,south,-73,2\n"), "--out", tmp_path / "out")
    assert ran.code == 2
    (line,) = ran.err.splitlines()
    assert "sizes.csv, row 6, column 'size'" in line
    assert "[negative-size]" in line
    assert "73" not in line


def test_unknown_config_key(tmp_path: Path, coco: Runner) -> None:
    config = write_config(tmp_path, 'sizes = "sizes.csv"', groups='max_size = 20\nestimatr = "rank"')
    ran = coco("release", config)
    assert ran.code == 2
    (line,) = ran.err.splitlines()
    assert "run.toml: [groups.estimatr]" in line
    assert "did you mean 'estimator'?" in line


@pytest.mark.parametrize("verb", ["release", "compare"])
def test_wrong_paths(verb: str, tmp_path: Path, coco: Runner) -> None:
    absent = coco(verb, tmp_path / "absent.toml")
    assert absent.code == 2
    assert "absent.toml: no such config file" in absent.err
    table = coco(verb, write_config(tmp_path, 'sizes = "absent.csv"'))
    assert table.code == 2
    assert "absent.csv" in table.err
    assert "[file-not-found]" in table.err
    assert len(absent.err.splitlines()) == len(table.err.splitlines()) == 1


def test_no_budget_is_left_without_a_share(tmp_path: Path, coco: Runner) -> None:
    config = write_tables(tmp_path)
    groups = 'max_size = 20\nconsistency = "bottom_up"'
    data = 'entities = "entities.csv"\ngroups = "groups.csv"\nhierarchy = "hierarchy.csv"'
    privacy = 'noise = "seeded"\nseed = 5\nsplit = ["1/2", "1/2"]'
    write_config(tmp_path, data, groups=groups, privacy=privacy)
    ran = coco("release", config)
    assert ran.code == 2
    assert "[privacy.split]" in ran.err


@pytest.mark.parametrize(
    ("solvers", "words"),
    [
        ('isotonic_l1 = "hihgs"', "did you mean 'highs'"),
        ('isotonic_l1 = "pav"', "cannot express isotonic_l1"),
        ('isotonic_l1 = { name = "highs", tolerence = 1 }', "[solvers.isotonic_l1.tolerence] is no option of"),
        ('isotonic_l1 = { name = "highs", tolerence = 1 }', "did you mean 'tolerance'"),
        ('isotonic_l1 = { name = "auto", tolerance = 1.0 }', "'auto' takes no options"),
        ('isotonic_l1 = { name = "osqp", max_iter = 1 }', "fails already on a tiny problem"),
        ('isotonic_l1 = { name = "osqp", eps_abs = -1.0 }', "check its options (OSQPException"),
        ('isotonic_l1 = "cvxpy:NOPE"', "CVXPY has no engine 'NOPE'"),
    ],
)
def test_bad_solver_choices(solvers: str, words: str, tmp_path: Path, coco: Runner) -> None:
    config = write_sizes(tmp_path)
    config.write_text(config.read_text() + f"\n[solvers]\n{solvers}\n")
    ran = coco("release", config, "--out", tmp_path / "out")
    assert ran.code == 2
    assert words in ran.err
    assert ran.err.startswith("error: run.toml: [solvers.isotonic_l1")
    assert len(ran.err.splitlines()) == 1
    assert ran.out == ""
    assert not (tmp_path / "private").exists()


@pytest.mark.parametrize("option", ['estimator = ["rank"]', 'loss = ["l1", "l1", "l1"]'])
def test_a_list_that_does_not_fit_the_hierarchy_names_file_and_key(option: str, tmp_path: Path, coco: Runner) -> None:
    config = write_sizes(tmp_path)
    config.write_text(config.read_text() + f"{option}\n")
    ran = coco("release", config)
    assert ran.code == 2
    assert ran.err.startswith(f"error: run.toml: [groups.{option.split()[0]}] has ")
    assert ran.err.rstrip().endswith("but the hierarchy has 2 levels")


def test_too_many_groups_to_match_are_found_before_the_budget_is_spent(tmp_path: Path, coco: Runner) -> None:
    config = write_sizes(tmp_path, f"country,county,size,groups\nland,north,1,{10**12}\nland,south,2,3\n")
    ran = coco("release", config)
    assert ran.code == 2
    assert "matching takes at most" in ran.err
    assert not (tmp_path / "private").exists()
    config.write_text(config.read_text() + 'consistency = "none"\n')
    assert coco("release", config).code == 0


def test_an_existing_target_is_refused_before_the_private_table_is_read(tmp_path: Path, coco: Runner) -> None:
    config = write_tables(tmp_path, entities="broken")
    (tmp_path / "out").mkdir()
    ran = coco("release", config, "--out", tmp_path / "out")
    assert ran.code == 2
    assert "[folder-exists]" in ran.err


def test_usage_errors(coco: Runner) -> None:
    assert coco("relase").code == 2
    assert coco("verify").code == 2
    assert coco("compare", "x.toml", "--size", "nought").code == 2
    assert coco("--nonsense").err.startswith("error: No such option")
    bare = coco()
    assert bare.code == 2
    assert "release" in bare.out


class SpillingError(Exception):
    """Any error of any package."""


def fail_with(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(argv: object) -> int:
        raise error

    monkeypatch.setattr(coco_opt.cli, "_run", run)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (CocoOptError("plain"), 2),
        (BudgetError("spent"), 3),
        (SolverError("missed"), 4),
        (KeyboardInterrupt(), 130),
    ],
)
def test_exit_codes(error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch, coco: Runner) -> None:
    fail_with(error, monkeypatch)
    ran = coco("solvers")
    assert ran.code == code
    assert len(ran.err.splitlines()) == 1


def test_unexpected_errors_show_their_type_only(monkeypatch: pytest.MonkeyPatch, coco: Runner) -> None:
    monkeypatch.delenv("COCO_OPT_DEBUG", raising=False)
    fail_with(SpillingError(f"row {CANARY}"), monkeypatch)
    ran = coco("solvers")
    assert ran.code == 1
    assert "SpillingError" in ran.err
    assert CANARY not in ran.err + ran.out
    monkeypatch.setenv("COCO_OPT_DEBUG", "1")
    with pytest.raises(SpillingError):
        coco("solvers")


def test_the_installed_command(tmp_path: Path) -> None:
    """Run one whole process: version, light start, exit code, no traceback."""
    code = (
        "import sys, coco_opt.cli as c\n"
        "rc = c.main(sys.argv[1:])\n"
        "heavy = {'numba', 'scipy', 'pandas', 'duckdb', 'matplotlib', 'pydantic', 'cvxpy'} & set(sys.modules)\n"
        "print(sorted(heavy)); sys.exit(rc)\n"
    )
    version = subprocess.run([sys.executable, "-c", code, "--version"], capture_output=True, text=True, check=False)
    assert version.returncode == 0
    assert version.stdout.splitlines()[0].startswith("coco-opt ")
    assert version.stdout.splitlines()[1] == "[]"
    config = write_tables(tmp_path, entities=f"entity_id,group_id\ne1,{CANARY}\n")
    command = [sys.executable, "-m", "coco_opt.cli", "release", str(config)]
    failed = subprocess.run(command, capture_output=True, text=True, check=False, env=dict(os.environ))
    assert failed.returncode == 2
    assert failed.stdout == ""
    assert len(failed.stderr.splitlines()) == 1
    assert CANARY not in failed.stderr
