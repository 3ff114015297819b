"""Small inputs of a release of tables: 300 persons in six counties of two states, and their configuration."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from coco_opt.config import Config, load_config
from coco_opt.releases import Silent, verify_release

HIERARCHY = "region_id,nation,state,county\n" + "".join(
    f"r{state}{county},land,s{state},c{county}\n" for state in range(2) for county in range(3)
)
SEX, AGE = ("female", "male"), ("child", "adult", "old")
SEEDED = 'epsilon = "2"\nnoise = "seeded"\nseed = 5\n'
SECURE = 'epsilon = "2"\ndataset = "persons"\n'
TOPDOWN = """attributes = { sex = ["female", "male"], age = ["child", "adult", "old"] }
workload = ["total", "sex", "sex * age"]
"""


def records(persons: int = 300, forbid: str = "") -> str:
    """Return a table of records, none of which holds ``forbid``."""
    rng = np.random.default_rng(11)
    lines = ["region_id,sex,age"]
    while len(lines) <= persons:
        region = f"r{rng.integers(2)}{rng.integers(3)}"
        line = f"{region},{SEX[rng.integers(2)]},{AGE[rng.integers(3)]}"
        if not forbid or forbid not in line:
            lines.append(line)
    return "\n".join(lines) + "\n"


def write(
    folder: Path,
    privacy: str = SEEDED,
    topdown: str = TOPDOWN,
    persons: str | None = None,
    more: str = "",
    data: str = "",
) -> Config:
    """Write the input and return the checked configuration; unless the text says otherwise the workload is measured."""
    (folder / "hierarchy.csv").write_text(HIERARCHY)
    (folder / "persons.csv").write_text(records() if persons is None else persons)
    (folder / "run.toml").write_text(
        f'[data]\nrecords = "persons.csv"\nhierarchy = "hierarchy.csv"\n{data}'
        f"[privacy]\n{privacy}{_unless(privacy, 'split')}"
        f"[topdown]\n{_unless(topdown + more, 'strategy')}{topdown}{more}"
    )
    return load_config(folder / "run.toml")


def _unless(text: str, key: str) -> str:
    """Return a line that sets a key to what the tests count with, or nothing where a text sets it."""
    value = {"split": "uniform", "strategy": "workload"}[key]
    return "" if f"{key} =" in text else f'{key} = "{value}"\n'


def bounds(folder: Path, *rows: str) -> str:
    """Write a table of public bounds and return its line of [data]."""
    (folder / "bounds.csv").write_text("\n".join(["region,query,answer,lower,upper", *rows]) + "\n")
    return 'bounds = "bounds.csv"\n'


def failing(folder: Path) -> list[str]:
    """Return the checks that a release folder fails."""
    return [f"{check.name}: {check.detail}" for check in verify_release(folder) if not check.passed]


class Heard(Silent):
    """A reporter that keeps its lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def line(self, text: str) -> None:
        self.lines.append(text)
