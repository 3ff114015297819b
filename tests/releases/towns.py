"""Small inputs of a groups release, and reporters that watch a run or stop it where they are told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from coco_opt.activity import Progress
from coco_opt.config import Config, load_config
from coco_opt.privacy import Ledger

ENTITIES = "entity_id,group_id\n" + "".join(f"zebra{k},g{k % 7}\n" for k in range(30))
GROUPS = "group_id,region_id\n" + "".join(f"g{k},r{k % 2}\n" for k in range(8))
HIERARCHY = "region_id,nation,state\nr0,land,north\nr1,land,south\n"
ALL = ["GRANTED", "RESERVED", "MEASURED", "RELEASED"]
STAGES = ("Reading the private table", "Measuring", "Estimating", "Writing the release")


def write(folder: Path, privacy: str = "", *, epsilon: str = "1", more: str = "", name: str = "run") -> Path:
    """Write three tables and a configuration with secure noise of dataset "towns"; return the configuration."""
    folder.mkdir(exist_ok=True)
    for table, text in (("entities", ENTITIES), ("groups", GROUPS), ("hierarchy", HIERARCHY)):
        (folder / f"{table}.csv").write_text(text)
    data = "\n".join(f'{table} = "{table}.csv"' for table in ("entities", "groups", "hierarchy"))
    dataset = "" if "dataset" in privacy else 'dataset = "towns"'
    method = "" if "consistency" in more else 'consistency = "matching"'
    path = folder / f"{name}.toml"
    split = "" if "split" in privacy else 'split = "uniform"'
    paid = f'[privacy]\nepsilon = "{epsilon}"\n{split}\n{dataset}\n{privacy}\n'
    single = "" if "bucket" in more else "bucket_growth = 0"
    path.write_text(f"[data]\n{data}\n{paid}[groups]\nmax_size = 9\n{single}\n{method}\n{more}\n")
    return path


def config_in(folder: Path, privacy: str = "", *, epsilon: str = "1", more: str = "", name: str = "run") -> Config:
    """Write the input and return the checked configuration."""
    return load_config(write(folder, privacy, epsilon=epsilon, more=more, name=name))


def ledger(folder: Path) -> Ledger:
    """Return the ledger in a folder's private folder."""
    return Ledger(folder / "private" / "ledger.sqlite")


def entries(folder: Path) -> list[str]:
    """Return the kinds of a ledger's entries, in order."""
    return [entry.kind for entry in ledger(folder).entries()]


class StoppedError(Exception):
    """Raised by a reporter to interrupt a run."""


class Watch:
    """A reporter that keeps what it is told, and stops the run when a stage begins that is named ``stop``."""

    def __init__(self, stop: str = "") -> None:
        self.lines: list[str] = []
        self.stages: list[str] = []
        self.progress: list[tuple[int, int]] = []
        self._stop = stop

    def line(self, text: str) -> None:
        """Keep a line."""
        self.lines.append(text)

    @contextmanager
    def stage(self, label: str) -> Iterator[Progress]:
        """Keep the stage's name, or stop."""
        self.stages.append(label)
        if label == self._stop:
            raise StoppedError
        yield lambda done, total: self.progress.append((done, total))
