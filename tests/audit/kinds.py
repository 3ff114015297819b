"""A configuration of every kind of release whose private table does not exist, and what an audit makes of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coco_opt.cli.audit import subject_of
from coco_opt.config import load_config
from coco_opt.kinds import kind_row
from tests.audit.helpers import AnySubject

KINDS = ("groups", "tables", "ranges")
CASES = (*KINDS, "buckets")
PURE = 'epsilon = "1"'
RHO = 'mechanism = "discrete_gaussian"\nrho = "1/2"'
SEEDED = 'noise = "seeded"\nseed = 3'

_FILES = {
    "groups.csv": "group_id,region_id\n" + "".join(f"g{k},r{k % 3}\n" for k in range(24)),
    "regions.csv": "region_id,nation,state\n" + "".join(f"r{k},land,s{k}\n" for k in range(4)),
}
_DATA = {
    "groups": 'entities = "absent.csv"\ngroups = "groups.csv"\nhierarchy = "regions.csv"',
    "buckets": 'entities = "absent.csv"\ngroups = "groups.csv"\nhierarchy = "regions.csv"',
    "tables": 'records = "absent.csv"\nhierarchy = "regions.csv"',
    "ranges": 'values = "absent.csv"',
}
# Each asks something of sensitivity 2, so that it can be taken for half.
_SECTION = {
    "groups": '[groups]\nmax_size = 6\nquery = "sizes"\nconsistency = "matching"',
    "buckets": '[groups]\nmax_size = 6\nbucket_edges = [0, 1, 3]\nconsistency = "posterior"',
    "tables": (
        '[topdown]\nattributes = { sex = ["female", "male"], age = ["child", "adult", "old"] }\n'
        'workload = ["cumulative(age)", "detail"]\nstrategy = ["cumulative(age)"]'
    ),
    "ranges": "[ranges]\ncells = 8\nfan_out = 8",
}


def config_of(
    kind: str, folder: Path, privacy: str = PURE, *, section: str = "", more: str = "", data: str = ""
) -> Path:
    """Write a seeded configuration of a kind with its public tables; return it. ``section`` replaces the usual one."""
    for name, text in _FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    path = folder / "run.toml"
    budget = f'{privacy}\nsplit = "uniform"\n{SEEDED}'
    text = f"[data]\n{_DATA[kind]}\n{data}\n[privacy]\n{budget}\n{section or _SECTION[kind]}\n{more}"
    path.write_text(text, encoding="utf-8")
    return path


@dataclass(frozen=True, eq=False)
class Audited:
    """A kind's subject and neighbours of its simulated data."""

    subject: AnySubject
    pair: Any


def audited(kind: str, folder: Path, privacy: str = PURE, *, section: str = "") -> Audited:
    """Return what the verb audits."""
    config = load_config(config_of(kind, folder, privacy, section=section))
    value: Any = kind_row(config.kind).load()
    like = value.simulated_data(value.plan(config), None, 2)
    return Audited(subject_of(value, like.plan), value.neighbours(like))
