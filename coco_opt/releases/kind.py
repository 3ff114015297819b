"""What the engine asks of a kind of release: the one protocol, and the values that pass between them.

A kind is a package with one value that fulfils ``ReleaseKind`` and one row in a table of kinds (``coco_opt.kinds``).
Its private step is ``read``; from ``estimate`` on it is given the measurement and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from coco_opt.choices import Certificate, SolverChoices
from coco_opt.config.model import Config
from coco_opt.config.sections import DataSection, Section
from coco_opt.execution import Executor, Threads
from coco_opt.files.checked import Check, Regions
from coco_opt.files.folder import FileTable
from coco_opt.privacy.answers import Exact
from coco_opt.privacy.cost import Cost
from coco_opt.privacy.measurement import Asked, Measurement
from coco_opt.releases.instances import Instance
from coco_opt.releases.reporter import Progress, Reporter

Int64 = NDArray[np.int64]
PrivateT = TypeVar("PrivateT", bound="Private")
MethodT = TypeVar("MethodT")
ResultT = TypeVar("ResultT", bound="Result")


class Private(Protocol):
    """A private table, read and checked in full; its repr shows nothing private."""

    @property
    def arrays(self) -> tuple[Int64, ...]:
        """Return all that is private in a canonical form: equal data, and no other, give equal arrays."""

    def identity(self) -> dict[str, int]:
        """Return row counts (rows_read, rows_counted, rows_rejected, ...) for the run's *private* record."""


class Result(Protocol):
    """What estimation made of a measurement."""

    @property
    def certificates(self) -> tuple[Certificate, ...]:
        """Return how well each kind of problem was solved."""


@dataclass(frozen=True, eq=False, slots=True)
class Plan:
    """The public half of a release, checked: whatever is still wrong afterwards lies in the private table.

    ``detail`` is what the kind needs of its own to read and to ask; ``notes`` are what to know before paying. ``again``
    plans what was read of the public tables under another budget; None: they are read again for it.
    """

    config: Config
    asked: Asked
    detail: Any
    notes: tuple[str, ...] = ()
    again: Callable[[Config], Plan] | None = field(default=None, repr=False)

    def on(self, asked: Asked, detail: Any) -> Plan:
        """Return the same plan of other public facts: of a look-alike."""
        return replace(self, asked=asked, detail=detail, again=None)


@dataclass(frozen=True, eq=False, slots=True)
class LookAlike:
    """Data that nobody needs to protect, made or public, in place of the private: what they are, in words.

    ``plan`` asks the same questions of them; their regions may be others or fewer.
    """

    plan: Plan
    private: Any
    words: str


@dataclass(frozen=True, eq=False, slots=True)
class Work:
    """What an estimation works with: solvers, an executor, whom it tells, and where it may keep finished parts.

    ``threads`` are for what no executor runs: a kind may start as many in this process.
    ``scratch`` is a private folder of the run, None where nothing is kept; what lies there was made by the same method
    from the same measurement. Losing it costs time only.
    """

    solvers: SolverChoices
    threads: int = 1
    progress: Progress | None = None
    scratch: Path | None = None
    executor: Executor = field(default_factory=Threads)


@dataclass(frozen=True, eq=False, slots=True)
class Released:
    """What a release publishes beside what the engine writes: tables by file name, and the kind's part of the manifest.

    ``promises`` are names of properties that ``ReleaseKind.verify`` can check; ``notes`` are lines for the user;
    ``numbers`` int64[regions] were made of the measurement and stand beside the public ones in hierarchy.parquet.
    ``beside`` is what the page wants too and was made already, None for nothing.
    """

    files: Mapping[str, FileTable]
    promises: tuple[str, ...]
    manifest: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    numbers: Mapping[str, Int64] = field(default_factory=dict)
    beside: Any = None


@dataclass(frozen=True, eq=False, slots=True)
class Truth:
    """What is known of made data: the private table itself, and other methods' results, by name, to compare with.

    Only a release that is NOT PRIVATE may be given one.
    """

    private: Any
    others: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False, slots=True)
class Shown:
    """All that the report of a release may show; ``truth`` is None wherever noise protects somebody.

    ``beside`` is what the kind made for its page when it made the release, None where there is nothing.
    """

    manifest: Mapping[str, Any]
    spent: str
    measurement: Measurement
    method: Any
    result: Any
    truth: Truth | None = None
    beside: Any = None


@dataclass(frozen=True, eq=False, slots=True)
class Folder:
    """A release folder whose shared files were found sound: its manifest, and its regions by row.

    ``earlier`` are folders where releases that it builds on may lie, besides its own parent.
    """

    path: Path
    manifest: Mapping[str, Any]
    regions: Regions
    earlier: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Figures:
    """A printed table of a forecast: a title, a header, rows of text; columns from ``numeric`` on hold figures."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: int = 1


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a forecast is asked for.

    ``public``: data like the private, made public by their owner, to rehearse on. ``runs``: simulated releases a
    prediction. ``rows``: those of the private table, as declared; it stays closed. ``optimise``: search for better
    questions and splits, which takes minutes.
    """

    public: Path | None = None
    runs: int = 1
    rows: int | None = None
    optimise: bool = False


@dataclass(frozen=True, slots=True)
class Expense:
    """What a stage takes: seconds of this machine's cores, and bytes beside the answers, at most at once."""

    seconds: float
    memory: int = 0


@dataclass(frozen=True, eq=False, slots=True)
class Forecast:
    """What a kind predicts of a release from public facts: tables, the same as plain values, and lines for the user.

    ``reading`` the private table, ``asking`` it, ``estimating`` and ``writing`` tables and page: None where nothing is
    predicted. ``lines`` are those of a better configuration, where one was searched for.
    """

    tables: tuple[Figures, ...] = ()
    plain: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[tuple[str, str], ...] = ()
    reading: Expense | None = None
    asking: Expense | None = None
    estimating: Expense | None = None
    writing: Expense | None = None
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False, slots=True)
class Neighbours:
    """D and D', private tables of a look-alike that differ by one entity; ``words`` say how."""

    first: Any
    second: Any
    words: str


@dataclass(frozen=True, slots=True)
class Draft:
    """A first configuration, from the headers of the user's files alone.

    ``files`` are the keys of [data] that it needs, each with a note of what the file must hold; ``data`` are further
    lines of [data], ``section`` is the text of the kind's own section. ``replaced`` says in words what is public where
    neighbours = "replace", ``left`` what the user must still do, ``taken`` what columns were taken for.
    """

    files: Mapping[str, str]
    section: str
    replaced: str
    left: str
    data: tuple[str, ...] = ()
    taken: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Chosen:
    """What noisy answers advise to ask: ``keys`` of the kind's section to write, and a table that says why."""

    keys: Mapping[str, Any]
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@runtime_checkable
class Choosing(Protocol):
    """A kind of release whose questions can be chosen by the data, for a part of the budget."""

    def choice(self, plan: Plan, cost: Cost) -> Asked:
        """Return what asks, at a cost, which questions to ask in place of the plan's; raises ProblemError."""

    def chosen(self, config: Config, measurement: Measurement) -> Chosen:
        """Return what the noisy answers to that advise; nothing private is in reach."""


@runtime_checkable
class Compiling(Protocol):
    """A kind of release whose estimation compiles for long at first: some of it can be done beside, and meanwhile."""

    def late_kernels(self, method: Any, asked: Asked) -> tuple[str, ...]:
        """Return what of ``coco_opt.compiling.LAST`` an estimation calls late, in the order to compile it in."""


class ReleaseKind(Protocol[PrivateT, MethodT, ResultT]):
    """A kind of release; one immutable value fulfils it.

    ``name`` stands in measurements and manifests, ``section`` in the configuration; ``unit`` is whom noise protects, in
    one word (entity, person). ``data_model`` and ``section_model`` are its parts of the configuration. ``promises`` are
    what a release can promise, ``least`` what each of them does. ``takes_several``: whether several measurements of the
    same data can be estimated together (``Measurement.also``).
    """

    name: ClassVar[str]
    section: ClassVar[str]
    unit: ClassVar[str]
    data_model: ClassVar[type[DataSection]]
    section_model: ClassVar[type[Section]]
    promises: ClassVar[tuple[str, ...]]
    least: ClassVar[tuple[str, ...]]
    takes_several: ClassVar[bool]

    def file_key(self, columns: Sequence[str]) -> str | None:
        """Return the key of [data] that a file with these columns would fill, None for none."""

    def draft(self, files: Mapping[str, Sequence[str]]) -> Draft:
        """Return a first configuration for files of these columns, by key of [data]; some may be missing."""

    def section_of(self, asked: Asked) -> Mapping[str, Any]:
        """Return the keys of its section that ask what a measurement answers, and any whose default cannot read it."""

    def plan(self, config: Config) -> Plan:
        """Read the public tables and decide what is asked; raise ConfigError, InputError, ProblemError."""

    def outline(self, config: Config) -> Plan:
        """Return the plan as a prediction needs it: no private table is ever read by it, and ids may be unread."""

    def read(self, plan: Plan) -> PrivateT:
        """Open the private table and count: the only private step. InputError messages hold no value."""

    def ask(self, plan: Plan, private: PrivateT) -> Iterable[Exact]:
        """Return the exact answers to all questions of the plan, part after part; before the noise."""

    def method(self, config: Config, asked: Asked, *also: Asked) -> MethodT:
        """Return the post-processing a configuration asks for; ConfigError where it cannot read what was asked.

        ``also`` is what further measurements asked that are estimated together, where the kind ``takes_several``.
        """

    def estimate(self, measurement: Measurement, method: MethodT, work: Work) -> ResultT:
        """Post-process a measurement; nothing private is in reach. Raises SolverError, ProblemError."""

    def release(self, measurement: Measurement, method: MethodT, result: ResultT, config: Config) -> Released:
        """Return what is published of a result."""

    def open(self, folder: Path) -> Any:
        """Return the content of a release folder as a value of this kind; ``verify`` judges it. Raises InputError."""

    def verify(self, folder: Folder) -> Iterator[Check]:
        """Check the kind's files from the raw columns, and every promise; what cannot be checked fails."""

    def page(self, shown: Shown) -> Sequence[str]:
        """Return the report's sections of this kind, as HTML."""

    def errors(self, measurement: Measurement, truth: Truth, result: ResultT) -> Mapping[str, list[float]]:
        """Return the mean error of each level, root first, by method ("this release" first), where truth is known."""

    def look_alike(self, plan: Plan, public: Path | None = None, branches: int | None = None) -> LookAlike:
        """Return made data of the plan's public shape, or public data of the user's; the private table stays closed.

        ``branches`` keeps the first so many children of each region of made data.
        """

    def forecast(self, plan: Plan, wanted: Wanted, reporter: Reporter) -> Forecast:
        """Predict a release from public facts, in seconds unless a search is wanted."""

    def instances(self, measurement: Measurement, config: Config) -> Sequence[Instance]:
        """Return the problems that an estimation of this measurement poses, cut to any size, to compare solvers."""

    def neighbours(self, look_alike: LookAlike) -> Neighbours:
        """Return two neighbouring tables that the measurement tells apart best. Raises ProblemError without any."""

    def statistics(self, asked: Asked, table: PrivateT | ResultT) -> Mapping[str, NDArray[Any]]:
        """Return the counts that an audit compares, by part: exact ones of a table, released ones of a result.

        Arrays of one part have one shape. A table's may be masked (numpy.ma) where a residual would say nothing.
        """


AnyKind = ReleaseKind[Any, Any, Any]
PageWriter = Callable[[AnyKind, Shown], str]
