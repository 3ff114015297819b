"""The configuration of ranges: keys, defaults, and one clear line for every mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from coco_opt.config import Config, parse_config
from coco_opt.errors import ConfigError

MINIMAL = """
[data]
values = "visits.parquet"
[privacy]
epsilon = "1"
dataset = "visits-2026"
[ranges]
cells = 365
"""


def read(text: str, old: str = "", new: str = "") -> Config:
    assert old in text
    return parse_config(text.replace(old, new), Path("/data/here"), file="run.toml")


def failure(old: str, new: str, text: str = MINIMAL) -> str:
    with pytest.raises(ConfigError) as caught:
        read(text, old, new)
    return str(caught.value)


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
        ("cells = 365", 'cells = 1048577\nestimator = "posterior"', "up to 1,048,576 cells"),
        ("cells = 365", "cells = 365\nfan_out = 1", "at least 2"),
        ("cells = 365", "cells = 365\nintervals = 0.9", "ranges.intervals"),
        ("cells = 365", "cells = 365\ndraws = 5", "ranges.draws"),
        ("cells = 365", 'cells = 365\nestimator = "posterior"\ndraws = 1000', "ranges.draws"),
        ("cells = 365", 'cells = 365\nestimator = "posterior"\nintervals = 1.0', "ranges.intervals"),
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
