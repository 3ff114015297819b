"""A small made data set as users would bring it, and one way to run the command line in this process."""

from __future__ import annotations

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


@dataclass(frozen=True)
class Ran:
    """What a command returned and printed."""

    code: int
    out: str
    err: str


class Runner:
    """Runs ``coco-opt`` in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str | Path) -> Ran:
        self._capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        printed = self._capsys.readouterr()
        return Ran(code, printed.out, printed.err)


def write_tables(folder: Path, **texts: str) -> Path:
    """Write the three tables, some replaced, and a seeded configuration; return the configuration."""
    given = {"hierarchy": HIERARCHY, "groups": GROUPS, "entities": ENTITIES, **texts}
    for name, text in given.items():
        (folder / f"{name}.csv").write_text(text, encoding="utf-8")
    return write_config(folder, 'entities = "entities.csv"\ngroups = "groups.csv"\nhierarchy = "hierarchy.csv"')


def write_sizes(folder: Path, text: str = SIZES) -> Path:
    """Write a table of counts and a seeded configuration; return the configuration."""
    (folder / "sizes.csv").write_text(text, encoding="utf-8")
    return write_config(folder, 'sizes = "sizes.csv"')


def write_config(
    folder: Path, data: str, *, groups: str = "max_size = 20", privacy: str = 'noise = "seeded"\nseed = 5'
) -> Path:
    """Write ``run.toml`` with epsilon 1 and return it."""
    path = folder / "run.toml"
    path.write_text(f'[data]\n{data}\n\n[privacy]\nepsilon = "1"\n{privacy}\n\n[groups]\n{groups}\n', encoding="utf-8")
    return path
