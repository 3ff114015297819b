"""``coco-opt init`` tells files apart by their headers, or by what the user says; no value is ever shown."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coco_opt.config import Config, load_config
from coco_opt.errors import ConfigError
from tests.cli.helpers import CANARY, ENTITIES, GROUPS, HIERARCHY, SIZES, VALUES, Runner

PERSONS = "region_id,sex,age group\n" + "r1,f,0-17\nr2,m,18+\n" * 20
COUNTED = "region_id,sex,count\nr1,f,30\nr2,m,40\n"
CONFIG = Path("coco-opt.toml")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(**texts: str) -> None:
    for name, text in texts.items():
        Path(f"{name}.csv").write_text(text)


def fill_in(path: Path, **values: str) -> Config:
    """Write each attribute's values where the config leaves them out, and return what it says."""
    text = path.read_text()
    for key, listed in values.items():
        name = key if f"\n{key} = []" in text else f'"{key.replace("_", " ")}"'
        assert f"\n{name} = []" in text
        text = text.replace(f"\n{name} = []", f"\n{name} = {listed}")
    path.write_text(text)
    return load_config(path)


@pytest.mark.parametrize("files", [(), ("areas.csv", "people.csv", "homes.csv")])
def test_three_tables_of_groups(coco: Runner, files: tuple[str, ...]) -> None:
    write(people=ENTITIES, homes=GROUPS, areas=HIERARCHY)
    assert coco("init", *files).code == 0
    config = load_config(CONFIG)
    assert (config.kind, config.privacy.dataset) == ("groups", "people")
    assert config.data.entities == Path("people.csv")
    assert (config.data.groups, config.data.hierarchy) == (Path("homes.csv"), Path("areas.csv"))
    CONFIG.write_text(CONFIG.read_text().replace("max_size = 1000", "max_size = 100"))
    assert coco("check", CONFIG).code == 0
    assert coco("release", CONFIG, "--out", "out").code == 0
    before = CONFIG.read_bytes()
    assert coco("init", "areas.csv").code == 2
    assert CONFIG.read_bytes() == before


def test_counts_made_elsewhere(coco: Runner) -> None:
    Path("data").mkdir()
    Path("data/one.csv").write_text("size,groups\n1,2\n")
    assert coco("init", "data/one.csv", "--out", "one.toml").code == 0
    config = load_config(Path("one.toml"))
    assert (config.data.sizes, config.data.root) == (Path("data/one.csv"), "all")
    write(many=SIZES)
    assert coco("init", "--out", "many.toml").code == 0
    assert load_config(Path("many.toml")).data.sizes == Path("many.csv")
    assert '# root = "all" ' in Path("many.toml").read_text()
    write(people=ENTITIES)
    assert "is a table of entities, which does not go with sizes" in coco("init", "--out", "both.toml").err


@pytest.mark.parametrize("text", [VALUES, "cell,count\n0,3\n7,2\n", "value,count\n0,3\n"])
def test_values_of_ranges(coco: Runner, text: str) -> None:
    write(visits=text)
    assert "check cells" in coco("init").out
    config = load_config(CONFIG)
    assert "geometry" not in CONFIG.read_text()
    assert (config.kind, config.data.values, config.privacy.dataset) == ("ranges", Path("visits.csv"), "visits")
    for verb in ("check", "measure"):
        assert coco(verb, CONFIG).code == 0


def test_a_file_of_no_use(coco: Runner) -> None:
    write(other=f"a,b\n{CANARY},2\n")
    unknown = coco("init", "other.csv")
    assert unknown.code == 2
    assert "has none of the headers entity_id, group_id: private | " in unknown.err
    assert CANARY not in unknown.err
    assert not CONFIG.exists()
    assert coco("init").code == 0
    assert CONFIG.read_text().count("NOT FOUND") == 3


def test_a_second_year_shares_the_ledger_of_the_first(coco: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    # Levels are proposed by codes; the first year takes names, which the next one must keep to be compared.
    areas = "region_id,country,county,name\nr1,land,north,Norra\nr2,land,south,Södra\n"
    changes = {
        'levels = ["country", "county"]': 'levels = ["country", "name"]',
        '# total = "3"': 'total = "2"',
        '"add_remove"': '"replace"',
        "\n# date = ": "\ndate = ",
        "\ntitle = ": '\ntitle = "Größe der Haushalte, 2025" # ',
        "\nwords =": "\n# words =",
    }
    for year, homes in (("2025", GROUPS), ("2026", GROUPS + "g6,r1\n")):
        Path(year).mkdir()
        monkeypatch.chdir(year)
        # No header says that "who" tells persons apart; it is stated in the first year only.
        write(**{f"people_{year}": ENTITIES.replace("entity_id", "who"), "homes": homes, "areas": areas})
        said = coco("init", *(("--columns", "entity_id=who") if year == "2025" else ())).out
        text = CONFIG.read_text()
        assert ("\nmax_size = 1000" in text) == (year == "2025")
        text = text.replace("max_size = 1000", "max_size = 20")
        for old, new in changes.items() if year == "2025" else ():
            assert old in text
            text = text.replace(old, new)
        CONFIG.write_text(text)
        if year == "2026":
            alone = re.sub("\nledger = .*", "", text)
            Path("alone.toml").write_text(alone)
            first = Path("../2025") / CONFIG
            before = first.read_text()
            first.write_text(before.replace("[privacy]", '[privacy]\nwitness = ["touch", "ran"]'))
            for verb in ("check", "release"):
                assert "state " in coco(verb, "alone.toml").err + coco(verb, "alone.toml").out
            assert not Path("private/ledger.sqlite").exists()
            assert not list(Path("..").rglob("ran"))  # a command of another configuration
            first.write_text(before)
        assert coco("release", CONFIG).code == 0
        if year == "2025":  # a draft, which has made no release, is not what another year is compared with
            Path("draft.toml").write_text(text.replace("max_size = 20", "max_size = 9"))
        monkeypatch.chdir("..")
    assert "Taken as dataset: 'people_2025' of ../2025/coco-opt.toml, so that its ledger adds up" in said
    config = load_config(Path("2026") / CONFIG)
    assert "check what this year changes, then run" in said
    assert config.data.levels == ("country", "name")
    assert (config.privacy.dataset, config.privacy.neighbours) == ("people_2025", "replace")
    assert (config.output.title, config.output.date) == ("Größe der Haushalte, 2026", "31 December 2026")
    assert coco("ledger", Path("2025") / CONFIG).out.count("RELEASED") == 2 * 4  # a look and a run, in two tables
    monkeypatch.chdir("2025")
    assert coco("init", "--out", "other.toml").code == 0
    assert "\nledger = " not in Path("other.toml").read_text()  # which lies in the private folder
    write(visits="person_id,day\na,1\nb,2\n")
    said = coco("init", "visits.csv", "--kind", "ranges", "--columns", "value=day", "--out", "visits.toml")
    assert "If these are persons of coco-opt.toml, too, state its dataset 'people_2025'" in said.out
    assert '# dataset = "people_2025"' in Path("visits.toml").read_text()


def test_a_second_histogram_of_the_same_persons_is_called_by_its_own_column(
    coco: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    for year in ("2025", "2026"):
        Path(year).mkdir()
        monkeypatch.chdir(year)
        write(**{f"stays_{year}": "person_id,days,cost\na,1,70\nb,2,90\n"})
        for column in ("days", "cost") if year == "2025" else ("cost", "days"):
            text = coco("init", "--kind", "ranges", "--columns", f"value={column}", "--out", f"{column}.toml").out
            config = load_config_without_values(Path(f"{column}.toml"))
            assert (config.output.words["value"], config.output.title) == (column, f"Stays by {column}, {year}")
            assert (f"Taken from ../2025/{column}.toml" in text) == (year == "2026")
            cells = {"days": 31, "cost": 500}[column]
            assert ("cells = 100" in Path(f"{column}.toml").read_text()) == (year == "2025")
            written = Path(f"{column}.toml").read_text().replace("cells = 100", f"cells = {cells}")
            Path(f"{column}.toml").write_text(written)
            assert f"cells = {cells}" in written
        monkeypatch.chdir("..")


def test_a_second_year_keeps_its_queries_unless_columns_are_stated_anew(
    coco: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    stated = ("--values", "sex=f,m", "--values", "age group=0-17,18+")
    for year in ("2025", "2026"):
        Path(year).mkdir()
        monkeypatch.chdir(year)
        write(**{f"persons_{year}": PERSONS, "areas": HIERARCHY})
        said = coco("init", *stated).out
        text = CONFIG.read_text()
        assert ('\nepsilon = "1/2"' in text) == (year == "2026")
        text = text.replace('\nepsilon = "1"', '\nepsilon = "1/2"')
        CONFIG.write_text(re.sub(r"workload = .*", 'workload = ["sex"]', text))
        monkeypatch.chdir("..")
    assert "its budget; without --ranges and --values its queries and method, too" in said
    monkeypatch.chdir("2026")
    assert "check what this year changes" in coco("init", "--out", "again.toml").out
    assert 'workload = ["sex"]' in Path("again.toml").read_text()  # of 2025, not of the other one of 2026
    assert "As in ../2025/coco-opt.toml" in Path("again.toml").read_text()


def test_a_kind_by_name(coco: Runner) -> None:
    for kind, key in (("groups", "entities"), ("tables", "records"), ("ranges", "values")):
        assert coco("init", "--kind", kind, "--out", f"{kind}.toml").code == 0
        assert f'{key} = "{key}.csv"' in Path(f"{kind}.toml").read_text()
    assert "did you mean 'ranges'" in coco("init", "--kind", "range").err
    write(areas=HIERARCHY)
    assert coco("init", "--kind", "tables").code == 0
    assert 'hierarchy = "areas.csv"' in CONFIG.read_text()


@pytest.mark.parametrize("files", [(), ("areas.csv",), ("areas.csv", "persons.csv"), ("persons.csv", "areas.csv")])
def test_records_by_name_run_once_values_are_listed(coco: Runner, files: tuple[str, ...]) -> None:
    write(areas=HIERARCHY, persons=PERSONS)
    ran = coco("init", *files, "--data", "records=persons.csv")
    assert (ran.code, ran.errors) == (0, [])
    assert "list every value of 'sex', 'age group'" in ran.out
    with pytest.raises(ConfigError, match=r"topdown\.attributes.*list every value of 'sex', 'age group'"):
        load_config(CONFIG)
    found = fill_in(CONFIG, sex='["f", "m"]', age_group='["0-17", "18+"]')
    assert (found.data.records, found.data.hierarchy) == (Path("persons.csv"), Path("areas.csv"))
    assert found.method.attributes == {"sex": ("f", "m"), "age group": ("0-17", "18+")}
    assert found.method.workload == ("total", "sex", "age group", "detail")
    assert coco("check", CONFIG).code == 0


def test_what_is_commented_out_can_be_used(coco: Runner) -> None:
    write(areas=HIERARCHY, persons=PERSONS)
    assert coco("init", "--data", "records=persons.csv").code == 0
    text = CONFIG.read_text().replace("# invariants", "invariants").replace("# topdown_split", "topdown_split")
    text = text.replace("# geometry", "geometry")
    CONFIG.write_text(text.replace('"add_remove"', '"replace"'))
    found = fill_in(CONFIG, sex='["f", "m"]', age_group='["0-17", "18+"]')
    assert [(one.query, one.level) for one in found.method.invariants] == [("total", "country")]
    assert found.output.geometry == Path("areas.geojson")
    assert coco("plan", CONFIG).code == 0


def test_of_two_tables_like_a_hierarchy_the_one_that_repeats_regions_holds_persons(coco: Runner) -> None:
    write(areas=HIERARCHY, persons=PERSONS.replace("0-17", CANARY))
    ran = coco("init")
    assert (ran.code, ran.errors) == (0, [])
    assert CANARY not in ran.out + CONFIG.read_text()
    assert "Taken as records: persons.csv" in ran.out
    assert 'records = "persons.csv"' in CONFIG.read_text()


def test_two_tables_like_a_hierarchy_are_not_guessed_at(coco: Runner) -> None:
    write(areas=HIERARCHY, persons=f"region_id,sex,age group\nr1,f,{CANARY}\nr2,m,18+\n")
    ran = coco("init")
    assert ran.code == 2
    assert "--data KEY=FILE" in ran.err
    assert CANARY not in ran.err + ran.out
    assert "age group" not in ran.err + ran.out
    assert not CONFIG.exists()


def write_linked() -> None:
    people = "pid,hh,sex,place\n" + "".join(f"p{k},h{k % 3},{'fm'[k % 2]},home\n" for k in range(9))
    write(people=people, homes="hh,town\nh0,a\nh1,b\nh2,b\n", towns="town,part,land\na,n,l\nb,s,l\n")
    write(halls="town,hall,prison\nb,1,0\n")


def test_files_named_by_key_are_linked_like_others(coco: Runner) -> None:
    write_linked()
    listed = ("people.csv", "homes.csv", "towns.csv")
    named = ("--data", "records=people.csv", "--data", "groups=homes.csv", "--data", "hierarchy=towns.csv")
    texts = []
    for files in ((*listed, "--kind", "tables"), named):
        assert coco("init", *files, "--values", "all").code == 0
        texts.append(CONFIG.read_text())
        CONFIG.unlink()
    assert texts[0] == texts[1]
    for k in range(9):
        write(**{f"other{k}": "a,b\n1,2\n"})
    assert coco("init", *named, "--values", "all").code == 0
    assert coco("check", CONFIG).code == 0


def test_facilities_by_key_next_to_files(coco: Runner) -> None:
    write_linked()
    command = ("init", "people.csv", "homes.csv", "towns.csv", "--data", "facilities=halls.csv")
    ran = coco(*command, "--values", "sex", "--values", "place=home,hall,prison")
    assert ran.code == 0
    config = load_config(CONFIG)
    assert (config.data.facilities, config.data.records) == (Path("halls.csv"), Path("people.csv"))
    assert (config.method.facilities.attribute, list(config.method.facilities.types)) == ("place", ["hall", "prison"])
    assert coco("check", CONFIG).code == 0
    write(notes="a,b\n1,2\n")
    assert "notes.csv: shares no column with the other files" in coco(*command, "notes.csv", "--out", "more.toml").err
    wrong = coco("init", *command[1:4], "--data", "levels=halls.csv", "--out", "more.toml")
    assert "--data levels=halls.csv: init writes no line for it" in wrong.err


def test_bounds_are_known_by_their_header_next_to_linked_files(coco: Runner) -> None:
    write_linked()
    write(limits="region,query,answer,lower,upper\nland,total,,0,99\n")
    files = {"records": "people.csv", "groups": "homes.csv", "hierarchy": "towns.csv"}
    by_key = [word for key, name in files.items() for word in ("--data", f"{key}={name}")]
    for command in ([*files.values(), "limits.csv"], by_key):
        assert coco("init", *command, "--values", "all").code == 0
        config = load_config(CONFIG)
        assert (config.data.bounds, config.data.columns["group_id"]) == (Path("limits.csv"), "hh")
        CONFIG.unlink()
    twice = coco("init", *by_key, "--data", "groups=towns.csv")
    assert "groups is homes.csv already" in twice.err


@pytest.mark.parametrize(
    ("name", "text"), [("homes", GROUPS), ("people", ENTITIES), ("many", SIZES), ("visits", VALUES)]
)
def test_files_of_two_kinds_are_not_guessed_at(coco: Runner, name: str, text: str) -> None:
    write(areas=HIERARCHY, persons=COUNTED, **{name: text})
    refused = coco("init")
    assert refused.code == 2
    assert "[two-tables]" in refused.err
    assert coco("init", f"{name}.csv", "persons.csv").code == 2
    assert coco("init", "--data", "records=persons.csv").code == 0
    assert 'hierarchy = "areas.csv"' in CONFIG.read_text()


def test_any_column_name_becomes_a_key(coco: Runner) -> None:
    names = ['say "hi"', "a\nb", "größe", "x.y", "{}"]
    pq.write_table(pa.table({name: ["r1"] for name in ("region_id", *names)}), "persons.parquet")
    assert coco("init", "--data", "records=persons.parquet").code == 0
    assert list(load_config_without_values(CONFIG).method.attributes) == names


@pytest.mark.parametrize("stem", ["my visits", "größe", 'say "hi"', "line\nbreak"])
def test_any_file_name_is_a_path_and_a_dataset(coco: Runner, stem: str) -> None:
    write(**{stem: VALUES})
    assert coco("init").code == 0
    config = load_config(CONFIG)
    assert config.data.values == Path(f"{stem}.csv")
    assert config.privacy.dataset == (stem if stem.isprintable() else "data")


def test_tables_of_other_column_names_are_told_by_the_columns_they_share(coco: Runner) -> None:
    """Semicolons, a byte order mark, CRLF, further columns, names beyond ASCII: a newcomer's own files."""
    Path("people.csv").write_text("pid;Haushalt;age\r\n" + "".join(f"p{k};h{k % 7};{CANARY}\r\n" for k in range(20)))
    homes = "\ufeffHaushalt;area;tenure\r\n" + "".join(f"h{k};{'nö'[k % 2]};own; rent\r\n" for k in range(8))
    Path("homes.csv").write_text(homes.replace("own; rent", '"own; rent"'))
    Path("areas.csv").write_text("area\tcountry\tpart\nn\tall\tSüd\nö\tall\tNord\n")
    Path("notes.csv").write_text("what,why\n1,2\n")
    done = coco("init", "--kind", "groups")
    assert done.code == 0
    assert "Taken as group_id: column 'Haushalt' of people.csv, homes.csv" in done.out
    data = load_config(CONFIG).data
    assert (data.entities.name, data.groups.name, data.hierarchy.name) == ("people.csv", "homes.csv", "areas.csv")
    assert data.columns == {"entity_id": "pid", "group_id": "Haushalt", "region_id": "area"}
    CONFIG.write_text(CONFIG.read_text().replace("max_size = 1000", "max_size = 100"))
    assert coco("release", CONFIG, "--out", "out").code == 0
    assert coco("verify", "out").code == 0
    assert "pid" not in Path("out/manifest.json").read_text()


def test_files_that_could_be_linked_in_two_ways_are_not_guessed_at(coco: Runner) -> None:
    write(a="x,y\n1,1\n", b="y,z\n1,1\n", c="z,w\n1,1\n", d="w,v\n1,1\n")
    assert "a.csv: and b.csv, c.csv, d.csv fit in no single way" in coco("init").err
    assert not CONFIG.exists()


def test_ids_among_persons_columns_are_no_attributes_and_what_was_taken_is_said(coco: Runner) -> None:
    write(persons="region_id,PersNr,person_id,Sex,age,piano,count\n", regions="region_id,country\nr1,land\n")
    ran = coco("init")
    assert ran.code == 0, ran
    assert "Taken as attributes: 'Sex', 'age', 'piano'" in ran.out
    assert "Left out of the attributes: 'PersNr' (by its name an id)" in ran.out
    text = CONFIG.read_text()
    assert "# PersNr = []" in text
    assert "person_id" not in text
    assert '"total", "Sex", "age", "piano"' in text


def write_office() -> None:
    """Write files as offices have them: semicolons, byte order marks, leading zeros, equal names, areas in km2."""
    persons = [f"{k:05};{k * k % 40:04};{'fm'[k % 2]};{k % 101};{k * 7919};n{k};{'ab'[k % 2]}" for k in range(300)]
    homes = [f"{k % 8:02};{k:04};{300 + k}" for k in range(40)]
    towns = ("mid", "mid", "top", "low")
    areas = [f"{k:02}\tall\t{'xy'[k // 4]}\t{towns[k % 4]}\t{k + 1}.5\t{900 + k}" for k in range(8)]
    texts = {
        "persons": ("person_nr;hh;sex;age;income;surname;status", persons),
        "homes": ("area;hh;rent", homes),
        "areas": ("area\tnation\tpart\ttown\tkm2\tpeople", areas),
    }
    for name, (header, rows) in texts.items():
        Path(f"{name}.csv").write_text("\ufeff" + "\r\n".join((header, *rows, "")), encoding="utf-8")


def test_persons_are_joined_through_households_to_regions(coco: Runner) -> None:
    write_office()
    ran = coco("init", "--ranges", "age=0..17,18..64,65..", "--values", "sex=f,m", "--values", "status")
    assert (ran.code, ran.errors) == (0, [])
    config = load_config(CONFIG)
    data = config.data
    assert (data.records.name, data.groups.name, data.hierarchy.name) == ("persons.csv", "homes.csv", "areas.csv")
    assert data.columns == {"group_id": "hh", "region_id": "area", "person_id": "person_nr"}
    assert data.levels == ("nation", "part", "town", "area")
    assert "Left out of the levels: 'km2', because it holds decimal numbers" in ran.out
    assert config.method.attributes == {"sex": ("f", "m"), "age": ("0..17", "18..64", "65.."), "status": ("a", "b")}
    assert "# income = []                 # left out: no values were stated" in CONFIG.read_text()
    assert "with  --kind groups" in ran.out
    assert coco("check", CONFIG).code == 0
    groups = coco("init", "--kind", "groups", "--out", "groups.toml")
    assert groups.code == 0
    assert load_config(Path("groups.toml")).data.columns["entity_id"] == "person_nr"


def test_a_folder_of_files_stands_for_a_table(coco: Runner) -> None:
    """The column of its sub-folders is one of the table's."""
    write(areas="region_id,nation\nr1,land\nr2,land\n")
    for region in ("r1", "r2"):
        part = Path("people") / f"region_id={region}"
        part.mkdir(parents=True)
        (part / "part-0.csv").write_text("sex,age group\nf,0-17\nm,18+\n")
        (part / ".part-0.csv.crc").write_text("")
    assert coco("init", "people/", "areas.csv", "--values", "all").code == 0
    config = load_config(CONFIG)
    assert (config.data.records, config.privacy.dataset) == (Path("people"), "people")
    assert config.method.attributes == {"sex": ("f", "m"), "age group": ("0-17", "18+")}
    ran = coco("check", CONFIG)
    assert ran.code == 0
    assert "people (2 files, 2 hidden names passed over)" in ran.out
    (Path("people") / "readme.txt").write_text(CANARY)
    ran = coco("check", CONFIG)
    assert ran.code == 2
    assert "people/readme.txt: is not part of a table" in ran.err


def test_all_values_are_read_on_request_and_long_lists_are_no_attributes(coco: Runner) -> None:
    write_office()
    Path("persons.csv").write_text(Path("persons.csv").read_text().replace("surname", CANARY).replace("income", "gain"))
    ran = coco("init", "--values", "all", "--ranges", "age=0..100")
    assert (ran.code, ran.errors) == (0, [])
    assert "Read the values of 'sex', 'status' of persons.csv" in ran.out
    text = CONFIG.read_text()
    assert "# gain = []                   # left out: a column of more than 100 values" in text
    assert load_config(CONFIG).method.attributes["age"] == tuple(map(str, range(101)))
    assert "n299" not in text + ran.out


def test_records_by_name_are_linked_by_their_own_columns(coco: Runner) -> None:
    Path("areas.tsv").write_text("area\tpart\tpeople\na\tn\t7\nb\tn\t9\nc\ts\t8\n")
    write(persons="sex,area\nf,a\nm,a\nf,b\n")
    assert coco("init", "--data", "records=persons.csv", "--values", "sex").code == 0
    data = load_config(CONFIG).data
    assert (data.hierarchy, data.columns) == (Path("areas.tsv"), {"region_id": "area"})
    assert (data.root, data.levels) == ("all", ("part", "area"))
    assert coco("check", CONFIG).code == 0


def test_free_texts_are_copied_only_if_their_column_is_named(coco: Runner) -> None:
    persons = "".join(f'r{k},f,"{CANARY}\n{k}"\n' for k in (1, 2))
    write(areas=HIERARCHY, persons=f"region_id,sex,wish\n{persons}")
    options = ("--data", "records=persons.csv", "--values")
    ran = coco("init", *options, "all")
    assert ran.code == 0
    assert "'wish' (by its values a free text)" in ran.out
    assert CANARY not in ran.out + CONFIG.read_text()
    assert coco("init", *options, "wish", "--out", "named.toml").code == 0
    assert CANARY in Path("named.toml").read_text()


def test_a_file_whose_key_has_another_name_is_named(coco: Runner) -> None:
    write_office()
    areas = Path("areas.csv")
    areas.write_text(areas.read_text().replace("area\t", "zone\t", 1))
    words = "areas.csv shares no column with the other files. Where a key has several names, list them, such as"
    assert words.replace("csv shares", "csv: shares") in coco("init", "persons.csv", "homes.csv", "areas.csv").err
    assert words in coco("init", "--data", "hierarchy=areas.csv").out
    assert words in coco("init", "--out", "folder.toml").out
    ran = coco("init", "--columns", "region_id=zone,area", "--out", "linked.toml")
    assert (ran.code, ran.errors) == (0, [])
    assert "Taken as region_id: column 'area' of homes.csv, 'zone' of areas.csv" in ran.out
    assert load_config_without_values("linked.toml").data.columns["region_id"] == ("zone", "area")


def load_config_without_values(name: str | Path) -> Config:
    """Read a written configuration in which the values of attributes are still to be listed."""
    path = Path(name)
    path.write_text(path.read_text().replace(" = []", ' = ["v"]'))
    return load_config(path)


def test_private_values_of_another_name(coco: Runner) -> None:
    write(visits="id,days,comment\n1,3,x\n2,700,y\n")
    assert "--columns value=NAME" in coco("init", "visits.csv").err
    named = coco("init", "visits.csv", "--columns", "value=days")
    assert named.code == 0
    assert load_config(CONFIG).data.columns == {"value": "days"}
    ranged = coco("init", "visits.csv", "--kind", "ranges", "--ranges", "days=0..729", "--out", "ranged.toml")
    assert "Taken as value: column 'days' of visits.csv" in ranged.out
    assert load_config(Path("ranged.toml")).method.cells == 730
    options = ("--kind", "ranges", "--ranges", "days=0..17,18..64,65..800", "--out", "edges.toml")
    assert coco("init", "visits.csv", *options).code == 0
    assert load_config(Path("edges.toml")).method.edges == (0, 18, 65, 801)
    assert coco("check", "edges.toml").code == 0


OFFICE = ("persons.csv", "homes.csv", "areas.csv")
RANGES = ("visits.csv", "--kind", "ranges")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--data", "records=none.csv"), "no such file"),
        (("--data", "records"), "--data KEY=FILE"),
        (("--data", "recods=persons.csv"), "no kind of release has [data] with recods: the keys are groups: entities"),
        (("--data", "records=areas"), "must be a .csv, .tsv or .parquet file"),
        ((*OFFICE, "--ranges", "age"), "write --ranges COLUMN=RANGES"),
        ((*OFFICE, "--ranges", "age=0..17,10..20"), "ranges must rise and not overlap"),
        ((*OFFICE, "--ranges", "ages=0..17,18.."), "no column 'ages'"),
        ((*OFFICE, "--values", "surname"), "column 'surname': is a column of more than 100 values"),
        ((*OFFICE, "--values", "hh"), "'hh' is an id or links the tables"),
        ((*OFFICE, "--values", "sex", "--kind", "groups"), "--values is for --kind tables"),
        (("visits.csv", "--columns", "value"), "write --columns COLUMN=NAME"),
        (("visits.csv", "--columns", "values=days"), "the columns that may have other names are entity_id, group_id"),
        (("visits.csv", "--columns", "value=hours"), "none of the files has a column 'hours'"),
        ((*RANGES, "--ranges", "days=0..17,20..30"), "a domain ends and has no gaps"),
        ((*RANGES, "--ranges", "days=0..17,18.."), "a domain ends and has no gaps"),
        ((*RANGES, "--values", "days", "--columns", "value=days"), "--values is for --kind tables"),
    ],
)
def test_wrong_options_are_refused_and_nothing_is_written(coco: Runner, options: tuple[str, ...], words: str) -> None:
    write_office()
    write(visits="id,days\n1,3\n2,700\n")
    ran = coco("init", *options)
    assert ran.code == 2
    assert words in ran.err
    assert not CONFIG.exists()


def test_persons_that_occur_twice_or_state_another_region_than_their_home_are_named(coco: Runner) -> None:
    write_office()
    homes = dict(line.split(";")[1::-1] for line in Path("homes.csv").read_text().splitlines()[1:])
    Path("homes.csv").write_text("hh;area\n" + "".join(f"{home};{area}\n" for home, area in homes.items()))
    head, *rows = Path("persons.csv").read_text(encoding="utf-8-sig").splitlines()
    rows = [f"{row};{homes[row.split(';')[1]]}" for row in rows]
    Path("persons.csv").write_text("\n".join([f"{head};area", *rows, ""]))
    ran = coco("init", "--ranges", "age=0..17,18..64,65..", "--values", "sex,status")
    assert "Both persons.csv and homes.csv state a region: that of homes.csv counts" in ran.out
    assert "Taken as person_id: column 'person_nr' of persons.csv" in ran.out
    assert "A person_id that occurs twice is refused" in ran.out
    assert coco("check", CONFIG).code == 0
    rows[4] = f"{rows[4][:-2]}ZZ"
    Path("persons.csv").write_text("\n".join([f"{head};area", *rows, rows[0], ""]))
    ran = coco("check", CONFIG)
    assert ran.code == 2
    assert "[region-differs]" in ran.err
    assert "row 6, column 'area'" in ran.err
    assert "[duplicate-entity]" in ran.err
    assert "row 302, column 'person_nr'" in ran.err


def test_an_id_of_persons_may_stand_in_any_column_unless_it_may_count_them(coco: Runner) -> None:
    for name, taken in (("id_persona", True), ("pid", True), ("person_nr", False), ("persona", False)):
        write(
            persons=f"home,{name},sex\nh1,1,f\nh1,2,m\n", homes="home,area\nh1,r1\n", areas="area,land,town\nr1,E,a\n"
        )
        ran = coco("init", "--out", f"{name}.toml")
        assert ran.code == 0
        assert (f"Taken as person_id: column '{name}' of persons.csv" in ran.out) is taken
        assert ("say --columns person_id=person_nr" in ran.out) is (name == "person_nr")
    write(persons="home,persona\nh1,1\nh1,2\n")  # nothing but keys: persons of groups
    assert "Taken as entities: persons.csv" in coco("init", "--out", "keys.toml").out


def test_a_bare_id_of_each_table_is_stated_once_for_each_key(coco: Runner) -> None:
    """Each of three tables begins with id: it is the key before those to which the table's other columns refer."""
    write(persons="id,household,sex\n" + "".join(f"{k},{k % 9},{'fm'[k % 2]}\n" for k in range(40)))
    write(homes="id,area\n" + "".join(f"{k},{k % 3}\n" for k in range(9)))
    write(areas="id,country,town\n0,E,a\n1,E,b\n2,E,c\n")
    stated = ("person_id=id", "group_id=household,id", "region_id=area,id")
    ran = coco("init", *(word for names in stated for word in ("--columns", names)), "--values", "sex")
    assert (ran.code, ran.errors) == (0, [])
    data = load_config(CONFIG).data
    assert (data.records.name, data.groups.name, data.hierarchy.name) == ("persons.csv", "homes.csv", "areas.csv")
    assert data.columns == {"group_id": ("household", "id"), "region_id": ("area", "id"), "person_id": "id"}
    assert coco("check", CONFIG).code == 0


STATED = [
    *(("groups", key) for key in ("entity_id", "group_id", "region_id")),
    *(("tables", key) for key in ("person_id", "group_id", "region_id")),
    ("ranges", "value"),
]


@pytest.mark.parametrize(("kind", "key"), STATED)
def test_a_stated_column_wins_over_a_rival_that_stands_first_and_has_the_name_of_the_key(
    coco: Runner, kind: str, key: str
) -> None:
    columns = {"entity_id": "pid", "person_id": "pid", "group_id": "hh", "region_id": "area", "value": "days"}
    tables = {
        "people": ["pid,hh,sex", *(f"{k},h{k % 9},{'fm'[k % 2]}" for k in range(40))],
        "homes": ["hh,area", *(f"h{k},r{k % 3}" for k in range(9))],
        "areas": ["area,land,town", *(f"r{k},E,{'abc'[k]}" for k in range(3))],
        "visits": ["pid,days", *(f"{k},{k}" for k in range(40))],
    }
    names = ("visits",) if kind == "ranges" else ("people", "homes", "areas")
    for name in names:
        head, *rows = tables[name]
        if columns[key] in head.split(","):
            head, rows = f"{key},{head}", [f"{number // 2},{row}" for number, row in enumerate(rows)]
        write(**{name: "\n".join([head, *rows, ""])})
    stated = {"ranges": (key,), "groups": ("entity_id", "group_id", "region_id")}
    options = [f"{own}={columns[own]}" for own in stated.get(kind, ("person_id", "group_id", "region_id"))]
    every = [word for option in options for word in ("--columns", option)]
    more = {"tables": ("--values", "sex"), "ranges": ("--ranges", "days=0..99")}
    files = [f"{name}.csv" for name in names]
    ran = coco("init", *files, "--kind", kind, *every, *more.get(kind, ()))
    assert (ran.code, ran.errors) == (0, [])
    CONFIG.write_text(CONFIG.read_text().replace("max_size = 1000", "max_size = 9"))
    assert load_config(CONFIG).data.columns[key] == columns[key]
    assert (coco("check", CONFIG).code, coco("check", CONFIG).errors) == (0, [])


@pytest.mark.parametrize("first", ["time", "apartment", "birth_number", "rodne_cislo"])
def test_a_first_column_of_another_name_is_not_taken_for_the_person(coco: Runner, first: str) -> None:
    write(people=f"{first},hh\n" + "".join(f"{k // 3},h{k % 9}\n" for k in range(40)))
    write(
        homes="hh,area\n" + "".join(f"h{k},r{k % 3}\n" for k in range(9)),
        areas="area,land,town\nr0,E,a\nr1,E,b\nr2,E,c\n",
    )
    ran = coco("init", "--kind", "groups")
    assert (ran.code, ran.errors) == (0, [])
    assert "say which column of people.csv holds one value for each entity (--columns entity_id=NAME)" in ran.out
    assert "# entity_id: NOT FOUND" in CONFIG.read_text()
    assert "entity_id" not in load_config(CONFIG).data.columns
    assert "[missing-column]" in coco("check", CONFIG).err
    assert coco("init", "--kind", "groups", "--columns", f"entity_id={first}", "--out", "stated.toml").code == 0
    assert load_config(Path("stated.toml")).data.columns["entity_id"] == first


def test_a_file_that_is_finer_than_the_regions_is_refused_for_what_repeats(coco: Runner) -> None:
    write_linked()
    write(walk="block,town\n1,a\n2,a\n3,b\n", lone="town,sex\na,f\na,m\nb,m\n")
    for files, kind in ((("people.csv", "homes.csv", "towns.csv", "walk.csv"), "groups"), (("lone.csv",), "tables")):
        ran = coco("init", *files, "--columns", "region_id=town", "--kind", kind)
        assert ran.code == 2
        assert f"{files[-1]}: repeats values of 'town' (a), and the table that lists these has one row for" in ran.err


def test_columns_that_link_no_file_are_said_to_be_missing_with_where_to_look(coco: Runner) -> None:
    write(people="a,b\n1,h1\n2,h1\n", homes="c,d\nh1,r1\n", areas=HIERARCHY)
    named = ("entities=people.csv", "groups=homes.csv", "hierarchy=areas.csv")
    options = [word for each in named for word in ("--data", each)]
    ran = coco("init", *options)
    assert ran.code == 0
    assert "say which column of homes.csv holds the ids by which homes.csv and people.csv belong together" in ran.out
    text = CONFIG.read_text()
    assert "# group_id: NOT FOUND in people.csv." in text
    assert "# region_id: NOT FOUND in homes.csv." in text
    assert 'look at "c", "d"' in text
    stated = ("entity_id=a", "group_id=b,c", "region_id=d,region_id")
    ran = coco("init", *options, *(word for each in stated for word in ("--columns", each)), "--out", "stated.toml")
    assert "NOT FOUND" not in Path("stated.toml").read_text()
    assert coco("check", "stated.toml").errors == []


@pytest.mark.parametrize(
    ("files", "words", "title"),
    [
        (
            {"persons": "pid,hh\np1,h1\np2,h1\n", "homes": "hh,area\nh1,r1\n", "areas": "area,land\nr1,l\n"},
            {"group": "household", "groups": "households", "entity": "person", "entities": "persons"},
            "Households by number of persons",
        ),
        (
            {
                "records": "student_nr,school_id\n1,s1\n2,s1\n",
                "schools": "school_id,area\ns1,r1\n",
                "areas": "area,land\nr1,l\n",
            },
            {"group": "school", "groups": "schools", "entity": "student", "entities": "students"},
            "Schools by number of students",
        ),
        ({"patients": COUNTED, "areas": HIERARCHY}, {"entity": "patient", "entities": "patients"}, "Patients by sex"),
        ({"visits": VALUES}, {"entity": "visit", "entities": "visits"}, None),
    ],
)
def test_words_for_readers_come_from_the_names_of_columns_and_files(
    coco: Runner, files: dict[str, str], words: dict[str, str], title: str | None
) -> None:
    write(**files)
    kind = ("--kind", "groups") if "group" in words else ()
    ran = coco("init", *kind, *(("--columns", "entity_id=student_nr") if "schools" in files else ()))
    assert (ran.code, ran.errors) == (0, [])
    output = load_config_without_values(CONFIG).output
    assert (output.words, output.title) == (words, title)


@pytest.mark.parametrize(
    ("file", "column", "found"),
    [
        ("persons", "id", True),
        ("people", "PersNr", True),
        ("patients", "patient_id", True),
        ("pessoas", "id_pessoa", True),
        ("pessoas", "id_domicilio", False),
        ("people", "pid", True),
        ("people", "household_id", False),
        ("people", "sex", False),
        ("people", "person", False),
    ],
)
def test_the_first_column_identifies_persons_where_its_name_says_so(
    coco: Runner, file: str, column: str, found: bool
) -> None:
    write(**{file: f"{column},region_id,age,work\n1,r1,3,x\n", "areas": HIERARCHY})
    ran = coco("init")
    assert ran.code == 0
    assert (f"Taken as person_id: column '{column}' of {file}.csv" in ran.out) is found
