"""Small simulated data of every kind as users would bring them, and one way to run the command line in this process."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from coco_opt.cli import main

CANARY = "zebra7391"

HIERARCHY = "region_id,country,county\nr1,land,north\nr2,land,south\n"
GROUPS = "group_id,region_id\ng1,r1\ng2,r1\ng3,r1\ng4,r2\ng5,r2\n"
ENTITIES = "entity_id,group_id\n" + "".join(
    f"e{k},g{group}\n" for k, group in enumerate((1, 1, 2, 2, 2, 4, 4, 4, 4, 5))
)
SIZES = "country,county,size,groups\nland,north,0,1\nland,north,2,3\nland,south,1,4\nland,south,5,2\n"
RECORDS = "region_id,sex,age,count\n" + "".join(
    f"r{region},{sex},{age},{3 + 5 * region + len(age)}\n"
    for region in (1, 2)
    for sex in ("female", "male")
    for age in ("child", "adult", "old")
)
VALUES = "value\n" + "".join(f"{k * k % 9}\n" for k in range(40))

ROOT = Path(__file__).resolve().parents[2]
SECURE, SEEDED = 'dataset = "land"', 'noise = "seeded"\nseed = 5'


def environment_of(checkout: Path) -> dict[str, str]:
    """Return the environment in which Python imports the packages of a checkout."""
    paths = (checkout, checkout / "solvers", checkout / "experiments")
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}


@dataclass(frozen=True)
class Data:
    """Simulated data of one kind: files by key of [data], its own section, and a method beside the default one."""

    files: dict[str, str]
    section: str
    other: str
    problems: frozenset[str]

    def write(self, folder: Path, *, privacy: str = SEEDED, more: str = "", **texts: str) -> Path:
        """Write the files, some replaced, and ``run.toml`` with epsilon 1; return the configuration."""
        folder.mkdir(exist_ok=True)
        for key, text in {**self.files, **texts}.items():
            (folder / f"{key}.csv").write_text(text, encoding="utf-8")
        data = "\n".join(f'{key} = "{key}.csv"' for key in self.files)
        path = folder / "run.toml"
        budget = "" if "rho" in privacy or "delta" in privacy else 'epsilon = "1"\n'
        # One measurement, level by level alike: what is chosen otherwise has tests of its own.
        split = "" if "split" in privacy else 'split = "uniform"\n'
        text = f"[data]\n{data}\n\n[privacy]\n{budget}{split}{privacy}\n\n{self.section}\n{more}\n"
        path.write_text(text, encoding="utf-8")
        return path


KINDS = {
    "groups": Data(
        {"entities": ENTITIES, "groups": GROUPS, "hierarchy": HIERARCHY},
        '[groups]\nbucket_growth = 0\nconsistency = "matching"\nmax_size = 20',
        'merge = "average"',
        frozenset(
            {
                "isotonic_l2",
                "isotonic_l1",
                "simplex_projection",
                "controlled_rounding",
                "group_matching",
            }
        ),
    ),
    "tables": Data(
        {"records": RECORDS, "hierarchy": HIERARCHY},
        '[topdown]\nattributes = { sex = ["female", "male"], age = ["child", "adult", "old"] }\n'
        'workload = ["total", "sex * age"]',
        'estimation = "classic"',
        frozenset({"topdown_split", "table_rounding"}),
    ),
    "ranges": Data(
        {"values": VALUES},
        "[ranges]\ncells = 9\nfan_out = 3",
        'estimator = "consistent"',
        frozenset({"tree_l2"}),
    ),
}


@dataclass(frozen=True)
class Ran:
    """What a command returned and printed."""

    code: int
    out: str
    err: str

    @property
    def errors(self) -> list[str]:
        """Return the lines that say what failed; the others on standard error are stages."""
        return [line for line in self.err.splitlines() if line.startswith("error: ")]


class Runner:
    """Runs ``coco-opt`` in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str | Path) -> Ran:
        self._capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        printed = self._capsys.readouterr()
        return Ran(code, printed.out, printed.err)


def write_groups(folder: Path, *, privacy: str = SEEDED, more: str = "", **texts: str) -> Path:
    """Write three tables of groups, some replaced, and a configuration; return the configuration."""
    return KINDS["groups"].write(folder, privacy=privacy, more=more, **texts)


def write_sizes(folder: Path, text: str = SIZES, *, privacy: str = SEEDED, more: str = "") -> Path:
    """Write a table of counts and a configuration; return the configuration."""
    return Data({"sizes": text}, KINDS["groups"].section, "", frozenset()).write(folder, privacy=privacy, more=more)


def paid(folder: Path) -> list[str]:
    """Return the kinds of entries in a folder's ledger, in order; none where there is no ledger."""
    from coco_opt.privacy import Ledger

    return [entry.kind for entry in Ledger(folder / "private" / "ledger.sqlite").entries()]
