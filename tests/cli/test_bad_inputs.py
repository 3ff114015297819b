"""Bad inputs of some seventy classes: each is a typed error with its place, shows no value, and costs nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from coco_opt.cli.reference import explanations
from tests.cli.bad_inputs import CLASSES, BadInput, draws
from tests.cli.helpers import CANARY, ENTITIES, KINDS, Runner, paid, write_groups

PLACE = re.compile(r"\b\w+\.(csv|toml|parquet|xlsx|txt|gz|json)\b|\w+\d, |: \w+\d: |^error: \w+\d:")
FAST, SLOW = 1, 10  # of each class


def refused(name: str, case: BadInput, folder: Path, coco: Runner) -> list[str]:
    """Return what is wrong with how an input is refused."""
    config = case.write(folder)
    checked, ran = coco("check", config), coco("release", config, "--json")
    if ran.code not in (2, 3):
        return [f"{name}: exit code {ran.code}: {ran.err[-300:]}"]
    error = json.loads(ran.out)["error"]
    wrong = [f"{name}: {error['code']} is no code for this: {error['message'][:200]}"] * (
        error["code"] not in case.codes
    )
    wrong += [f"{name}: {error['code']} is not explained"] * (error["code"] not in explanations())
    wrong += [f"{name}: check says {checked.errors}, release {ran.errors}"] * (checked.errors != ran.errors)
    for line in ran.errors:
        wrong += [f"{name}: without a place: {line[:200]}"] * (PLACE.search(line) is None)
        wrong += [f"{name}: shows a value: {line[:200]}"] * (CANARY in line)
        wrong += [f"{name}: {len(line)} characters"] * (len(line) > 1500)
    wrong += [f"{name}: {len(ran.errors)} lines"] * (not 1 <= len(ran.errors) <= 4)
    wrong += [f"{name}: paid"] * bool(paid(folder))
    return wrong


@pytest.mark.parametrize("each", [FAST, pytest.param(SLOW, marks=pytest.mark.slow)])
def test_every_bad_input_is_typed_placed_and_free(each: int, tmp_path: Path, coco: Runner) -> None:
    assert len(CLASSES) >= 60
    cases = list(draws(each))
    assert each == FAST or len(cases) >= 700
    wrong = [
        problem
        for number, (name, case) in enumerate(cases)
        for problem in refused(name, case, tmp_path / str(number), coco)
    ]
    assert wrong == []


FOREIGN = {
    "persons.xlsx": b"PK\x03\x04",
    "persons.pdf": b"%PDF-1.7",
    "workbook.csv": b"PK\x03\x04rest",
    "old.csv": b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
    "document.csv": b"%PDF-1.7\n",
    "packed.csv": b"\x1f\x8b\x08",
    "unicode.csv": "value\n1\n".encode("utf-16"),
}


@pytest.mark.parametrize("file", FOREIGN)
def test_what_another_program_wrote_is_told_how_to_save_it(tmp_path: Path, coco: Runner, file: str) -> None:
    config = KINDS["ranges"].write(tmp_path)
    config.write_text(config.read_text().replace("values.csv", file))
    (tmp_path / file).write_bytes(FOREIGN[file])
    for ran in (coco("check", config), coco("init", tmp_path / file, "--out", tmp_path / "new.toml")):
        assert ran.code == 2
        assert "save the sheet as CSV UTF-8" in ran.err


def test_trailing_commas_are_empty_fields_that_change_nothing(tmp_path: Path, coco: Runner) -> None:
    """Spreadsheets write them; nothing can be misread by them."""
    plain = write_groups(tmp_path / "plain")
    commas = write_groups(tmp_path / "commas", entities=ENTITIES.replace("g2\n", "g2,\n").replace("g4\n", "g4,,\n"))
    for config in (plain, commas):
        assert coco("release", config, "--out", config.parent / "out").code == 0
    one, other = ((config.parent / "out" / "histograms.parquet").read_bytes() for config in (plain, commas))
    assert one == other


def test_hundreds_of_levels_are_released_and_a_few_drawn(tmp_path: Path, coco: Runner) -> None:
    levels = 150
    header = ",".join(["region_id", *(f"level{k}" for k in range(levels))])
    path = ",".join(f"n{k}" for k in range(levels - 1))
    config = write_groups(tmp_path, hierarchy=f"{header}\nr1,{path},north\nr2,{path},south\n")
    assert coco("release", config, "--out", tmp_path / "out").code == 0
    assert coco("verify", tmp_path / "out").code == 0
    assert (tmp_path / "out" / "report.html").read_text(encoding="utf-8").count("<h3>") <= 20
