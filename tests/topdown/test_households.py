"""Households that agree with persons: groups are released first, tables of the same regions after them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from coco_opt import Config, CountOfCounts, Hierarchy, Schema, check, load_config, read_tables_release, release
from coco_opt.errors import ConfigError, InputError
from coco_opt.groups.kind.files import Release, read_groups_release
from coco_opt.topdown.kind.earlier_releases import agreed_groups
from tests.topdown.persons import failing

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
