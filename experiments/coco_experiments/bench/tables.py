"""Tables end to end through the command line: a made state, checked, released with all files, and verified.

Each call is a process of its own, watched from outside, by stage. What matters is what more blocks cost: memory is to
stay, and seconds to grow no faster than blocks. The state is MADE (``coco_experiments.topdown.census``): sizes, sums
and sparsity are like a census's, errors would say nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory

from coco_experiments.bench.rows import Row, finish
from coco_experiments.bench.stages import Watched, watched
from coco_experiments.kifer2019 import redistricting
from coco_experiments.outcome import Outcome, Reporter
from coco_experiments.topdown.census import CONFIG, GeneratedCensus, config_text

NAME = "bench/tables"
SIZES, SMALL = (5_000, 20_000), (60, 180)
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


def rows_of(state: State) -> list[Row]:
    """Return a row a call, and one a stage of the release."""
    rows = []
    for verb, call in state.calls.items():
        if verb == "release":
            rows += [
                Row(
                    state.name,
                    f"release: {stage.name}",
                    state.blocks,
                    stage.seconds,
                    cpu=stage.cpu,
                    peak=stage.peak or None,
                )
                for stage in call.stages
            ]
        rows.append(Row(state.name, verb, state.blocks, call.seconds, cpu=call.cpu, peak=call.peak))
    return rows


def compared(smaller: State, larger: State) -> tuple[list[Row], list[str]]:
    """Return rows that hold a larger state's seconds a block against a smaller one's, and bytes a block more."""
    rows, notes = [], []
    for verb, call in larger.calls.items():
        before = smaller.calls[verb]
        ratio = (before.cpu / smaller.blocks) / (call.cpu / larger.blocks)
        peer = f"{smaller.blocks:,} blocks, by block"
        rows.append(Row(larger.name, verb, larger.blocks, call.seconds, peer, ratio, 1.0, cpu=call.cpu, peak=call.peak))
        more, anonymous = (
            (after - least) * 1e6 / (larger.blocks - smaller.blocks)
            for after, least in ((call.peak, before.peak), (call.anonymous, before.anonymous))
        )
        notes.append(
            f"{verb}: {more:,.0f} bytes of memory for each block more, {anonymous:,.0f} of them in no file; "
            f"{call.anonymous:,.0f} MB in no file at {larger.blocks:,} blocks"
        )
    return rows, notes


def measured(name: str, sizes: tuple[int, int], out: Path, reporter: Reporter) -> Outcome:
    """Make both states and print what they take; a first, tiny one compiles."""
    wrong: list[str] = []
    rows: list[Row] = []
    notes = [
        "Simulated data, seeded noise: NOT PRIVATE. Processor seconds are those of all threads; ratios are of them.",
        "One element is one block; each has 210 cells and 307 noisy answers, as levels above have.",
    ]
    try:
        state(min(sizes[0], SMALL[0]))
        states = []
        for done, blocks in enumerate(sizes, 1):
            states.append(state(blocks))
            reporter.progress(name, done, len(sizes))
        notes += [f"{built.name}: {built.persons:,} persons" for built in states]
        ratios, more = compared(*states)
        rows = [*rows_of(states[0]), *(row for row in rows_of(states[1]) if row.what not in CALL_NAMES), *ratios]
        notes += more
    except RuntimeError as error:
        wrong.append(str(error))
    return finish(name, "Tables end to end, through the command line: one run each", rows, notes, wrong, out, reporter)


CALL_NAMES = {call[0] for call in CALLS}


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Check, release and verify made states of 5,000 and 20,000 blocks (small: of some dozens)."""
    return measured(NAME, SMALL if small else SIZES, out, reporter)
