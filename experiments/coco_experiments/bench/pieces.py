"""The pieces of a census measured by themselves: what a block takes when it is sealed, and when processes estimate it.

From these a country can be estimated (``docs/howto/country.md``): bytes of a sealed answer, bytes that tasks are
handed and hand back, processor seconds. The data are MADE (``coco_experiments.topdown.census``).
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from coco_experiments.bench.apart import apart
from coco_experiments.bench.rows import Row, finish
from coco_experiments.bench.tables import write_state
from coco_experiments.bench.topdown import LARGE_SETTING
from coco_experiments.outcome import Outcome, Reporter
from coco_experiments.topdown.census import CONFIG, GeneratedCensus, config_text
from coco_experiments.topdown.data import large_schema
from coco_opt.config import load_config
from coco_opt.execution import Shared
from coco_opt.execution.processes import Processes
from coco_opt.execution.remote import Ended, Part
from coco_opt.execution.shared_values import Handed
from coco_opt.files.measurement import read_measurement
from coco_opt.files.packed_file import is_packed
from coco_opt.releases import measure
from coco_opt.topdown.estimating.estimate import estimate_tables

ValueT = TypeVar("ValueT")

NAME = "bench/pieces"
BLOCKS, SMALL_BLOCKS = {224: 20_000, 2_016: 5_000}, {224: 120, 2_016: 60}
SEED, WORKERS = 1, 2
SEALED = "sealed"


class Weighed(Processes):
    """Processes that count the bytes of the files through which tasks get their work and hand it back."""

    def __init__(self, workers: int) -> None:
        super().__init__(workers)
        self.handed = 0
        self.returned = 0

    @contextmanager
    def share(self, value: ValueT) -> Iterator[Shared[ValueT]]:
        """Share a value, and count its file once, if it was handed on: processes of a machine map the same."""
        with super().share(value) as shared:
            yield shared
            assert isinstance(shared, Handed)
            self.handed += shared.path.stat().st_size if shared.path.exists() else 0

    def run(self, parts: Sequence[Part], ended: Ended) -> None:
        """Run parts, and count the files of their items and those of their results."""
        results: dict[int, Path] = {}

        def counted(more: Sequence[Part]) -> Sequence[Part]:
            results.update((part.place, part.result) for part in more)
            self.handed += sum(path.stat().st_size for path in {part.work for part in more})
            return more

        def weighed(place: int) -> Sequence[Part]:
            self.returned += results[place].stat().st_size
            return counted(ended(place))

        super().run(counted(parts), weighed)


def write_large(folder: Path, blocks: int) -> None:
    """Write a made state of 2,016 cells and its configuration into a folder."""
    schema = large_schema()
    shares = [list(map(Fraction, LARGE_SETTING.shares))]
    text = config_text(schema, LARGE_SETTING.queries, shares, {"epsilon": '"1"'}, seed=SEED)
    (folder / CONFIG).write_text(text, encoding="utf-8")
    GeneratedCensus(schema, blocks, SEED).write(folder)


def sealed(folder: str) -> dict[str, float]:
    """Measure what a folder's configuration asks and seal it; return answers and bytes."""
    result = measure(load_config(Path(folder) / CONFIG))
    assert result.folder is not None
    result.folder.rename(Path(folder) / SEALED)
    answers = sum(part.offsets[-1] for part in result.measurement.answers)
    packed = [path for path in (Path(folder) / SEALED).iterdir() if is_packed(path.name)]
    return {"answers": float(answers), "bytes": float(sum(path.stat().st_size for path in packed))}


def estimated(folder: str) -> dict[str, float]:
    """Estimate the sealed measurement of a folder by processes; return the bytes that passed, and a worker's memory.

    That is the largest of all, pages of mapped files included, and no less than this process had when it began.
    """
    executor = Weighed(WORKERS)
    with executor:
        estimate_tables(read_measurement(Path(folder) / SEALED)[0], executor=executor)
    largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return {"handed": float(executor.handed), "returned": float(executor.returned), "worker": float(largest)}


def rows_of(cells: int, blocks: int) -> tuple[list[Row], list[str]]:
    """Return the rows of one made state, and what its bytes are by answer and by block."""
    name = f"MADE state, {blocks:,} blocks x {cells:,} cells"
    with TemporaryDirectory() as temporary:
        if cells == 224:
            write_state(Path(temporary), blocks, SEED)
        else:
            write_large(Path(temporary), blocks)
        runs = {what: apart(f"{__name__}:{what}", temporary) for what in (SEALED, "estimated")}
    rows = [
        Row(name, what, blocks, run.seconds, cpu=run.cpu, peak=run.peak)
        for what, run in zip(("read, measure and seal", f"estimate, {WORKERS} processes"), runs.values(), strict=True)
    ]
    seal: Mapping[str, float] = runs[SEALED].value
    passed: Mapping[str, float] = runs["estimated"].value
    each, handed, back = seal["bytes"] / seal["answers"], passed["handed"] / blocks, passed["returned"] / blocks
    return rows, [
        f"{name}: {seal['answers'] / blocks:,.0f} answers a block, {each:.2f} bytes sealed each",
        f"{name}: {handed:,.0f} bytes a block handed to tasks, {back:,.0f} back; "
        f"the largest worker took {passed['worker'] / 1e6:,.0f} MB",
    ]


def run(*, small: bool, out: Path, reporter: Reporter, data: Path | None = None) -> Outcome:
    """Measure and estimate made states of 224 and of 2,016 cells, each in a process of its own."""
    rows: list[Row] = []
    notes: list[str] = []
    sizes = SMALL_BLOCKS if small else BLOCKS
    for done, (cells, blocks) in enumerate(sizes.items(), 1):
        rows_of(cells, SMALL_BLOCKS[cells])  # compiles
        more, said = rows_of(cells, blocks)
        rows, notes = rows + more, notes + said
        reporter.progress(NAME, done, len(sizes))
    notes.append("Simulated data, seeded noise: NOT PRIVATE. Seconds of the cores are of all processes; one run each.")
    return finish(NAME, "Pieces of a census", rows, notes, [], out, reporter)
