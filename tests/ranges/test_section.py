"""The configuration of ranges: keys, defaults, and one clear line for every mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from coco_opt.config import Config, parse_config
from coco_opt.errors import ConfigError
from coco_opt.privacy import Rho

MINIMAL = """
[data]
values = "visits.parquet"
[privacy]
epsilon = "1"
dataset = "visits-2026"
[ranges]
cells = 365
"""
FULL = """
[data]
values = "ages.csv"
[privacy]
mechanism = "discrete_gaussian"
rho = "1/2"
split = [1]
noise = "seeded"
seed = 7
neighbours = "replace"
[ranges]
edges = [-5, 0, 18, 65, 100]
outside = "clamp"
fan_out = 4
estimator = "zeroed"
[solvers]
tree_l2 = "piqp"
"""


def read(text: str, old: str = "", new: str = "") -> Config:
    assert old in text
    return parse_config(text.replace(old, new), Path("/data/here"), file="run.toml")


def failure(old: str, new: str, text: str = MINIMAL) -> str:
    with pytest.raises(ConfigError) as caught:
        read(text, old, new)
    return str(caught.value)


def test_defaults() -> None:
    config = read(MINIMAL)
    assert (config.kind, config.data.values) == ("ranges", Path("/data/here/visits.parquet"))
    section = config.method
    assert (section.size, section.edges, section.outside) == (365, None, "refuse")
    assert (section.fan_out, section.estimator) == ("auto", "nonnegative")


def test_every_key_can_be_set() -> None:
    config = read(FULL)
    section = config.method
    assert (section.size, section.edges, section.outside) == (4, (-5, 0, 18, 65, 100), "clamp")
    assert (section.fan_out, section.estimator, config.privacy.cost) == (4, "zeroed", Rho(config.privacy.rho or 0))
    assert read(FULL, "fan_out = 4", 'fan_out = "cells"').method.fan_out == "cells"


def test_private_files_appear_in_no_manifest() -> None:
    plain = read(MINIMAL).as_dict()
    assert {key: plain["ranges"][key] for key in ("cells", "outside", "fan_out", "estimator")} == {
        "cells": 365,
        "outside": "refuse",
        "fan_out": "auto",
        "estimator": "nonnegative",
    }
    assert plain["data"] == {}


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("cells = 365", "", "[ranges.cells] is required"),
        ("cells = 365", "cells = 365\nedges = [0, 1]", "either cells or edges"),
        ("cells = 365", "cells = 0", "[ranges.cells]"),
        ("cells = 365", "cells = true", "[ranges.cells]"),
        ("cells = 365", "edges = [0]", "at least 2"),
        ("cells = 365", "edges = [0, 5, 5]", "must rise"),
        ("cells = 365", "edges = [0, 5.5]", "integers"),
        ("cells = 365", "edges = [0, 9999999999999999999]", "10^18"),
        ("cells = 365", "cells = 365\nfan_out = 1", "at least 2"),
        ("cells = 365", 'cells = 365\nfan_out = "binary"', '"auto", "optimised", "cells"'),
        ("cells = 365", 'cells = 365\nestimator = "nonegative"', "did you mean 'nonnegative'"),
        ("cells = 365", 'cells = 365\noutside = "ignore"', "refuse, clamp"),
        ("cells = 365", "cells = 365\nfanout = 4", "did you mean 'fan_out'"),
        ('values = "visits.parquet"', "", "[data.values] is required"),
        ('values = "visits.parquet"', 'sizes = "visits.parquet"', "unknown key"),
    ],
)
def test_mistakes_are_named(old: str, new: str, words: str) -> None:
    assert words in failure(old, new)
