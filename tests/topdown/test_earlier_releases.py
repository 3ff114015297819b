"""Tables that agree with earlier releases: exactly, in one account, bound by digest, and refused where they cannot."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from coco_opt import Config, check, configure, estimate, load_config, measure, release, render_report, verify_release
from coco_opt.errors import BudgetError, ConfigError, InputError
from coco_opt.releases.verify import verify_paid
from coco_opt.topdown.kind.files import TablesRelease, read_tables_release
from tests.topdown.persons import HIERARCHY, SECURE, SEEDED, SEX, TOPDOWN, failing, records, write

AGE_ONLY = 'attributes = { age = ["old", "adult", "child"] }\nworkload = ["total", "age"]\n'
LATER = 'agrees_with = "out/first"\n'


def first(folder: Path, privacy: str = SEEDED, topdown: str = AGE_ONLY, name: str = "first") -> Path:
    """Release tables of age alone, from a configuration called NAME.toml, and return their folder."""
    write(folder, privacy, topdown)
    (folder / "run.toml").rename(folder / f"{name}.toml")
    return release(load_config(folder / f"{name}.toml"), folder / "out" / name).folder


def later(folder: Path, privacy: str = SEEDED, more: str = LATER, topdown: str = TOPDOWN) -> Config:
    return write(folder, privacy.replace("seed = 5", "seed = 6"), topdown, more=more)


def ages(tables_release: TablesRelease, region: str) -> dict[str, int]:
    """Return the persons of a region by age."""
    codes = tables_release.schema.decode(np.arange(tables_release.schema.size))["age"]
    sums = (
        np.bincount(codes, tables_release.table(region), len(tables_release.schema.attributes["age"]))
        .astype(int)
        .tolist()
    )
    return dict(zip(tables_release.schema.attributes["age"], sums, strict=True))


def changed(folder: Path, key: str, value: object) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest[key] = value
    (folder / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize("estimation", ["full", "classic", "bottom_up"])
def test_a_later_release_agrees_cell_by_cell_and_region_by_region(tmp_path: Path, estimation: str) -> None:
    earlier = first(tmp_path)
    config = later(tmp_path, more=f'{LATER}estimation = "{estimation}"\n')
    outcome = release(config, tmp_path / "out" / "second", page=render_report)
    assert failing(outcome.folder) == []
    earlier_release, later_release = read_tables_release(earlier), read_tables_release(outcome.folder)
    for region in earlier_release.hierarchy.paths:
        assert ages(earlier_release, region) == ages(later_release, region)
    said = outcome.manifest["agrees_with"]
    assert [entry["release"] for entry in said] == ["first"]
    assert outcome.manifest["spent_in_all"] == [{"epsilon": "4", "neighbours": "add_remove"}]
    assert "agrees_with" in outcome.manifest["promises"]
    assert outcome.manifest["facts"] == []
    page = (outcome.folder / "report.html").read_text()
    assert "Earlier releases" in page
    assert "together they cost epsilon = 4" in page


def test_three_stages_agree_and_their_budgets_are_said_together(tmp_path: Path) -> None:
    first(tmp_path)
    second = release(later(tmp_path), tmp_path / "out" / "second").folder
    work = 'attributes = { sex = ["female", "male"], age = ["child", "adult", "old"], home = ["yes", "no"] }\n'
    persons = "\n".join(
        f"{line},{'home' if number == 0 else ('yes', 'no')[number % 2]}"
        for number, line in enumerate(records().splitlines())
    )
    config = write(
        tmp_path, SEEDED, work + 'workload = ["total", "detail"]\n', persons + "\n", 'agrees_with = "out/second"\n'
    )
    third = release(config, tmp_path / "out" / "third")
    assert failing(third.folder) == []
    assert third.manifest["spent_in_all"] == [{"epsilon": "6", "neighbours": "add_remove"}]
    two, three = read_tables_release(second), read_tables_release(third.folder)
    for region in two.hierarchy.paths:
        assert three.table(region).reshape(6, 2).sum(axis=1).tolist() == two.table(region).tolist()
    shutil.rmtree(tmp_path / "out" / "first")
    assert any("first" in line and "not found" in line for line in failing(third.folder))


def test_verify_finds_an_edited_and_a_missing_earlier_release(tmp_path: Path) -> None:
    earlier = first(tmp_path)
    folder = release(later(tmp_path), tmp_path / "out" / "second").folder
    elsewhere = tmp_path / "archive" / "moved"
    shutil.copytree(earlier, elsewhere)
    original = (earlier / "tables.parquet").read_bytes()
    (earlier / "tables.parquet").write_bytes(original[:-1] + bytes([original[-1] ^ 1]))
    assert any("'first'" in line and "tables.parquet" in line for line in failing(folder))
    (earlier / "tables.parquet").write_bytes(original)
    assert failing(folder) == []
    changed(earlier, "name", "first")
    assert any("edited, or made anew" in line for line in failing(folder))
    shutil.rmtree(earlier)
    assert any("not found" in line and "--earlier" in line for line in failing(folder))
    for place in (elsewhere, elsewhere.parent):
        assert all(promise.passed for promise in verify_release(folder, [place]))


def test_a_table_that_does_not_agree_is_found_by_the_raw_rows(tmp_path: Path) -> None:
    first(tmp_path)
    folder = release(later(tmp_path), tmp_path / "out" / "second").folder
    alone = release(later(tmp_path, more=""), tmp_path / "out" / "alone").folder
    shutil.copy(alone / "tables.parquet", folder / "tables.parquet")
    lines = failing(folder)
    assert any(line.startswith("agrees_with") and "answers differ from first" in line for line in lines)


def test_what_the_manifest_says_of_the_earlier_release_is_checked(tmp_path: Path) -> None:
    first(tmp_path)
    folder = release(later(tmp_path), tmp_path / "out" / "second").folder
    manifest = json.loads((folder / "manifest.json").read_text())
    changed(folder, "spent_in_all", [{"epsilon": "2", "neighbours": "add_remove"}])
    assert any(line.startswith("agrees_with: what all releases cost") for line in failing(folder))
    said = manifest["agrees_with"][0]
    changed(folder, "agrees_with", [{**said, "budget": {"epsilon": "1", "neighbours": "add_remove"}}])
    assert any("did not cost" in line for line in failing(folder))
    changed(folder, "agrees_with", [{**said, "receipt": "another"}])
    assert any("not as it is described" in line for line in failing(folder))
    changed(folder, "promises", [name for name in manifest["promises"] if name != "agrees_with"])
    assert any(line.startswith("facts: ") for line in failing(folder))


def test_groupings_and_parts_of_the_attributes_can_be_shared(tmp_path: Path) -> None:
    topdown = 'attributes = { sex = ["male", "female"], band = ["young", "grown"] }\nworkload = ["sex * band"]\n'
    bands = records().replace("sex,age", "sex,band").replace("child", "young").replace("adult", "grown")
    write(tmp_path, SEEDED, topdown, bands.replace("old", "grown"))
    (tmp_path / "run.toml").rename(tmp_path / "first.toml")
    earlier = release(load_config(tmp_path / "first.toml"), tmp_path / "out" / "first").folder
    bands = '[topdown.groupings.band]\nof = "age"\ngroups = { young = ["child"], grown = ["adult", "old"] }\n'
    folder = release(later(tmp_path, more=LATER + bands), tmp_path / "out" / "second").folder
    assert failing(folder) == []
    first_release, second_release = read_tables_release(earlier), read_tables_release(folder)
    for region in first_release.hierarchy.paths:
        male, female = first_release.table(region).reshape(2, 2)
        second_table = second_release.table(region).reshape(2, 3)
        assert [second_table[0, 0], second_table[0, 1:].sum()] == female.tolist()
        assert [second_table[1, 0], second_table[1, 1:].sum()] == male.tolist()
    part = later(tmp_path, more='agrees_with = { release = "out/first", on = ["sex"] }\n')
    folder = release(part, tmp_path / "out" / "third").folder
    assert failing(folder) == []
    third_release = read_tables_release(folder)
    assert (
        third_release.table("land").reshape(2, 3)[SEX.index("male")].sum()
        == first_release.table("land").reshape(2, 2)[0].sum()
    )
    total = later(tmp_path, more='agrees_with = { release = "out/first", on = [] }\n')
    assert failing(release(total, tmp_path / "out" / "fourth").folder) == []


def test_finer_bands_of_a_column_have_another_name_here(tmp_path: Path) -> None:
    bands = records().replace("child", "young").replace("adult", "grown").replace("old", "grown")
    write(tmp_path, SEEDED, 'attributes = { age = ["young", "grown"] }\nworkload = ["age"]\n', bands)
    (tmp_path / "run.toml").rename(tmp_path / "first.toml")
    earlier = read_tables_release(release(load_config(tmp_path / "first.toml"), tmp_path / "out" / "first").folder)
    with pytest.raises((ConfigError, InputError), match=r'another name.*columns = \{ NAME = "age" \}'):
        check(later(tmp_path))
    groups = (
        f'{LATER}[topdown.groupings.age]\nof = "fine"\ngroups = {{ young = ["child"], grown = ["adult", "old"] }}\n'
    )
    configs = [
        write(
            tmp_path,
            SEEDED.replace("seed = 5", "seed = 6"),
            TOPDOWN.replace("age", "fine"),
            more=groups,
            data=f'columns = {{ {name} = "age" }}\n',
        )
        for name in ("fnie", "fine")
    ]
    with pytest.raises(ConfigError, match="did you mean 'fine'"):
        check(configs[0])
    folder = release(configs[1], tmp_path / "out" / "second").folder
    assert failing(folder) == []
    assert read_tables_release(folder).table("land").reshape(2, 3)[:, 0].sum() == earlier.table("land")[0]


@pytest.mark.parametrize(
    ("more", "topdown", "words"),
    [
        (LATER.replace("first", "nowhere"), TOPDOWN, "file-not-found"),
        (LATER, TOPDOWN.replace('"old"', '"aged"'), "'old' of 'age' is in 'first' alone.*other-domain"),
        (LATER, TOPDOWN.replace('"old"', '"old", "aged"'), "'aged' of 'age' is in these tables.*other-domain"),
        (LATER, 'attributes = { sex = ["female", "male"] }\nworkload = ["sex"]\n', "no attribute or grouping of that"),
        (LATER, AGE_ONLY, "nothing is left to measure.*nothing-new"),
        ('agrees_with = { release = "out/first", on = ["sx"] }\n', TOPDOWN, "no attribute 'sx'"),
        ('agrees_with = { release = "out/first", persons = "total" }\n', TOPDOWN, "is a release of tables"),
        (LATER + 'structural_zeros = ["age = old"]\n', TOPDOWN, "forbid.*inconsistent-facts"),
        (
            LATER + '[topdown.groupings.band]\nof = "sex"\ngroups = { one = ["male"] }\n',
            TOPDOWN.replace("age = [", "years = [").replace("sex * age", "sex * years"),
            "no attribute or grouping of that name",
        ),
    ],
)
def test_what_cannot_agree_is_refused_before_anything_is_read(
    tmp_path: Path, more: str, topdown: str, words: str
) -> None:
    first(tmp_path)
    with pytest.raises((ConfigError, InputError), match=words):
        check(later(tmp_path, more=more, topdown=topdown))


def test_other_regions_are_refused_and_levels_may_be_added(tmp_path: Path) -> None:
    first(tmp_path)
    moved = HIERARCHY.replace("s1,c2", "s1,c9")
    config = later(tmp_path)
    (tmp_path / "hierarchy.csv").write_text(moved)
    with pytest.raises(ConfigError, match=r"level 'county'.*'land/s1/c2'.*other-regions"):
        check(config)
    lines = HIERARCHY.splitlines()
    finer = [f"{lines[0]},town", *(f"{line},{line.split(',')[0]}" for line in lines[1:])]
    finer.append("r02b,land,s0,c2,r02b")
    (tmp_path / "hierarchy.csv").write_text("\n".join(finer) + "\n")
    assert failing(release(config, tmp_path / "out" / "finer").folder) == []
    (tmp_path / "hierarchy.csv").write_text("region_id,nation,state\nr00,land,s0\nr10,land,s1\n")
    persons = (tmp_path / "persons.csv").read_text()
    for state in range(2):
        persons = persons.replace(f"r{state}1", f"r{state}0").replace(f"r{state}2", f"r{state}0")
    (tmp_path / "persons.csv").write_text(persons)
    folder = release(config, tmp_path / "out" / "upper").folder
    assert failing(folder) == []
    first_release, second_release = read_tables_release(tmp_path / "out" / "first"), read_tables_release(folder)
    assert ages(first_release, "land/s0") == ages(second_release, "land/s0")


def test_facts_that_exclude_what_was_published_are_named_by_region(tmp_path: Path) -> None:
    tables_release = read_tables_release(first(tmp_path))
    most = ages(tables_release, "land/s1/c1")["adult"]
    assert most > 0
    more = f'{LATER}constraints = [{{ holds = "[age = adult] <= {most - 1}", regions = ["land/s1/c1"] }}]\n'
    with pytest.raises(InputError, match=r"land/s1/c1.*as published before.*inconsistent-bounds") as raised:
        check(later(tmp_path, more=more))
    assert "as in first" in str(raised.value)


def test_both_budgets_stand_in_one_account(tmp_path: Path) -> None:
    total = 'total = "5"\n'
    earlier = first(tmp_path, SECURE + total)
    config = later(tmp_path, SECURE + total)
    outcome = release(config, tmp_path / "out" / "second")
    assert failing(outcome.folder) == []
    assert all(promise.passed for promise in verify_paid(outcome.folder, config))
    assert [promise.name for promise in verify_paid(outcome.folder, config)][-1] == "paid: first"
    again = release(config, tmp_path / "out" / "third")
    assert not again.paid
    with pytest.raises(BudgetError):
        measure(configure(config, topdown={"workload": ["sex * age"]}))
    with pytest.raises(ConfigError, match="one account"):
        check(later(tmp_path, SECURE.replace("persons", "others")))
    earlier.rename(tmp_path / "out" / "moved")
    moved = later(tmp_path, SECURE + total, LATER.replace("first", "moved"))
    assert not release(moved, tmp_path / "out" / "fourth").paid


def test_a_private_release_does_not_repeat_what_nothing_protects(tmp_path: Path) -> None:
    first(tmp_path)
    with pytest.raises(ConfigError, match="NOT PRIVATE"):
        check(later(tmp_path, SECURE))


def test_a_broken_earlier_release_is_refused(tmp_path: Path) -> None:
    changed(first(tmp_path), "status", "private")
    with pytest.raises(ConfigError, match=r"fails a check.*broken-release"):
        check(later(tmp_path))


def test_an_estimation_elsewhere_needs_no_earlier_folder_and_keeps_it(tmp_path: Path) -> None:
    earlier = first(tmp_path)
    measured = measure(later(tmp_path))
    shutil.move(earlier, tmp_path / "archive")
    result = estimate(measured.measurement)
    folder = result.save(tmp_path / "elsewhere")
    assert all(promise.passed for promise in verify_release(folder, [tmp_path / "archive"]))
    with pytest.raises(ConfigError, match=r"agrees_with.*'first'"):
        estimate(measured.measurement, later(tmp_path, more=""))


def test_unbiased_estimates_do_not_lean_on_an_earlier_release(tmp_path: Path) -> None:
    first(tmp_path)
    two = release(later(tmp_path), tmp_path / "out" / "second").folder
    alone = release(later(tmp_path, more=""), tmp_path / "out" / "alone").folder
    assert (two / "estimates.parquet").read_bytes() == (alone / "estimates.parquet").read_bytes()


def test_what_an_earlier_release_states_as_exact_is_exact_in_later_estimates(tmp_path: Path) -> None:
    replaced = SEEDED + 'neighbours = "replace"\n'
    invariants = 'invariants = [{ query = "total", level = "state" }, { query = "age", level = "nation" }]\n'
    earlier = first(tmp_path, replaced, AGE_ONLY + invariants)
    truth = read_tables_release(earlier)
    two = release(later(tmp_path, replaced), tmp_path / "out" / "second").folder
    rows = pq.read_table(two / "estimates.parquet").to_pandas().set_index(["region", "answer"])
    for region in ("land", "land/s0", "land/s1"):
        assert rows.estimate[region, "total"] == truth.table(region).sum()
        assert rows.standard_error[region, "total"] == 0.0
    assert rows.standard_error["land/s0/c0", "total"] > 0.0  # published with noise: no constraint of the estimates
    assert rows.standard_error["land", "sex = female"] > 0.0
    assert all(promise.passed for promise in verify_release(two, [tmp_path / "out"]))
