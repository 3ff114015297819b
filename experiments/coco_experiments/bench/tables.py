"""Tables end to end through the command line: a made state, checked, released with all files, and verified.

Each call is a process of its own, watched from outside, by stage. What matters is what more blocks cost: memory is to
stay, and seconds to grow no faster than blocks. The state is MADE (``coco_experiments.topdown.census``): sizes, sums
and sparsity are like a census's, errors would say nothing. ``tables_large`` does the
same at 60,000 and 300,000 blocks, in minutes and 3 GB.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from coco_experiments.bench.rows import Bench, Benchmark
from coco_experiments.bench.stages import Watched, watched
from coco_experiments.kifer2019 import redistricting
from coco_experiments.topdown.census import CONFIG, GeneratedCensus, config_text

SIZES, LARGE, SMALL = (5_000, 20_000), (60_000, 300_000), (60, 180)
SEED = 1
CALLS = (("check", CONFIG), ("release", CONFIG, "--out", "release"), ("verify", "release"))


@dataclass(frozen=True, slots=True)
class State:
    """A made state of some blocks, its persons, and what each call took."""

    blocks: int
    persons: int
    calls: dict[str, Watched]

    @property
    def name(self) -> str:
        """Return what it is called in the table."""
        return f"MADE state, {self.blocks:,} blocks"


def write_state(folder: Path, blocks: int, seed: int = SEED) -> int:
    """Write the tables and the configuration of a made state into a folder; return its persons.

    Its schema, its eleven queries and their shares by level are those of ``kifer2019/redistricting``.
    """
    schema, total = redistricting.schema(), sum(redistricting.LEVEL_SHARES)
    privacy = {
        "mechanism": '"discrete_gaussian"',
        "rho": f'"{redistricting.RHO * total / 4099}"',
        "split": "[" + ", ".join(f'"{Fraction(share, total)}"' for share in redistricting.LEVEL_SHARES) + "]",
    }
    shares = [[Fraction(part, sum(level)) for part in level] for level in redistricting.SHARES]
    text = config_text(schema, redistricting.QUERIES, shares, privacy, seed=seed)
    (folder / CONFIG).write_text(text, encoding="utf-8")
    return GeneratedCensus(schema, blocks, seed).write(folder)


def state(blocks: int) -> State:
    """Make a state in a temporary folder and call the command line on it. Raises RuntimeError where a call fails."""
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        persons = write_state(folder, blocks)
        return State(blocks, persons, {call[0]: watched(call, folder) for call in CALLS})


def call_row(bench: Bench, state: State, verb: str, **compared: Any) -> None:
    """Add the row of a call."""
    call = state.calls[verb]
    bench.row(state.name, verb, state.blocks, call.seconds, cpu=call.cpu, peak=call.peak, **compared)


def stage_rows(bench: Bench, state: State) -> None:
    """Add a row for each stage of the release."""
    for stage in state.calls["release"].stages:
        took = {"cpu": stage.cpu, "peak": stage.peak or None}
        bench.row(state.name, f"release: {stage.name}", state.blocks, stage.seconds, **took)


def compare(bench: Bench, smaller: State, larger: State) -> None:
    """Add rows that hold a larger state's seconds a block against a smaller one's, and note bytes a block more."""
    for verb, call in larger.calls.items():
        before = smaller.calls[verb]
        ratio = (before.cpu / smaller.blocks) / (call.cpu / larger.blocks)
        call_row(bench, larger, verb, peer=f"{smaller.blocks:,} blocks, by block", ratio=ratio, target=1.0)
        more, anonymous = (
            (after - least) * 1e6 / (larger.blocks - smaller.blocks)
            for after, least in ((call.peak, before.peak), (call.anonymous, before.anonymous))
        )
        bench.notes.append(
            f"{verb}: {more:,.0f} bytes of memory for each block more, {anonymous:,.0f} of them in no file; "
            f"{call.anonymous:,.0f} MB in no file at {larger.blocks:,} blocks"
        )


def measure(bench: Bench, sizes: tuple[int, int]) -> str:
    """Check, release and verify made states of two sizes (small: of some dozens of blocks); a tiny one compiles."""
    sizes = SMALL if bench.small else sizes
    try:
        state(SMALL[0])
        states = [state(blocks) for blocks in bench.over(sizes)]
        bench.notes += [f"{built.name}: {built.persons:,} persons" for built in states]
        stage_rows(bench, states[0])
        for verb in states[0].calls:
            call_row(bench, states[0], verb)
        stage_rows(bench, states[1])
        compare(bench, *states)
    except RuntimeError as error:
        bench.wrong.append(str(error))
    return "Tables end to end, through the command line: one run each"


NOTES = (
    "Simulated data, seeded noise: NOT PRIVATE. Processor seconds are those of all threads; ratios are of them.",
    "One element is one block; each has 210 cells and 307 noisy answers, as levels above have.",
)
TABLES = Benchmark("bench/tables", partial(measure, sizes=SIZES), NOTES)
TABLES_LARGE = Benchmark("bench/tables_large", partial(measure, sizes=LARGE), NOTES)
