"""The TOML contract: every key, its default, and one clear line for every mistake."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest

from coco_opt.config import PROBLEM_KINDS, Config, SolverChoice, load_config, parse_config
from coco_opt.errors import ConfigError

MINIMAL = """
[data]
entities = "persons.parquet"
groups = "groups.parquet"
hierarchy = "tables/hierarchy.csv"
[privacy]
epsilon = "1"
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
estimator = ["cumulative", "rank", "naive"]
loss = ["l1", "l2", "l2"]
ties = "midpoint"
consistency = "none"
merge = "average"
rounding = "half_even"
variances = "formula"
[solvers]
isotonic_l1 = "highs"
isotonic_l2 = { name = "osqp", eps_abs = 1e-9, polish = true }
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


def test_defaults_are_those_of_the_contract() -> None:
    config = parse_config(MINIMAL, "/data/here", file="run.toml")
    assert config.name == "run"
    assert config.data.entities == Path("/data/here/persons.parquet")
    assert config.data.hierarchy == Path("/data/here/tables/hierarchy.csv")
    assert config.privacy.epsilon == 1
    assert config.privacy.mechanism == "geometric"
    assert (config.privacy.noise, config.privacy.seed) == ("secure", None)
    assert config.privacy.sensitivity_factor == 1
    groups = config.groups
    assert (groups.estimator, groups.loss, groups.ties) == ("cumulative", "l1", "upper")
    assert (groups.consistency, groups.merge, groups.rounding) == ("matching", "weighted", "half_up")
    assert groups.variances == "formula"
    assert config.solvers.chosen() == {}
    assert config.output.directory == Path("/data/here/releases")
    assert config.output.private == Path("/data/here/private")


def test_every_key_can_be_set() -> None:
    config = parse_config(FULL, "/data/here")
    assert config.data.root == "hawaii"
    assert config.privacy.epsilon == Fraction(3, 2)
    assert config.budget_shares(3) == (Fraction(1, 3), Fraction(1, 4), Fraction(5, 12))
    assert config.privacy.seed == 7
    assert config.privacy.sensitivity_factor == 2
    assert config.estimators(3) == ("cumulative", "rank", "naive")
    assert config.losses(3) == ("l1", "l2", "l2")
    assert config.solvers.chosen() == {
        "isotonic_l1": SolverChoice("highs"),
        "isotonic_l2": SolverChoice("osqp", {"eps_abs": 1e-9, "polish": True}),
    }
    assert config.output.private == Path("/secret/place")


def test_one_entry_serves_all_levels() -> None:
    config = parse_config(MINIMAL, "/data/here")
    assert config.budget_shares(4) == (Fraction(1, 4),) * 4
    assert config.estimators(2) == ("cumulative", "cumulative")
    assert config.losses(1) == ("l1",)


def test_bottom_up_spends_everything_on_the_leaves() -> None:
    text = MINIMAL + 'consistency = "bottom_up"\n'
    assert parse_config(text, ".").budget_shares(3) == (Fraction(0), Fraction(0), Fraction(1))
    listed = text.replace('epsilon = "1"', 'epsilon = "1"\nsplit = [0, 1]')
    assert parse_config(listed, ".").budget_shares(2) == (Fraction(0), Fraction(1))
    spread = text.replace('epsilon = "1"', 'epsilon = "1"\nsplit = ["0.5", "0.5"]')
    with pytest.raises(ConfigError, match="only the leaves"):
        parse_config(spread, ".").budget_shares(2)


@pytest.mark.parametrize(("levels", "key"), [(2, "privacy.split"), (4, "privacy.split")])
def test_a_list_needs_one_entry_a_level(levels: int, key: str) -> None:
    config = parse_config(FULL, ".")
    with pytest.raises(ConfigError, match=f"{levels} levels") as caught:
        config.budget_shares(levels)
    assert caught.value.key == key
    with pytest.raises(ConfigError, match=r"groups\.estimator"):
        config.estimators(levels)
    with pytest.raises(ConfigError, match=r"groups\.loss"):
        config.losses(levels)


def test_a_zero_share_is_refused_where_every_level_is_measured() -> None:
    config = change(MINIMAL, 'epsilon = "1"', 'epsilon = "1"\nsplit = ["1", "0"]')
    with pytest.raises(ConfigError, match="greater than zero"):
        config.budget_shares(2)


@pytest.mark.parametrize(
    ("value", "expected"),
    [("1", Fraction(1)), ('"0.1"', Fraction(1, 10)), ('"1/3"', Fraction(1, 3)), ('"10"', Fraction(10))],
)
def test_epsilon_is_exact(value: str, expected: Fraction) -> None:
    assert change(MINIMAL, 'epsilon = "1"', f"epsilon = {value}").privacy.epsilon == expected


BAD_VALUES = [
    ("privacy.epsilon", 'epsilon = "1"', "epsilon = 0.1", "write a string"),
    ("privacy.epsilon", 'epsilon = "1"', "epsilon = 0", "greater than zero"),
    ("privacy.epsilon", 'epsilon = "1"', 'epsilon = "0.0"', "greater than zero"),
    ("privacy.epsilon", 'epsilon = "1"', 'epsilon = "-1"', "nonnegative"),
    ("privacy.epsilon", 'epsilon = "1"', 'epsilon = "1e3"', "decimal or fraction"),
    ("privacy.epsilon", 'epsilon = "1"', 'epsilon = "1/0"', "denominator"),
    ("privacy.epsilon", 'epsilon = "1"', 'epsilon = "nan"', "decimal or fraction"),
    ("privacy.epsilon", 'epsilon = "1"', "epsilon = true", "in a string"),
    ("privacy.epsilon", 'epsilon = "1"', "", "required"),
    ("privacy.epsilonn", 'epsilon = "1"', 'epsilonn = "1"', "did you mean 'epsilon'"),
    ("privacy.split", 'epsilon = "1"', 'epsilon = "1"\nsplit = ["0.5", "0.4"]', "sum to 9/10"),
    ("privacy.split", 'epsilon = "1"', 'epsilon = "1"\nsplit = [0.5, 0.5]', "write a string"),
    ("privacy.split", 'epsilon = "1"', 'epsilon = "1"\nsplit = []', "one share a level"),
    ("privacy.split", 'epsilon = "1"', 'epsilon = "1"\nsplit = "even"', "uniform"),
    ("privacy.delta", 'epsilon = "1"', 'epsilon = "1"\nmechanism = "discrete_gaussian"', "required beside epsilon"),
    ("privacy.rho", 'epsilon = "1"', 'mechanism = "discrete_gaussian"', "required by mechanism"),
    ("privacy.epsilon", 'epsilon = "1"', 'mechanism = "discrete_gaussian"\ndelta = "0.1"', "required beside delta"),
    ("privacy.epsilon", 'epsilon = "1"', 'epsilon = "1"\nmechanism = "discrete_gaussian"\nrho = "1"', "not both"),
    ("privacy.delta", 'epsilon = "1"', 'mechanism = "discrete_gaussian"\nrho = "1"\ndelta = "0.1"', "not both"),
    ("privacy.rho", 'epsilon = "1"', 'mechanism = "discrete_gaussian"\nrho = 0.5', "write a string"),
    ("privacy.rho", 'epsilon = "1"', 'mechanism = "discrete_gaussian"\nrho = "0"', "greater than zero"),
    (
        "privacy.delta",
        'epsilon = "1"',
        'epsilon = "1"\nmechanism = "discrete_gaussian"\ndelta = "1"',
        "between 0 and 1",
    ),
    (
        "privacy.delta",
        'epsilon = "1"',
        'epsilon = "1"\nmechanism = "discrete_gaussian"\ndelta = "0"',
        "between 0 and 1",
    ),
    ("privacy.mechanism", 'epsilon = "1"', 'rho = "1"\nmechanism = "discrete_gausian"', "did you mean"),
    (
        "privacy.mechanism",
        'epsilon = "1"',
        'epsilon = "1"\nmechanism = "laplace"',
        "one of geometric",
    ),
    ("privacy.noise", 'epsilon = "1"', 'epsilon = "1"\nnoise = "seedd"', "did you mean 'seeded'"),
    ("privacy", 'epsilon = "1"', 'epsilon = "1"\nnoise = "seeded"', "needs a seed"),
    ("privacy", 'epsilon = "1"', 'epsilon = "1"\nseed = 3', "accepts none"),
    ("privacy.rho", 'epsilon = "1"', 'epsilon = "1"\nrho = "0.1"', 'needs mechanism = "discrete_gaussian"'),
    ("privacy.rho", 'epsilon = "1"', 'rho = "0.1"', 'needs mechanism = "discrete_gaussian"'),
    ("privacy.delta", 'epsilon = "1"', 'epsilon = "1"\ndelta = "0.1"', 'needs mechanism = "discrete_gaussian"'),
    ("privacy.total", 'epsilon = "1"', 'epsilon = "1"\ntotal = 0.5', "not exact"),
    ("privacy.total", 'epsilon = "1"', 'epsilon = "1"\ntotal = "0"', "greater than zero"),
    ("privacy.dataset", 'epsilon = "1"', 'epsilon = "1"\ndataset = " x"', "text on one line"),
    ("privacy.ledger", 'epsilon = "1"', 'epsilon = "1"\nledger = 3', "path"),
    ("privacy.neighbors", 'epsilon = "1"', 'epsilon = "1"\nneighbors = "replace"', "mean 'neighbours'"),
    ("privacy.max_size", 'epsilon = "1"', 'epsilon = "1"\nmax_size = 3', "belongs in [groups]"),
    ("groups.epsilon", "max_size", 'epsilon = "1"\nmax_size', "belongs in [privacy]"),
    ("privacy.zzz", 'epsilon = "1"', 'epsilon = "1"\nzzz = 3', "valid keys are epsilon"),
    ("groups.max_size", "max_size = 100000", "", "required"),
    ("groups.max_size", "max_size = 100000", "max_size = 0", "greater than or equal to 1"),
    ("groups.max_size", "max_size = 100000", 'max_size = "5"', "integer"),
    ("groups.max_size", "max_size = 100000", "max_size = 5.0", "integer"),
    ("groups.max_size", "max_size = 100000", "max_size = true", "integer"),
    ("groups.estimator", "max_size = 100000", 'max_size = 9\nestimator = "cumulativ"', "mean 'cumulative'"),
    ("groups.estimator", "max_size = 100000", "max_size = 9\nestimator = []", "empty"),
    ("groups.loss", "max_size = 100000", 'max_size = 9\nloss = ["l1", "l3"]', "one of l1, l2"),
    ("groups.consistency", "max_size = 100000", 'max_size = 9\nconsistency = "both"', "one of joint, convex"),
    ("groups.variances", "max_size = 100000", 'max_size = 9\nvariances = "paper"', "one of formula, bootstrap"),
    (
        "groups.variances",
        "max_size = 100000",
        'max_size = 9\nvariances = "bootstrap"\nconsistency = "joint"',
        'needs consistency = "matching"',
    ),
    (
        "groups.variances",
        "max_size = 100000",
        'max_size = 9\nvariances = "bootstrap"\nmerge = "average"',
        'merge = "weighted"',
    ),
    ("groups.tie", "max_size = 100000", 'max_size = 9\ntie = "upper"', "did you mean 'ties'"),
    ("data", 'groups = "groups.parquet"', "", "groups missing"),
    ("data", 'groups = "groups.parquet"', 'groups = "g.csv"\nsizes = "s.csv"', "not both"),
    ("data", 'groups = "groups.parquet"', 'groups = "g.csv"\nroot = "r"', "remove it"),
    ("data.groups", 'groups = "groups.parquet"', "groups = 3", "path"),
    ("data.heirarchy", 'hierarchy = "t', 'heirarchy = "t', "did you mean 'hierarchy'"),
    ("output.folder", "[groups]", '[output]\nfolder = "x"\n[groups]', "valid keys are directory, private"),
    ("solvers.isotonic", "[groups]", '[solvers]\nisotonic = "highs"\n[groups]', "mean 'isotonic_l"),
    ("solvers.isotonic_l1", "[groups]", "[solvers]\nisotonic_l1 = { eps = 1 }\n[groups]", "name"),
    ("solvers.isotonic_l1", "[groups]", '[solvers]\nisotonic_l1 = {name="a", x=[1]}\n[groups]', "option 'x'"),
    ("ranges", "[groups]", "[ranges]\n[groups]", "not available in this version"),
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
    source = {"data": {"sizes": "s.csv"}, "privacy": {"epsilon": Fraction(1, 7)}, "groups": {"max_size": 3}}
    assert parse_config(source, ".").privacy.epsilon == Fraction(1, 7)
    negative = {"epsilon": "1", "split": [Fraction(2), Fraction(-1)]}
    with pytest.raises(ConfigError, match=r"privacy\.split"):
        parse_config({**source, "privacy": negative}, ".")


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
    broken.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="UTF-8"):
        load_config(broken)


def test_load_config_takes_name_and_folder_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "taxi.toml"
    path.write_text(FULL)
    config = load_config(path)
    assert config.name == "taxi"
    assert config.data.sizes == tmp_path / "sizes.csv"


def test_a_config_cannot_be_changed() -> None:
    config = parse_config(MINIMAL, ".")
    with pytest.raises(AttributeError):
        config.name = "other"  # type: ignore[misc]
    with pytest.raises(ValueError, match="frozen"):
        config.groups.max_size = 3


def test_as_dict_is_json_without_machine_paths() -> None:
    config = parse_config(FULL, "/home/person/project")
    plain = config.as_dict()
    text = json.dumps(plain)
    assert "/home" not in text
    assert "/secret" not in text
    assert plain["privacy"]["epsilon"] == "3/2"
    assert plain["privacy"]["split"] == ["1/3", "1/4", "5/12"]
    assert plain["data"] == {"sizes": "sizes.csv", "root": "hawaii"}
    assert plain["solvers"]["isotonic_l2"] == {"name": "osqp", "eps_abs": 1e-9, "polish": True}
    again = parse_config(plain, "/home/person/project")
    assert again.as_dict() == plain


def test_problem_kinds_are_the_keys_of_solvers() -> None:
    text = MINIMAL + "[solvers]\n" + "".join(f'{kind} = "kernel"\n' for kind in PROBLEM_KINDS)
    assert set(parse_config(text, ".").solvers.chosen()) == set(PROBLEM_KINDS)
