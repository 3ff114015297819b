"""Noisy answers in blocks of regions, drawn by any process and in any order: the bits depend on neither.

A block's noise follows from the run's key, the query, the level and the place of its answers among all of the level
(``coco_opt.privacy.secure.CellStream``). So the blocks of a measurement are tasks: a task that is run again, elsewhere
or next to itself, draws the same noise for the same answers. No block shares an answer with another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from coco_opt.activity import Progress
from coco_opt.errors import ProblemError
from coco_opt.execution import Executor
from coco_opt.execution.executor import LocalValue, Shared, Threads
from coco_opt.execution.remote import read_value, write_value
from coco_opt.privacy.noise import NoiseSource
from coco_opt.privacy.noise_distributions import DiscreteGaussian
from coco_opt.privacy.queries import Exact, LevelQuery, Noise, NoisyPart, PackedPart, packed_pieces
from coco_opt.privacy.run_folder import RunFolder, noise_key
from coco_opt.privacy.secure import SecureNoise
from coco_opt.privacy.seeded import SeededNoise

PART = 1 << 25
"""The number of answers from which blocks that follow each other are sealed together, in a file of their own."""


@dataclass(frozen=True, slots=True)
class Block:
    """Answers to query number ``place`` of all: those of ``regions`` of its level.

    They are the answers ``start`` to ``start + size - 1`` of all regions of the level.
    """

    place: int
    regions: range
    start: int
    size: int


class ExactBlocks(Protocol):
    """PRIVATE: the exact answers of each block; it pickles, and shows nothing private."""

    def __call__(self, block: Block) -> Exact:
        """Return the exact answers of a block's regions."""


class NoiseKey(Protocol):
    """What the noise of a run follows from, in a form that other processes may be sent."""

    def opened(self) -> AbstractContextManager[NoiseSource]:
        """Return a source of its noise, which is of no use once the block ends."""


@dataclass(frozen=True, slots=True)
class KeyFile:
    """The key of a paid run where it lies: in the run's private folder until the seal, and in no message or task."""

    folder: Path
    digest: str
    fingerprint: str

    @contextmanager
    def opened(self) -> Iterator[NoiseSource]:
        """Return a source of the run's noise for these queries on this input; InputError (lost-key) without a key."""
        key = RunFolder(self.folder.parent, self.folder.name).stored_key()
        noise = noise_key(key, self.digest, self.fingerprint)
        key.erase()
        try:
            yield SecureNoise(noise)
        finally:
            noise.erase()


@dataclass(frozen=True, slots=True)
class Seed:
    """The seed of noise that is NOT PRIVATE."""

    seed: int

    @contextmanager
    def opened(self) -> Iterator[NoiseSource]:
        """Return a source of the seed's noise."""
        yield SeededNoise(self.seed)


def drawn_anywhere(queries: Iterable[LevelQuery], source: NoiseSource) -> bool:
    """Return whether a source can begin at any answer: seeded geometric noise and OpenDP's are read from the start."""
    gaussian = all(query.exact or isinstance(query.distribution, DiscreteGaussian) for query in queries)
    return isinstance(source, SecureNoise) or (gaussian and isinstance(source, SeededNoise))


def parts_of(blocks: Iterable[Block], least: int | None = None) -> list[tuple[Block, ...]]:
    """Return blocks, in their order, in parts of at least ``least`` answers (``PART``) but for the last."""
    parts, waiting, answers = list[tuple[Block, ...]](), list[Block](), 0
    for block in blocks:
        waiting.append(block)
        answers += block.size
        if answers >= (PART if least is None else least):
            parts.append(tuple(waiting))
            waiting, answers = [], 0
    return [*parts, tuple(waiting)] if waiting else parts


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class BlockNoise:
    """PRIVATE: draws the noisy answers of blocks; it pickles as paths, and is copied to no scheduler otherwise."""

    exact: Shared[ExactBlocks]
    key: NoiseKey

    def packed(self, blocks: Sequence[Block]) -> Iterator[PackedPart]:
        """Yield the noisy answers of blocks in their order, packed block by block."""
        exact = self.exact.value
        with self.key.opened() as source:
            noise = Noise(source)
            for block in blocks:
                part = exact(block)
                if part.values.size != block.size:
                    raise ProblemError(
                        f"{part.query.name!r} at level {part.query.level}: other answers than are public"
                    )
                yield from packed_pieces([NoisyPart(block.place, block.start, noise.add_to(part, block.start))])

    def __repr__(self) -> str:
        return "BlockNoise(private)"


@dataclass(frozen=True, slots=True)
class PrivateFile:
    """PRIVATE: a value in a file of the private folder. It is read anew for each task: no worker holds it between."""

    path: Path

    @property
    def value(self) -> ExactBlocks:
        """Return the value, its arrays mapped from the file."""
        exact: ExactBlocks = read_value(self.path)
        return exact


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Division:
    """PRIVATE: how the answers of a measurement are drawn by an executor: ``parts`` of blocks, each a task.

    ``stage`` is entered while they are drawn, and receives the number of answers done and of all.
    """

    executor: Executor
    parts: Sequence[tuple[Block, ...]]
    noise: BlockNoise
    stage: Callable[[], AbstractContextManager[Progress]]

    def __repr__(self) -> str:
        return f"Division({len(self.parts)} parts: private)"


def shared_exact(executor: Executor, exact: ExactBlocks, folder: Path) -> Shared[ExactBlocks]:
    """Return exact answers as an executor's tasks find them: as they are in threads, else by a file of ``folder``."""
    if isinstance(executor, Threads):
        return LocalValue(exact)
    path = folder / "counts"
    write_value(path, exact)
    return PrivateFile(path)
