"""The TOML contract: every key, its default, and one clear line for every mistake."""

from __future__ import annotations

import json
import math
import re
from fractions import Fraction
from pathlib import Path

import pytest

from coco_opt import Epsilon, Rho, make_solver
from coco_opt.config import Config, SolverChoice, configure, load_config, parse_config
from coco_opt.errors import ConfigError
from coco_opt.problems import PROBLEMS
from coco_opt.releases.solvers import solvers_of, try_solvers

MINIMAL = """
[data]
entities = "persons.parquet"
groups = "groups.parquet"
hierarchy = "tables/hierarchy.csv"
[privacy]
epsilon = "1"
dataset = "persons-2026"
[groups]
max_size = 100000
"""

FULL = """
[data]
sizes = "sizes.csv"
root = "hawaii"
[privacy]
epsilon = "3/2"
split = ["1/3", "0.25", "5/12"]
mechanism = "geometric"
noise = "seeded"
seed = 7
neighbours = "replace"
[groups]
max_size = 900
query = ["cumulative", "ranks", "sizes"]
loss = ["l1", "l2", "l2"]
ties = "midpoint"
consistency = "none"
merge = "average"
rounding = "half_even"
variances = "formula"
[solvers]
isotonic_l1 = "highs"
isotonic_l2 = { name = "osqp", eps_abs = 1e-9, polish = true }
fallback = false
[engine]
workers = 3
[output]
directory = "out"
private = "/secret/place"
"""


def change(text: str, old: str, new: str) -> Config:
    assert old in text
    return parse_config(text.replace(old, new), Path("/data/here"), file="run.toml")


def failure(text: str, old: str = "", new: str = "") -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        change(text, old, new)
    assert caught.value.__context__ is None
    assert "pydantic" not in str(caught.value)
    return caught.value


def test_every_key_can_be_set() -> None:
    config = parse_config(FULL, "/data/here")
    assert config.data.root == "hawaii"
    assert config.privacy.epsilon == Fraction(3, 2)
    assert config.levels_cost(3) == (Epsilon(Fraction(1, 2)), Epsilon(Fraction(3, 8)), Epsilon(Fraction(5, 8)))
    assert (config.privacy.seed, config.privacy.neighbours) == (7, "replace")
    assert config.per_level(config.method.query, 3, "groups.query") == ("cumulative", "ranks", "sizes")
    assert config.per_level(config.method.loss, 3, "groups.loss") == ("l1", "l2", "l2")
    assert (config.solvers.fallback, config.engine.workers) == (False, 3)
    assert config.solvers.chosen() == {
        "isotonic_l1": SolverChoice("highs"),
        "isotonic_l2": SolverChoice("osqp", {"eps_abs": 1e-9, "polish": True}),
    }
    assert config.output.private == Path("/secret/place")


def test_a_split_may_leave_levels_out() -> None:
    leaves = change(MINIMAL, 'epsilon = "1"', 'epsilon = "1"\nsplit = "leaves"')
    assert leaves.levels_cost(3) == (Epsilon(Fraction(0)), Epsilon(Fraction(0)), Epsilon(Fraction(1)))
    listed = change(MINIMAL, 'epsilon = "1"', 'epsilon = "1"\nsplit = [0, "1"]')
    assert listed.levels_cost(2) == leaves.levels_cost(2)


@pytest.mark.parametrize("levels", [2, 4])
def test_a_list_needs_one_entry_a_level(levels: int) -> None:
    config = parse_config(FULL, ".", file="run.toml")
    with pytest.raises(ConfigError, match=rf"run\.toml: \[privacy\.split\] has 3 entries, .* {levels} levels"):
        config.levels_cost(levels)
    with pytest.raises(ConfigError, match=r"\[groups\.loss\] has 3 entries"):
        config.per_level(config.method.loss, levels, "groups.loss")


@pytest.mark.parametrize(
    ("text", "cost"),
    [
        ('epsilon = "3/2"', Epsilon(Fraction(3, 2))),
        ('mechanism = "discrete_gaussian"\nrho = "1/8"', Rho(Fraction(1, 8))),
    ],
)
def test_a_budget_is_a_cost(text: str, cost: Epsilon | Rho) -> None:
    assert change(MINIMAL, 'epsilon = "1"', text).privacy.cost == cost


def test_epsilon_and_delta_stand_for_the_largest_rho_that_implies_them() -> None:
    pair = 'mechanism = "discrete_gaussian"\nepsilon = "1"\ndelta = "1/1000000"'
    cost = change(MINIMAL, 'epsilon = "1"', pair).privacy.cost
    assert isinstance(cost, Rho)
    assert Fraction(999, 1000) < cost.epsilon(Fraction(1, 10**6)) <= 1


@pytest.mark.parametrize(
    ("value", "expected"),
    [("1", Fraction(1)), ('"0.1"', Fraction(1, 10)), ('"1/3"', Fraction(1, 3)), ('"10"', Fraction(10))],
)
def test_epsilon_is_exact(value: str, expected: Fraction) -> None:
    assert change(MINIMAL, 'epsilon = "1"', f"epsilon = {value}").privacy.epsilon == expected


BAD_VALUES = [
    ("privacy.epsilon", 'epsilon = "1"', "epsilon = 0.1", "write a string"),
    ("privacy.epsilon", 'epsilon = "1"', 'epsilon = "0.0"', "greater than zero"),
    ("privacy.epsilon", 'epsilon = "1"', 'epsilon = "-1"', "nonnegative"),
    ("privacy.epsilon", 'epsilon = "1"', 'epsilon = "1e3"', "decimal or fraction"),
    ("privacy.epsilon", 'epsilon = "1"', 'epsilon = "1/0"', "denominator"),
    ("privacy.epsilon", 'epsilon = "1"', "", "required"),
    ("privacy.split", 'epsilon = "1"', 'epsilon = "1"\nsplit = ["0.5", "0.4"]', "sum to 9/10"),
    ("privacy.split", 'epsilon = "1"', 'epsilon = "1"\nsplit = []', "one share a level"),
    (
        "privacy.delta",
        'epsilon = "1"',
        'epsilon = "1"\nmechanism = "discrete_gaussian"',
        "required together with epsilon",
    ),
    ("privacy.rho", 'epsilon = "1"', 'mechanism = "discrete_gaussian"', "required by mechanism"),
    (
        "privacy.epsilon",
        'epsilon = "1"',
        'mechanism = "discrete_gaussian"\ndelta = "0.1"',
        "required together with delta",
    ),
    ("privacy.epsilon", 'epsilon = "1"', 'epsilon = "1"\nmechanism = "discrete_gaussian"\nrho = "1"', "not both"),
    ("privacy.delta", 'epsilon = "1"', 'mechanism = "discrete_gaussian"\nrho = "1"\ndelta = "0.1"', "not both"),
    (
        "privacy.delta",
        'epsilon = "1"',
        'epsilon = "1"\nmechanism = "discrete_gaussian"\ndelta = "1"',
        "between 0 and 1",
    ),
    (
        "privacy.mechanism",
        'epsilon = "1"',
        'epsilon = "1"\nmechanism = "laplace"',
        "one of geometric",
    ),
    ("privacy", 'epsilon = "1"', 'epsilon = "1"\nnoise = "seeded"', "needs a seed"),
    ("privacy", 'epsilon = "1"', 'epsilon = "1"\nseed = 3', "accepts none"),
    ("privacy.rho", 'epsilon = "1"', 'epsilon = "1"\nrho = "0.1"', 'needs mechanism = "discrete_gaussian"'),
    ("privacy.delta", 'epsilon = "1"', 'epsilon = "1"\ndelta = "0.1"', 'needs mechanism = "discrete_gaussian"'),
    ("privacy.total", 'epsilon = "1"', 'epsilon = "1"\ntotal = 0.5', "not exact"),
    ("privacy.dataset", '"persons-2026"', '" x"', "text on one line"),
    ("privacy.dataset", 'dataset = "persons-2026"', "", "is required where noise is private"),
    ("privacy.max_size", 'epsilon = "1"', 'epsilon = "1"\nmax_size = 3', "belongs in [groups]"),
    ("groups.epsilon", "max_size", 'epsilon = "1"\nmax_size', "belongs in [privacy]"),
    ("privacy.zzz", 'epsilon = "1"', 'epsilon = "1"\nzzz = 3', "valid keys are epsilon"),
    ("groups.max_size", "max_size = 100000", "", "required"),
    ("groups.max_size", "max_size = 100000", "max_size = 0", "greater than or equal to 1"),
    ("groups.max_size", "max_size = 100000", "max_size = true", "integer"),
    ("groups.query", "max_size = 100000", "max_size = 9\nquery = []", "empty"),
    ("groups.loss", "max_size = 100000", 'max_size = 9\nloss = ["l1", "l3"]', "one of auto, l1, l2"),
    ("data", 'groups = "groups.parquet"', "", "groups missing"),
    ("data", 'groups = "groups.parquet"', 'groups = "g.csv"\nsizes = "s.csv"', "stands alone"),
    ("output.folder", "[groups]", '[output]\nfolder = "x"\n[groups]', "valid keys are directory, private"),
    ("solvers.tree", "[groups]", '[solvers]\ntree = "pav"\n[groups]', "cannot express tree_l2"),
    ("solvers.tree_l1", "[groups]", '[solvers]\ntree_l1 = "highs"\n[groups]', "it is 'integer_tree_l1' now"),
    ("solvers.isotonic_l1", "[groups]", "[solvers]\nisotonic_l1 = { eps = 1 }\n[groups]", "name"),
    ("solvers.isotonic_l1", "[groups]", '[solvers]\nisotonic_l1 = {name="a", x=[1]}\n[groups]', "option 'x'"),
    ("ranges", "[groups]", "[ranges]\n[groups]", "a file releases one kind of data"),
    ("engine.workers", "[groups]", "[engine]\nworkers = 0\n[groups]", "greater than or equal to 1"),
    ("solvers.fallback", "[groups]", "[solvers]\nfallback = 1\n[groups]", "true or false"),
    ("privcy", "[groups]", "[privcy]\n[groups]", "did you mean 'privacy'"),
    ("data", "[data]", "[date]", "required"),
]


@pytest.mark.parametrize(("key", "old", "new", "words"), BAD_VALUES)
def test_a_bad_value_names_its_key(key: str, old: str, new: str, words: str) -> None:
    error = failure(MINIMAL, old, new)
    lines = [line for line in str(error).splitlines() if f"[{key}]" in line]
    assert any(words in line for line in lines), str(error)
    assert error.exit_code == 2


def test_all_mistakes_are_reported_together_one_line_each() -> None:
    text = MINIMAL.replace('"1"', '"-1"').replace("max_size = 100000", 'max_size = 0\nmerg = "average"')
    error = failure(text)
    assert error.key == "privacy.epsilon"
    lines = str(error).splitlines()
    assert len(lines) == 3
    assert all(line.startswith("run.toml: [") for line in lines)


def test_values_from_python_are_checked_too() -> None:
    privacy = {"epsilon": Fraction(1, 7), "dataset": "d"}
    source = {"data": {"sizes": "s.csv"}, "privacy": privacy, "groups": {"max_size": 3}}
    assert parse_config(source, ".").privacy.epsilon == Fraction(1, 7)
    negative = {**privacy, "split": [Fraction(2), Fraction(-1)]}
    with pytest.raises(ConfigError, match=r"privacy\.split"):
        parse_config({**source, "privacy": negative}, ".")


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("invariants", {"total": "land"}, "must be a list of tables, such as [{ query = ..., level = ... }]"),
        ("invariants", ["total"], "must be a table, such as { query = ..., level = ... }"),
        ("constraints", "total >= 1", "must be a list of tables, such as [{ holds = ... }]"),
        ("counts", ["a"], "must be a table, such as { name = ... }"),
        ("microdata", "true", "must be true or false, without quotes"),
        ("rows_a_person", "2", "must be an integer, without quotes"),
        ("rows_a_person", 2.5, "must be an integer"),
        ("intervals", "0.9", "must be a number, without quotes"),
    ],
)
def test_a_value_of_a_wrong_type_says_what_it_must_be(key: str, value: object, words: str) -> None:
    tables = {"attributes": {"sex": ["f", "m"]}, "workload": ["total"], key: value}
    source = {"data": {"records": "r.csv", "hierarchy": "h.csv"}, "privacy": {"epsilon": "1"}, "topdown": tables}
    with pytest.raises(ConfigError) as wrong:
        parse_config(source, ".")
    assert words in str(wrong.value)
    assert "valid" not in str(wrong.value)


def test_sections_must_be_tables() -> None:
    with pytest.raises(ConfigError, match="must be a table"):
        parse_config({"data": 3, "privacy": {"epsilon": "1"}, "groups": {"max_size": 3}}, ".")


def test_files_that_are_no_config(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such config file"):
        load_config(tmp_path / "absent.toml")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(tmp_path)
    broken = tmp_path / "broken.toml"
    broken.write_text("[data\n")
    with pytest.raises(ConfigError, match=r"broken\.toml: is not valid TOML.*line 1"):
        load_config(broken)
    for line, advice in (
        ("età = 1", 'in quotes, such as "età"'),
        ("[topdown.groupings.yaş5]", 'in quotes, such as [topdown.groupings."yaş5"]'),
        ("types.öğrenci yurdu = {}", 'in quotes, such as types."öğrenci yurdu"'),
        ("age = 0..15", 'in quotes, such as "0..15"'),
        (r'records = "C:\daten\p.csv"', "write paths with /, or between single quotes"),
        (r'records = "C:\users\p.csv"', "write paths with /"),
        ('records = "p.csv', "a quotation mark is missing"),
    ):
        broken.write_text(f"[data]\n{line}\n", encoding="utf-8")
        with pytest.raises(ConfigError, match=f"line 2.*{re.escape(advice)}"):
            load_config(broken)
    broken.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="UTF-8"):
        load_config(broken)


def test_as_dict_is_json_without_machine_paths() -> None:
    config = parse_config(FULL, "/home/person/project")
    plain = config.as_dict()
    text = json.dumps(plain)
    assert "/home" not in text
    assert "/secret" not in text
    assert plain["privacy"]["epsilon"] == "3/2"
    assert plain["privacy"]["split"] == ["1/3", "1/4", "5/12"]
    assert plain["data"] == {"root": "hawaii"}  # a private file's name stays at home
    assert plain["solvers"]["isotonic_l2"] == {"name": "osqp", "eps_abs": 1e-9, "polish": True}
    again = parse_config({**plain, "data": {**plain["data"], "sizes": "sizes.csv"}}, "/home/person/project")
    assert again.as_dict() == plain


def test_a_solver_itself_stands_for_its_name() -> None:
    tolerant = make_solver("clarabel", tolerance=1e-5)
    config = configure(parse_config(MINIMAL, "."), solvers={"isotonic_l2": tolerant})
    plain = config.as_dict()["solvers"]["isotonic_l2"]
    assert (plain["name"], plain["tolerance"]) == ("clarabel", 1e-5)
    assert solvers_of(configure(config, groups={"max_size": 9})) == {"isotonic_l2": tolerant}
    with pytest.raises(ConfigError, match=r"solvers.isotonic_l1\] fails already on a tiny problem: .*pav"):
        try_solvers(configure(config, solvers={"isotonic_l1": make_solver("pav")}))
    with pytest.raises(ConfigError, match="must be a solver's name"):
        configure(config, solvers={"isotonic_l1": type(tolerant)})
    endless = make_solver("clarabel")
    object.__setattr__(endless, "tolerance", math.inf)  # as a solver of another package may state it
    plain = configure(config, solvers={"isotonic_l2": endless}).as_dict()["solvers"]["isotonic_l2"]
    assert json.loads(json.dumps(plain, allow_nan=False))["name"] == "clarabel"
    assert "tolerance" not in plain


def chosen(section: str) -> dict[str, str]:
    choices = parse_config(f"{MINIMAL}[solvers]\n{section}", ".").solvers.chosen()
    return {kind: choice.name for kind, choice in choices.items()}


def test_a_default_serves_every_problem_that_its_solver_can_express() -> None:
    assert chosen('default = "highs"') == dict.fromkeys(PROBLEMS, "highs")
    linear = chosen('default = "scipy"')
    assert {"isotonic_l1", "joint_l1", "table_rounding"} < linear.keys() < set(PROBLEMS)
    assert linear.keys().isdisjoint({"isotonic_l2", "topdown_split"})


def test_a_problem_s_own_key_comes_before_its_step_s_and_the_default() -> None:
    names = chosen('default = "highs"\nisotonic = "piqp"\nisotonic_l1 = "auto"\njoint = "scipy"')
    assert {kind: names[kind] for kind in ("isotonic_l1", "isotonic_l2", "joint_l1", "joint_l2", "tree_l2")} == {
        "isotonic_l1": "auto",
        "isotonic_l2": "piqp",
        "joint_l1": "scipy",
        "joint_l2": "highs",
        "tree_l2": "highs",
    }


@pytest.mark.parametrize(
    ("section", "key", "words"),
    [
        ('default = "gurobi"', "solvers.default", "no solver is called 'gurobi'"),
        ('isotonic_l2 = "gurobi"', "solvers.isotonic_l2", "known: pav, scipy-pava"),
        ('tree = { name = "highs", speed = 3 }', "solvers.tree.speed", "no option"),
    ],
)
def test_an_error_names_the_key_that_chose_the_solver(section: str, key: str, words: str) -> None:
    config = parse_config(f"{MINIMAL}[solvers]\n{section}", ".")
    with pytest.raises(ConfigError, match=rf"{re.escape(key)}\] .*{re.escape(words)}"):
        solvers_of(config)


def test_a_solver_itself_serves_one_problem() -> None:
    config = configure(parse_config(MINIMAL, "."), solvers={"default": make_solver("highs")})
    with pytest.raises(ConfigError, match="use that one's key"):
        solvers_of(config)


@pytest.mark.parametrize(
    ("directory", "private"),
    [
        ("releases", "releases/p"),
        ("releases", "releases"),
        ("releases", "./x/../releases/p"),
        ("private/out", "private"),
        (".", "private"),
        ("real", "link/p"),
        ("link", "real/p"),
        ("link/out", "real"),
        ("real", "into/p"),
    ],
)
def test_what_is_private_lies_apart_from_what_is_published(directory: str, private: str, tmp_path: Path) -> None:
    (tmp_path / "real" / "p").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "into").symlink_to(Path("real") / "p")
    config = MINIMAL + f'[output]\ndirectory = "{directory}"\nprivate = "{private}"\n'
    with pytest.raises(ConfigError) as caught:
        parse_config(config, tmp_path)
    assert caught.value.key == "output.private"


def test_a_ledger_lies_apart_from_what_is_published_and_like_names_do_not_matter(tmp_path: Path) -> None:
    assert parse_config(MINIMAL + '[output]\nprivate = "releases-private"\n', tmp_path).output.private
    (tmp_path / "link").symlink_to(tmp_path / "releases")
    named = MINIMAL.replace("[privacy]\n", '[privacy]\nledger = "link/ledger.sqlite"\n')
    with pytest.raises(ConfigError, match="ledger"):
        parse_config(named, tmp_path)
