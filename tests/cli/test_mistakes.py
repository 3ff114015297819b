"""Every mistake a user can make: nothing is paid, one clear line says where and what to do, and no value is in it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import coco_opt.cli
from coco_opt.errors import BudgetError, CocoOptError, SolverError
from tests.cli.helpers import CANARY, KINDS, SECURE, Data, Runner, paid, write_groups, write_sizes

ONCE = ["GRANTED", "RESERVED", "MEASURED", "RELEASED"]


def told(ran: object, *, code: int = 2) -> str:
    """Return the one line that says what is wrong."""
    assert ran.code == code, ran  # type: ignore[attr-defined]
    printed = ran.out.splitlines()  # type: ignore[attr-defined]
    assert all(line.startswith("Chosen from public numbers") for line in printed)
    (line,) = ran.errors  # type: ignore[attr-defined]
    assert "Traceback" not in ran.err  # type: ignore[attr-defined]
    return str(line)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_no_such_file_and_a_name_of_300_characters(kind: str, tmp_path: Path, coco: Runner) -> None:
    data = KINDS[kind]
    config = data.write(tmp_path, privacy=SECURE)
    text = config.read_text()
    for key in data.files:
        for name in ("absent", "x" * 300):
            config.write_text(text.replace(f'"{key}.csv"', f'"{name}.csv"'))
            line = told(coco("release", config))
            assert f"{name}.csv" in line
            assert "[file-not-found]" in line or "[unreadable-file]" in line
    config.write_text(text)
    line = told(coco("release", config, "--out", tmp_path / ("y" * 300)))
    assert "[cannot-write]" in line
    assert paid(tmp_path) == []
    assert coco("release", config, "--out", tmp_path / "out").code == 0
    assert paid(tmp_path) == ONCE


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_folders_that_cannot_be_written(kind: str, tmp_path: Path, coco: Runner) -> None:
    data = KINDS[kind]
    config = data.write(tmp_path, privacy=SECURE)
    assert "cannot be made" in told(coco("release", config, "--out", "/proc/coco/out"))
    assert "[cannot-write]" in told(coco("measure", config, "--publish", "/proc/coco"))
    text = config.read_text()
    for key, name in (("private", "/proc/private"), ("directory", "/proc/releases")):
        config.write_text(f'{text}\n[output]\n{key} = "{name}"\n')
        assert "cannot be made" in told(coco("release", config))
        assert f"[output.{key}] no file can be made in the folder '/proc': " in told(coco("check", config))
    (tmp_path / "taken").write_text("")
    config.write_text(f'{text}\n[output]\nprivate = "taken"\n')
    assert f"[output.private] no file can be made in the folder '{tmp_path / 'taken'}': " in told(coco("check", config))
    config.write_text(text)
    (tmp_path / "out").mkdir()
    for arguments in (("release", config, "--out"), ("measure", config, "--publish")):
        assert "[folder-exists]" in told(coco(*arguments, tmp_path / "out"))
        assert "apart from the private folder" in told(coco(*arguments, tmp_path / "private" / "out"))
    assert paid(tmp_path) == []


def test_a_private_folder_that_others_can_enter_is_refused(tmp_path: Path, coco: Runner) -> None:
    config = write_sizes(tmp_path, privacy=SECURE)
    (tmp_path / "private").mkdir(mode=0o755)
    (tmp_path / "private").chmod(0o755)
    assert "run chmod 700 on it" in told(coco("release", config))
    (tmp_path / "private").chmod(0o700)
    assert coco("release", config).code == 0
    assert paid(tmp_path) == ONCE


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ('"hihgs"', "did you mean 'highs'"),
        ('"pav"', "cannot express isotonic_l1"),
        ('{ name = "highs", tolerence = 1 }', "did you mean 'tolerance'"),
        ('{ name = "auto", tolerance = 1.0 }', "'auto' takes no options"),
        ('{ name = "osqp", eps_abs = -1.0 }', "check its options (OSQPException"),
        ('"cvxpy:NOPE"', "CVXPY has no engine 'NOPE'"),
    ],
)
def test_bad_solver_choices(choice: str, words: str, tmp_path: Path, coco: Runner) -> None:
    config = write_sizes(tmp_path, privacy=SECURE)
    text = config.read_text()
    config.write_text(f"{text}\n[solvers]\nisotonic_l1 = {choice}\n")
    line = told(coco("release", config))
    assert line.startswith("error: run.toml: [solvers.isotonic_l1")
    assert words in line
    assert paid(tmp_path) == []
    config.write_text(text)
    assert coco("release", config).code == 0
    assert paid(tmp_path) == ONCE


def test_a_release_names_chosen_solvers_that_it_had_no_problem_for(tmp_path: Path, coco: Runner) -> None:
    config = write_sizes(tmp_path, more='[solvers]\nisotonic_l1 = "highs"')
    assert "of [solvers]" not in coco("release", config).out
    unused = "of [solvers] isotonic_l1: this method has no such problem"
    config.write_text(config.read_text().replace('"matching"', '"posterior"'))
    assert unused in " ".join(coco("release", config).out.split())


def test_a_solver_without_its_package(tmp_path: Path, coco: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    config = write_sizes(tmp_path, privacy=SECURE, more='[solvers]\nisotonic_l1 = "piqp"')
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "piqp", None)  # what an absent package looks like
        line = told(coco("release", config))
    assert "pip install" in line
    assert "piqp" in line
    assert paid(tmp_path) == []
    assert coco("release", config).code == 0
    assert paid(tmp_path) == ONCE


def test_too_many_groups_to_match_are_found_before_the_payment(tmp_path: Path, coco: Runner) -> None:
    config = write_sizes(
        tmp_path,
        f"country,county,size,groups\nland,north,1,{10**12}\nland,south,2,3\n",
        privacy=SECURE,
    )
    assert "matching takes at most" in told(coco("release", config))
    assert paid(tmp_path) == []


def test_a_solver_that_misses_its_tolerance_is_replaced_and_named(tmp_path: Path, coco: Runner) -> None:
    crippled = '[solvers]\nisotonic_l1 = { name = "osqp", max_iter = 1 }'
    config = write_sizes(tmp_path, privacy=SECURE, more=crippled)
    ran = coco("release", config, "--out", tmp_path / "out")
    assert ran.code == 0
    assert "divide-and-conquer answered" in ran.out
    assert "Answers of other solvers" in (tmp_path / "out" / "report.html").read_text()
    row = json.loads((tmp_path / "out" / "manifest.json").read_text())["solvers"]["isotonic_l1"]
    assert {fallback["solver"] for fallback in row["fallbacks"]} == {row["solver"]} == {"osqp"}
    assert row["worst_relative_gap"] <= 1e-6
    config.write_text(config.read_text().replace("[solvers]", "[solvers]\nfallback = false"))
    refused = coco("release", config)
    assert refused.code == 4
    assert "No further payment is needed" in refused.errors[0]
    assert paid(tmp_path) == ONCE


@pytest.mark.parametrize("verb", ["check", "plan", "measure", "release", "compare", "ledger", "audit"])
def test_wrong_paths(verb: str, tmp_path: Path, coco: Runner) -> None:
    absent = tmp_path / "absent.toml"
    assert "absent.toml: no such config file: write one with  coco-opt init FILES" in told(coco(verb, absent))
    (tmp_path / "near.toml").touch()
    assert "absent.toml: no such config file; there is near.toml" in told(coco(verb, absent))


def test_what_is_no_measurement(tmp_path: Path, coco: Runner) -> None:
    for verb in ("estimate", "compare"):
        assert "is no measurement" in told(coco(verb, tmp_path))
    config = write_groups(tmp_path)
    assert "is no measurement" in told(coco("estimate", "20260101T000000Z-00000000", config))
    data = KINDS["ranges"].write(tmp_path / "ranges")
    assert coco("measure", data, "--publish", tmp_path / "open").code == 0
    assert "use a [ranges] section" in told(coco("estimate", tmp_path / "open", config))


def test_usage_errors(coco: Runner) -> None:
    assert coco("relase").code == 2
    assert coco("verify").code == 2
    assert coco("compare", "x.toml", "--size", "nought").code == 2
    for number in ("1.000", "1,000", "1 000", "1e3"):
        assert f"'{number}' is no integer: write digits alone, without separators of thousands, such as 1000" in (
            coco("plan", "x.toml", "--rows", number).err
        )
    assert "must be at least 0" in coco("plan", "x.toml", "--rows", "-1").err
    assert coco("--nonsense").err.startswith("error: No such option")
    assert "--epsilon is no option: set epsilon in [privacy] of the" in coco("release", "x.toml", "--epsilon", "2").err
    bare = coco()
    assert bare.code == 2
    assert "release" in bare.out


JSON_ERRORS: list[tuple[tuple[str, ...], int, str]] = [
    (("release", "absent.toml"), 2, "bad-config"),
    (("verify", "absent"), 2, "file-not-found"),
    (("release", "run.toml", "--out", "taken"), 2, "folder-exists"),
    (("plan", "run.toml", "--runs", "none"), 2, "usage"),
    (("ledger", "run.toml", "--grant", "1"), 3, "budget"),
]


@pytest.mark.parametrize(("arguments", "exit_code", "code"), JSON_ERRORS)
def test_errors_as_json(
    arguments: tuple[str, ...],
    exit_code: int,
    code: str,
    tmp_path: Path,
    coco: Runner,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    write_groups(tmp_path)
    Path("taken").mkdir()
    ran = coco(*arguments, "--json")
    assert ran.code == exit_code
    found = json.loads(ran.out)["error"]
    assert (found["exit_code"], found["code"]) == (exit_code, code)
    assert f"error: {found['message']}" in ran.err


class SpillingError(Exception):
    """Any error of any package."""


def failing(error: BaseException) -> Callable[..., int]:
    def run(*_: object, **__: object) -> int:
        raise error

    return run


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (CocoOptError("plain"), 2, "plain"),
        (BudgetError("spent"), 3, "spent"),
        (SolverError("missed"), 4, "missed"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (MemoryError(), 2, "out of memory"),
        (OSError(12, "Cannot allocate memory"), 2, "out of memory"),
        (RuntimeError("can't start new thread"), 2, "out of memory"),
    ],
)
def test_exit_codes(error: BaseException, code: int, words: str, coco: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COCO_OPT_DEBUG", raising=False)
    monkeypatch.setattr(coco_opt.cli, "_command", lambda: type("C", (), {"main": failing(error)}))
    assert words in told(coco("solvers"), code=code)
    assert json.loads(coco("solvers", "--json").out)["error"]["exit_code"] == code


def test_unexpected_errors_show_their_type_only(monkeypatch: pytest.MonkeyPatch, coco: Runner) -> None:
    monkeypatch.delenv("COCO_OPT_DEBUG", raising=False)
    error = SpillingError(f"row {CANARY}")
    monkeypatch.setattr(coco_opt.cli, "_command", lambda: type("C", (), {"main": failing(error)}))
    ran = coco("solvers")
    assert ran.code == 1
    assert "SpillingError" in ran.err
    assert CANARY not in ran.err + ran.out
    monkeypatch.setenv("COCO_OPT_DEBUG", "1")
    with pytest.raises(SpillingError):
        coco("solvers")


def test_an_existing_target_is_refused_before_the_private_table_is_read(tmp_path: Path, coco: Runner) -> None:
    config = write_groups(tmp_path, entities="broken")
    (tmp_path / "out").mkdir()
    assert "[folder-exists]" in told(coco("release", config, "--out", tmp_path / "out"))


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_an_empty_file_name_is_no_path(kind: str, tmp_path: Path, coco: Runner) -> None:
    data: Data = KINDS[kind]
    config = data.write(tmp_path)
    key = next(iter(data.files))
    config.write_text(config.read_text().replace(f'"{key}.csv"', '""'))
    assert f"[data.{key}] must be a path" in told(coco("check", config))
    config.write_text(config.read_text().replace('""', f'"{os.sep}"'))
    assert coco("check", config).code == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("entity_id,group_id\ne1,g1\r\ne2,g2\n", "row 2: ends in CRLF (Windows), and the rows before it in LF (Unix)"),
        ("entity_id,group_id\r\ne1,g1\r\ne2,g2\ne3,g3\r\n", "row 3: ends in LF (Unix), and the rows before it in CRLF"),
        ('entity_id,group_id\r\n"e\n1",g1\r\ne2,g2\n', "row 3: ends in LF"),
        ('entity_id,group_id\r\n"e1\nx",g1\r\n"e2,g2\r\n"e3\nx",g3\r\n', "row 3: has an unclosed or misplaced quote"),
        ('entity_id,group_id\n"e1,g1\n', "row 2: has an unclosed or misplaced quote"),
        ("\ufeff\r\n", "entities.csv: is empty"),
        ("PK\x03\x04...", "entities.csv: is a workbook (.xlsx, .ods) or a zip archive"),
    ],
)
def test_the_row_where_line_ends_change_or_a_quote_is_missing_is_named(
    text: str, words: str, tmp_path: Path, coco: Runner
) -> None:
    config = write_groups(tmp_path)
    (tmp_path / "entities.csv").write_bytes(text.encode())
    assert words in told(coco("check", config))


def test_a_missing_column_lists_those_there_are_but_no_first_row_of_data(tmp_path: Path, coco: Runner) -> None:
    line = told(coco("check", write_groups(tmp_path, groups="group_id,area\ng1,r1\n")))
    assert "the table has 'group_id', 'area': say what a column is called there by columns = {" in line
    line = told(coco("check", write_groups(tmp_path, entities="entity_id, group_id\ne1,g1\n")))
    assert "the table has ' group_id': remove the spaces around the name" in line
    wide = ",".join(["group_id", *(f"c{k}" for k in range(20))])
    assert "'c10', 9 not shown:" in told(coco("check", write_groups(tmp_path, groups=f"{wide}\n")))
    assert CANARY not in told(coco("check", write_groups(tmp_path, entities=f"{CANARY},g1\n")))
    line = told(coco("check", write_groups(tmp_path, entities=f"entity_id,{CANARY}\n")))
    assert "the table has 'entity_id', 1 not shown:" in line
    assert CANARY not in line
