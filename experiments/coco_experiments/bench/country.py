"""A country end to end through the command line: made, checked, measured, estimated and verified, stage by stage.

``--states N`` makes N of fifty states, of 124,000 blocks with 2,016 cells each (``coco_experiments.topdown.country``).
Files and the record of finished stages stay below ``--out``: the same call takes up where it stopped. Sizes that were
run into the same folder before are compared: what one more block costs is the slope between them.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from coco_experiments.bench.apart import apart
from coco_experiments.bench.rows import Bench
from coco_experiments.bench.stages import toml, watched
from coco_experiments.kifer2019.redistricting import settings
from coco_experiments.outcome import Outcome, Reporter
from coco_experiments.topdown.country import FACILITIES, PERSONS, REGIONS, STATES, GeneratedCountry

NAME = "bench/country"
SEED = 1
SMALL_PART = 0.002  # of a state's blocks
CONFIG, RECORD = "tables.toml", "stages.json"
RELEASE = "release"


@dataclass(frozen=True, slots=True)
class Stage:
    """What a stage took: seconds, seconds of all cores, peak memory and that in no file (MB), bytes it left on disk.

    ``steps`` are the lines that the program printed, each with its seconds, cores' seconds and peak memory.
    """

    name: str
    seconds: float
    cpu: float
    peak: float
    anonymous: float
    disk: int
    steps: tuple[tuple[str, float, float, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Country:
    """A simulated country's folder, its states and the part of each one's blocks, and what is finished."""

    folder: Path
    states: int
    part: float

    @property
    def record(self) -> dict[str, Any]:
        """Return blocks, persons and finished stages."""
        path = self.folder / RECORD
        return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {"stages": []}

    @property
    def stages(self) -> list[Stage]:
        """Return the finished stages."""
        return [Stage(**{**stage, "steps": tuple(map(tuple, stage["steps"]))}) for stage in self.record["stages"]]

    def run(self) -> Iterator[str]:
        """Run the stages that are not finished, and yield the name of each. RuntimeError where one fails."""
        self.folder.mkdir(parents=True, exist_ok=True)
        finished = {stage.name for stage in self.stages}
        for name, call in self._calls().items():
            if name not in finished:
                before = disk(self.folder)
                stage, more = call()
                left = disk(self.folder) - before
                record = self.record
                record["stages"].append({**asdict(stage), "disk": left})
                (self.folder / RECORD).write_text(json.dumps({**record, **more}, indent=1), encoding="utf-8")
            yield name

    def _calls(self) -> dict[str, Callable[[], tuple[Stage, dict[str, Any]]]]:
        return {
            "make": self._make,
            "check": lambda: self._call("check", CONFIG),
            "measure": lambda: self._call("measure", CONFIG),
            "estimate": self._estimate,
            "verify": lambda: self._call("verify", RELEASE),
        }

    def _make(self) -> tuple[Stage, dict[str, Any]]:
        done = apart(f"{__name__}:make", str(self.folder), self.states, self.part)
        return Stage("make", done.seconds, done.cpu, done.peak, 0.0, 0), done.value

    def _call(self, *arguments: str) -> tuple[Stage, dict[str, Any]]:
        call = watched(arguments, self.folder)
        steps = tuple((step.name, step.seconds, step.cpu, step.peak) for step in call.stages)
        return Stage(arguments[0], call.seconds, call.cpu, call.peak, call.anonymous, 0, steps), {}

    def _estimate(self) -> tuple[Stage, dict[str, Any]]:
        (sealed,) = (self.folder / "private").glob("*/*/measurement")
        if (self.folder / RELEASE).exists():  # written, but stopped before it was recorded
            shutil.rmtree(self.folder / RELEASE)
        return self._call("estimate", sealed.parent.name, CONFIG, "--out", RELEASE)


def make(folder: str, states: int, part: float) -> dict[str, Any]:
    """Write the tables and the configuration; return the numbers of blocks and persons."""
    country = GeneratedCountry.of(states, SEED, part)
    files = {"records": PERSONS, "hierarchy": REGIONS, "facilities": FACILITIES}
    data = {key: f"{name}.parquet" for key, name in files.items()}
    text = toml({"data": data, **settings(country.schema, nation=True, seed=SEED)})
    Path(folder, CONFIG).write_text(text, encoding="utf-8")
    return {"blocks": country.blocks, "persons": country.write(Path(folder))}


def disk(folder: Path) -> int:
    """Return the bytes of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def add_rows(bench: Bench, country: Country) -> None:
    """Add a row for each stage, those of the longer calls by step."""
    blocks = country.record["blocks"]
    for stage in country.stages:
        name = f"{country.states} states, {stage.name}"
        for step, seconds, cpu, peak in stage.steps if stage.name in ("measure", "estimate") else ():
            bench.row(name, step, blocks, seconds, cpu=cpu, peak=peak or None)
        bench.row(name, "in all", blocks, stage.seconds, cpu=stage.cpu, peak=stage.peak)


def slopes(countries: list[Country]) -> Iterator[str]:
    """Yield a line a stage and pair of sizes: what one more block costs."""
    for small, large in pairwise(countries):
        more = large.record["blocks"] - small.record["blocks"]
        for before, after in zip(small.stages, large.stages, strict=False):
            cpu, peak, anonymous, left = (
                (getattr(after, name) - getattr(before, name)) / more for name in ("cpu", "peak", "anonymous", "disk")
            )
            yield (
                f"{small.states} to {large.states} states, {after.name}: one more block costs {1e6 * cpu:,.0f} "
                f"microseconds of the cores, {1e6 * peak:,.0f} bytes of memory ({1e6 * anonymous:,.0f} in no file) and "
                f"{left:,.0f} bytes of disk"
            )


def faults(country: Country) -> Iterator[str]:
    """Yield what is wrong with a release: a region whose table a failsafe changed."""
    manifest = json.loads((country.folder / RELEASE / "manifest.json").read_text(encoding="utf-8"))
    if relaxed := manifest["relaxed"]:
        yield f"{len(relaxed):,} regions relaxed, such as {relaxed[0]}"


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None, states: int | None = None) -> Outcome:
    """Make, check, measure, estimate and verify a country of some states (default: all; small: 2 of some blocks)."""
    count, part = states or (2 if small else STATES), SMALL_PART if small else 1.0
    place = out / NAME / ("small" if small else "states")
    country = Country(place / f"{count}", count, part)
    bench = Bench(NAME, reporter)
    bench.notes.append("Simulated data, seeded noise: NOT PRIVATE. One element is one block of 2,016 cells.")
    try:
        for done, _ in enumerate(country.run(), 1):
            reporter.progress(NAME, done, 5)
        bench.wrong += faults(country)
    except RuntimeError as error:
        bench.wrong.append(str(error))
    record = country.record
    if "blocks" in record:
        left = sum(stage.disk for stage in country.stages)
        bench.notes.append(
            f"{record['blocks']:,} blocks, {record['persons']:,} persons; {left / 1e9:.2f} GB in {country.folder}"
        )
        add_rows(bench, country)
    sizes = sorted(int(path.name) for path in place.iterdir() if (path / RECORD).exists())
    bench.notes += slopes([Country(place / f"{size}", size, part) for size in sizes])
    return bench.finish("A simulated country, stage by stage: one run", out)
