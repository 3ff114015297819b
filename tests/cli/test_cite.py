"""Every method, kind and law of noise can be cited, and a release names what it used."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from coco_opt.cli.cite import references, sources
from coco_opt.config.sections import Mechanism
from coco_opt.estimators import ESTIMATORS
from coco_opt.kinds import KINDS
from tests.cli.helpers import Runner, write_groups


def test_everything_that_a_config_chooses_has_a_source() -> None:
    chosen = {*(row.name for row in ESTIMATORS), *get_args(Mechanism), *(row.name for row in KINDS)}
    assert chosen <= set(sources())
    assert {key for keys in sources().values() for key in keys} == set(references())


def test_entries_are_printed_once_each(coco: Runner) -> None:
    out = coco("cite", "joint", "matching", "ranges").out
    assert [out.count(f"{{{key},") for key in ("coco-opt", "kuo2018", "hay2010", "abowd2022")] == [1, 1, 1, 0]
    assert out.count("{") == out.count("}")
    assert "posterior" in coco("cite").out


@pytest.mark.parametrize(("name", "words"), [("join", "did you mean 'joint'"), ("xyzzy", "known: groups")])
def test_an_unknown_name(name: str, words: str, coco: Runner) -> None:
    ran = coco("cite", name)
    assert (ran.code, words in ran.err) == (2, True)


def test_a_release_is_cited_by_its_folder(coco: Runner, tmp_path: Path) -> None:
    config = write_groups(tmp_path)
    assert coco("release", config, "--out", tmp_path / "out").code == 0
    out = coco("cite", tmp_path / "out").out
    assert "{kuo2018," in out
    assert "{ghosh2012," in out
    assert "{abowd2022," not in out
