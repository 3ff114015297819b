"""The section ``[topdown]``: defaults, and one clear line for every mistake."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest

from coco_opt.config import Config, parse_config
from coco_opt.errors import ConfigError

MINIMAL = """
[data]
records = "persons.parquet"
hierarchy = "hierarchy.csv"
[privacy]
epsilon = "1"
dataset = "persons"
[topdown]
attributes = { sex = ["female", "male"], age = ["child", "adult", "old"] }
workload = ["total", "sex", "sex * age"]
"""

FULL = """
[data]
records = "persons.csv"
hierarchy = "hierarchy.csv"
bounds = "facilities.csv"
[privacy]
mechanism = "discrete_gaussian"
rho = "1/2"
dataset = "persons"
[topdown]
attributes = { sex = ["female", "male"], age = ["child", "adult", "old"] }
structural_zeros = ["sex = male & age = old"]
groupings = { voting = { of = "age", groups = { minor = ["child"], voter = ["adult", "old"] } } }
workload = ["total", "voting"]
strategy = ["total", "detail"]
shares = ["1/4", "3/4"]
estimation = "classic"
rounding = "nearest"
microdata = true
[[topdown.invariants]]
query = "total"
level = "state"
[solvers]
topdown_split = "piqp"
"""


def parse(text: str) -> Config:
    return parse_config(text, Path("/data/here"), file="run.toml")


def test_a_minimal_file_has_defaults() -> None:
    config = parse(MINIMAL)
    assert (config.name, config.kind) == ("run", "tables")
    assert config.data.records == Path("/data/here/persons.parquet")
    assert config.method.attributes["age"] == ("child", "adult", "old")
    assert (config.method.strategy, config.method.shares) == ("auto", "auto")
    assert (config.method.estimation, config.method.rounding) == ("full", "passes")
    assert config.method.invariants == ()
    json.dumps(config.as_dict())


def test_a_full_file_is_read_as_it_stands() -> None:
    config = parse(FULL)
    assert config.method.shares == (Fraction(1, 4), Fraction(3, 4))
    assert [(invariant.query, invariant.level) for invariant in config.method.invariants] == [("total", "state")]
    assert config.method.groupings["voting"].groups["voter"] == ("adult", "old")
    plain = json.loads(json.dumps(config.as_dict()))
    assert plain["topdown"]["shares"] == ["1/4", "3/4"]
    assert plain["topdown"]["invariants"] == [{"query": "total", "level": "state"}]
    assert plain["data"] == {"hierarchy": "hierarchy.csv", "bounds": "facilities.csv"}


def test_shares_may_be_a_list_a_level() -> None:
    config = parse(MINIMAL + 'shares = [["1", "0", "0"], ["1/4", "1/4", "1/2"]]\n')
    assert config.method.shares == ((1, 0, 0), (Fraction(1, 4), Fraction(1, 4), Fraction(1, 2)))
    assert config.as_dict()["topdown"]["shares"] == [["1", "0", "0"], ["1/4", "1/4", "1/2"]]


BAD = [
    ("topdown.workload", 'workload = ["total", "sex", "sex * age"]', "", "is required"),
    ("topdown.workload", 'workload = ["total", "sex", "sex * age"]', "workload = []", "list of texts"),
    ("topdown.attributes", '["female", "male"]', '"female"', "'sex' must be a list"),
    ("topdown.strategy", "[topdown]", '[topdown]\nstrategy = "best"', "one of auto, workload, identity, optimised"),
    ("topdown.shares", "[topdown]", '[topdown]\nshares = ["1/2", "1/3", "1/3"]', "sum to 7/6"),
    ("topdown.shares", "[topdown]", '[topdown]\nshares = ["1/2", "1/2"]', "the strategy has 3 queries"),
    ("topdown.shares", "[topdown]", '[topdown]\nshares = ["1"]\nstrategy = "optimised"', "remove them"),
    ("topdown.shares", "[topdown]", '[topdown]\nshares = [["1", "0", "0"], ["1/2", "1/2"]]', "list 2 has 2 entries"),
    (
        "topdown.shares",
        "[topdown]",
        '[topdown]\nshares = [["1", "0", "0"], ["1/2", "0", "1/4"]]',
        "2: the shares sum to",
    ),
    ("topdown.shares", "[topdown]", '[topdown]\nshares = [["1", "0", "0"], "uniform"]', "list 2: write the shares"),
    (
        "topdown.invariants.0.levle",
        "[topdown]",
        '[topdown]\ninvariants = [{ query = "total", levle = "x" }]',
        "'level'",
    ),
    ("topdown.estimation", "[topdown]", '[topdown]\nestimation = "clasic"', "mean 'classic'"),
    ("topdown.rounding_order", "[topdown]", '[topdown]\nrounding = "nearest"\nrounding_order = ["sex"]', "remove it"),
    ("topdown.workloads", "workload =", "workloads =", "did you mean 'workload'"),
    ("data.hierarchy", 'hierarchy = "hierarchy.csv"', "", "is required"),
    ("data.sizes", "[data]", '[data]\nsizes = "s.csv"', "unknown key"),
    ("topdown", "[privacy]", "[groups]\nmax_size = 5\n[privacy]", "one kind of data"),
    ("solvers.topdown_splt", "[topdown]", '[solvers]\ntopdown_splt = "piqp"\n[topdown]', "mean 'topdown_split'"),
]


@pytest.mark.parametrize(("key", "old", "new", "words"), BAD)
def test_a_bad_value_names_its_key(key: str, old: str, new: str, words: str) -> None:
    assert old in MINIMAL
    with pytest.raises(ConfigError) as caught:
        parse(MINIMAL.replace(old, new))
    lines = [line for line in str(caught.value).splitlines() if f"[{key}]" in line]
    assert any(words in line for line in lines), str(caught.value)


def test_a_range_stands_for_its_whole_numbers_in_attributes_and_groupings() -> None:
    text = MINIMAL.replace('["child", "adult", "old"]', '"-1..3"')
    grouping = 'groupings = { young = { of = "age", groups = { minor = "-1..1", adult = ["2", "3"] } } }'
    section = parse(text + grouping).method
    assert section.attributes["age"] == ("-1", "0", "1", "2", "3")
    assert section.groupings["young"].groups == {"minor": ("-1", "0", "1"), "adult": ("2", "3")}


@pytest.mark.parametrize("span", ['"3..1"', '"0..999999"', '"0-115"', '"a..b"', '"1.5..3"'])
def test_what_is_no_range_is_refused_by_name(span: str) -> None:
    with pytest.raises(ConfigError, match=r"\[topdown.attributes\] .*'age' must"):
        parse(MINIMAL.replace('["child", "adult", "old"]', span))


SCHEMA = """
structural_zeros = ["sex = male & age = old"]
[attributes]
sex = ["female", "male"]
age = ["child", "adult", "old"]
[groupings.voting]
of = "age"
groups = { minor = ["child"], voter = ["adult", "old"] }
"""
NAMED = """
[data]
records = "persons.parquet"
hierarchy = "hierarchy.csv"
[privacy]
epsilon = "1"
dataset = "persons"
[topdown]
attributes = "theirs.toml"
groupings = { old = { of = "age", groups = { old = ["old"] } } }
workload = ["total", "voting"]
"""


def test_a_schema_by_its_name_stands_for_its_keys(tmp_path: Path) -> None:
    (tmp_path / "theirs.toml").write_text(SCHEMA)
    config = parse_config(NAMED, tmp_path)
    assert list(config.method.attributes) == ["sex", "age"]
    assert list(config.method.groupings) == ["voting", "old"]
    assert config.method.structural_zeros == ("sex = male & age = old",)
    own = parse_config(NAMED + "structural_zeros = ['sex = female & age = old']\n", tmp_path)
    assert own.method.structural_zeros == ("sex = female & age = old",)
    published = parse_config(
        NAMED.replace("theirs.toml", "census2020-pl94-persons").replace("groupings", "#"), tmp_path
    )
    assert [len(values) for values in published.method.attributes.values()] == [8, 2, 2, 63]
    persons = {text for groups in published.method.groupings["race_count"].groups.values() for text in groups}
    assert persons == set(published.method.attributes["cenrace"])
    assert all(text.count("-") == 1 for text in published.method.groupings["race_count"].groups["two"])


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (None, "'theirs.toml' is neither a file nor one of the published schemas, census2020-pl94-persons, "),
        ("attributes = [", "'theirs.toml' is no TOML file"),
        ("structural_zeros = []", "the schema 'theirs.toml' lacks the key 'attributes'; its keys are attributes, "),
        (SCHEMA + "[workload]\n", "the schema 'theirs.toml' has the key 'workload'"),
    ],
)
def test_a_schema_that_is_none_is_refused(schema: str | None, words: str, tmp_path: Path) -> None:
    if schema is not None:
        (tmp_path / "theirs.toml").write_text(schema)
    with pytest.raises(ConfigError, match=r"\[topdown.attributes\]") as refused:
        parse_config(NAMED, tmp_path)
    assert words in str(refused.value)
