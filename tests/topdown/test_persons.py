"""The unit of privacy of tables, a person of several rows; and households, released first, that agree with persons."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coco_opt import (
    Config,
    CountOfCounts,
    Hierarchy,
    Schema,
    TablePlan,
    check,
    load_config,
    read_tables_release,
    release,
    render_report,
    verify_release,
)
from coco_opt.errors import ConfigError, InputError
from coco_opt.groups.kind.files import Release, read_groups_release
from coco_opt.privacy import NEIGHBOURS, Epsilon, Neighbours, Rho
from coco_opt.topdown.kind.earlier_releases import agreed_groups
from coco_opt.topdown.queries import parse_query
from tests.topdown import persons
from tests.topdown.persons import failing

SCHEMA = Schema({"sex": ("f", "m"), "age": ("child", "adult", "old")})
ROWS = "person_id," + persons.records(60).splitlines()[0]


def table(*people: int, rows: int = 1) -> str:
    """Return records, ``rows`` for each of these people, in whatever order."""
    lines = persons.records(rows * len(people)).splitlines()[1:]
    each = [f"p{who},{line}" for who, line in zip(people * rows, lines, strict=True)]
    return "\n".join([ROWS, *each]) + "\n"


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
@pytest.mark.parametrize("rows", [1, 2, 4])
@pytest.mark.parametrize("text", ["total", "sex", "sex * age"])
def test_no_neighbours_differ_by_more_and_some_by_as_much(text: str, rows: int, neighbours: Neighbours) -> None:
    """Brute force: every way to place a person's rows (here: all into one cell each, or spread), added or replaced."""
    query = parse_query(text, SCHEMA)
    plan = TablePlan((query,), ((Epsilon(Fraction(1)),),), neighbours, rows)
    declared, regions = plan.sensitivity(0), 3
    rng, worst = np.random.default_rng(5), np.zeros(2, np.int64)

    def answers(places: np.ndarray) -> np.ndarray:
        dense = np.zeros((regions, SCHEMA.size), np.int64)
        np.add.at(dense, (places // SCHEMA.size, places % SCHEMA.size), 1)
        return np.stack([query.operator.apply(dense[k]) for k in range(regions)])

    corners = [np.full(rows, place) for place in range(regions * SCHEMA.size)]
    spread = [rng.integers(0, regions * SCHEMA.size, rows) for _ in range(200)]
    none = np.zeros(0, np.int64)
    for first in (*corners, *spread):
        for second in (corners + spread[:20]) if neighbours == "replace" else [none]:
            change = answers(first) - answers(second)
            worst = np.maximum(worst, [np.abs(change).sum(), (change**2).sum()])
    assert worst.tolist() == [declared.l1, declared.l2_squared]


def test_noise_is_wider_by_the_rows() -> None:
    query = parse_query("sex", SCHEMA)
    one, four = (TablePlan((query,), ((Rho(Fraction(1, 2)),),), "add_remove", rows) for rows in (1, 4))
    assert four.distribution(0, 0).nominal_variance == 16 * one.distribution(0, 0).nominal_variance
    one, four = (TablePlan((query,), ((Epsilon(Fraction(1)),),), "add_remove", rows) for rows in (1, 4))
    assert four.distribution(0, 0).scale == 4 * one.distribution(0, 0).scale  # type: ignore[union-attr]


def test_a_release_hides_people_of_several_rows_and_says_so(tmp_path: Path) -> None:
    config = persons.write(tmp_path, topdown=persons.TOPDOWN + "rows_a_person = 3\n", persons=table(*range(20), rows=3))
    released = release(config, tmp_path / "out", page=render_report)
    assert all(check.passed for check in verify_release(released.folder))
    assert {check["sensitivity"]["l1"] for check in released.manifest["budget"]["questions"]} == {3}
    assert "up to 3 rows" in (released.folder / "report.html").read_text()
    plain = persons.write(tmp_path)
    released = release(plain, tmp_path / "plain", page=render_report)
    text = (released.folder / "report.html").read_text()
    assert "One row of the records is taken to be one person" in text
    assert "for five, epsilon = 10" in text


@pytest.mark.parametrize(
    ("text", "code", "row"),
    [
        (table(1, 2, 3, 1, 4, 1), "too-many-rows", "row 7"),
        (table(1, 2).replace("p2", ""), "null-id", "row 3"),
        (table(1, 2).replace("p2", "p\u200b2"), "control-in-id", "row 3"),
        (persons.records(9), "missing-column", "person_id"),
        ("count," + table(1).replace("\n", "\n1,", 1), "unexpected-column", "persons.csv"),
        (table(1, 2, 3).replace("p2", "e\u0301").replace("p3", "\u00e9").replace("p1", "\u00e9"), "too-many-rows", "4"),
    ],
)
def test_who_a_row_is_of_is_checked(text: str, code: str, row: str, tmp_path: Path) -> None:
    config = persons.write(tmp_path, topdown=persons.TOPDOWN + "rows_a_person = 2\n", persons=text)
    with pytest.raises(InputError) as refused:
        check(config)
    assert refused.value.code == code
    assert row in str(refused.value)


def test_a_person_id_is_no_attribute(tmp_path: Path) -> None:
    topdown = persons.TOPDOWN.replace("age =", "person_id =") + "rows_a_person = 2\n"
    with pytest.raises(ConfigError, match="identifies persons"):
        persons.write(tmp_path, topdown=topdown)


@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.parametrize("rows", ["", "rows_a_person = 1\n"])
def test_a_person_occurs_once_unless_several_rows_are_stated(form: str, rows: str, tmp_path: Path) -> None:
    """A row copied whole and an id on another row are named; without ids nothing can be said."""
    lines = table(1, 2, 3).splitlines()
    twice = "\n".join([*lines, lines[1], lines[2].replace("p2", "p3")]).replace("person_id", "pid") + "\n"
    persons.write(tmp_path, topdown=persons.TOPDOWN + rows, persons=twice)
    columns = [line.split(",") for line in twice.splitlines()]
    table_of = pa.table({name: list(column) for name, *column in zip(*columns, strict=True)})
    pq.write_table(table_of, tmp_path / "persons.parquet")
    text = (tmp_path / "run.toml").read_text().replace("persons.csv", f"persons.{form}")
    (tmp_path / "run.toml").write_text(text.replace("[data]\n", '[data]\ncolumns = { person_id = "pid" }\n'))
    with pytest.raises(InputError) as refused:
        check(load_config(tmp_path / "run.toml"))
    shift = 0 if form == "csv" else 1
    (entry,) = refused.value.bad_rows
    assert (entry["code"], entry["column"], entry["count"]) == ("duplicate-entity", "pid", 2)
    assert entry["rows"] == [5 - shift, 6 - shift]
    (tmp_path / "run.toml").write_text(text)
    if not rows:
        check(load_config(tmp_path / "run.toml"))


LARGEST = 9
HOUSEHOLDS = 'agrees_with = [{ release = "out/households", persons = "housed", householders = "heads" }]\n'
PERSONS = """attributes = { role = ["head", "member", "lodger"], age = ["minor", "adult"] }
structural_zeros = ["role = head & age = minor"]
workload = ["role", "role * age"]
counts = { housed = "role = head | member", heads = "role = head" }
"""


def nation(folder: Path, states: int, counties: int) -> None:
    """Write a simulated nation of three levels: its regions, households and persons, a tenth of them lodgers."""
    rng = np.random.default_rng(17)
    regions = [(s, c) for s in range(states) for c in range(counties)]
    hierarchy, groups, entities, persons = ["region_id,nation,state,county"], ["group_id,region_id"], [], []
    for s, c in regions:
        region = f"r{s}-{c}"
        hierarchy.append(f"{region},land,s{s},c{c}")
        for h in range(int(rng.integers(0, 12))):
            group = f"{region}-{h}"
            groups.append(f"{group},{region}")
            for person in range(int(min(rng.geometric(0.4), LARGEST - 1))):
                entities.append(f"{group}-{person},{group}")
                role, age = ("member", "head")[person == 0], ("minor", "adult")[int(person == 0 or rng.random() < 0.3)]
                persons.append(f"{region},{role},{age}")
        persons += [f"{region},lodger,adult"] * int(rng.integers(0, 3))
    for name, lines in (
        ("hierarchy", hierarchy),
        ("groups", groups),
        ("entities", ["entity_id,group_id", *entities]),
        ("persons", ["region_id,role,age", *persons]),
    ):
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")


def households(folder: Path, largest: int = LARGEST) -> Path:
    (folder / "households.toml").write_text(
        '[data]\nentities = "entities.csv"\ngroups = "groups.csv"\nhierarchy = "hierarchy.csv"\n'
        '[privacy]\nepsilon = "1"\nnoise = "seeded"\nseed = 3\n'
        f'[groups]\nmax_size = {largest}\nquery = "cumulative"\nconsistency = "matching"\n'
    )
    return release(load_config(folder / "households.toml"), folder / "out" / "households").folder


def tables(folder: Path, more: str = HOUSEHOLDS, topdown: str = PERSONS) -> Config:
    (folder / "persons.toml").write_text(
        '[data]\nrecords = "persons.csv"\nhierarchy = "hierarchy.csv"\n'
        f'[privacy]\nepsilon = "1"\nnoise = "seeded"\nseed = 4\n[topdown]\n{topdown}{more}'
    )
    return load_config(folder / "persons.toml")


@pytest.mark.parametrize(("states", "counties"), [(2, 3), pytest.param(12, 25, marks=pytest.mark.slow)])
def test_persons_in_households_are_the_sum_of_size_times_groups(tmp_path: Path, states: int, counties: int) -> None:
    nation(tmp_path, states, counties)
    groups = read_groups_release(households(tmp_path))
    outcome = release(tables(tmp_path), tmp_path / "out" / "persons")
    assert failing(outcome.folder) == []
    assert outcome.manifest["agrees_with"][0]["groups"] == {
        "persons": "role = head | member",
        "householders": "role = head",
    }
    assert outcome.manifest["spent_in_all"] == [{"epsilon": "2", "neighbours": "add_remove"}]
    persons = read_tables_release(outcome.folder)
    role = persons.schema.decode(np.arange(persons.schema.size))["role"]
    for region in groups.hierarchy.paths:
        household_counts, table = groups[region], persons.table(region)
        if household_counts.sizes.max(initial=0) < LARGEST:
            assert table[role < 2].sum() == household_counts.sizes @ household_counts.counts
        else:
            assert table[role < 2].sum() >= household_counts.sizes @ household_counts.counts
        assert table[role == 0].sum() == household_counts.counts[household_counts.sizes > 0].sum()


def test_pairs_that_exclude_each_other_are_named_before_the_payment(tmp_path: Path) -> None:
    nation(tmp_path, 2, 3)
    groups = read_groups_release(households(tmp_path))
    region = next(
        path
        for path in groups.hierarchy.paths
        if path.count("/") == 2 and 0 < groups[path].sizes.max(initial=0) < LARGEST
    )
    number = int(groups[region].sizes @ groups[region].counts)
    more = f'{HOUSEHOLDS}constraints = [{{ holds = "housed >= {number + 1}", regions = ["{region}"] }}]\n'
    with pytest.raises(InputError, match=rf"persons of households.*{number}.*{region}.*inconsistent-bounds") as raised:
        check(tables(tmp_path, more))
    assert f"housed >= {number + 1}" in str(raised.value)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ('agrees_with = { release = "out/households", on = ["role"] }\n', "release of groups: on is for one of tables"),
        ('agrees_with = { release = "out/households", persons = "role = heads" }\n', "no value of 'role' 'heads'"),
        ('agrees_with = { release = "out/households", persons = "role = head & age = minor" }\n', "counts no cell"),
        ('agrees_with = { release = "out/households", person = "housed" }\n', "did you mean 'persons'"),
    ],
)
def test_what_does_not_fit_groups_is_refused(tmp_path: Path, more: str, words: str) -> None:
    nation(tmp_path, 2, 3)
    households(tmp_path)
    with pytest.raises(ConfigError, match=words):
        check(tables(tmp_path, more))


def test_groups_of_the_largest_size_bind_from_below_alone() -> None:
    tree = Hierarchy.from_paths([("n", "a"), ("n", "b")])
    parts = [CountOfCounts.from_runs([0, 2, 4], [3, 5, 1]), CountOfCounts.from_runs([1, 2], [2, 2])]
    groups = Release(
        tree, ("n", "leaf"), (None,) * 3, np.array([13, 9, 4]), (parts[0] + parts[1], *parts), {"max_size": 4}
    )
    schema = Schema({"role": ("head", "member")})
    constraints = agreed_groups(
        groups, tree, ("n", "leaf"), schema, {"persons": "total", "householders": "role = head"}
    )
    assert [constraint.lower.ravel().tolist() for constraint in (*constraints.bounds, *constraints.linear)] == [
        [14, 6],
        [6, 4],
    ]
    assert constraints.bounds[0].upper.ravel().tolist()[1] == 6
    assert constraints.bounds[0].upper.ravel()[0] > 2**40
    assert constraints.linear[0].upper.tolist() == [6, 4]
