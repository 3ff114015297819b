"""The protocol between the engine and a kind of release, and the values that pass between them.

A kind is a package with a class that derives from ``ReleaseKind``, one value of it, and one row in a table of kinds
(``coco_opt.kinds``). Its private step is ``read``; from ``estimate`` on it receives the measurement and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

from numpy.typing import NDArray

from coco_opt.activity import Progress
from coco_opt.array_types import Ints
from coco_opt.choices import Certificate, SolverChoices
from coco_opt.config.model import Config
from coco_opt.config.sections import DataSection, Section
from coco_opt.errors import ProblemError
from coco_opt.execution import Executor, Threads
from coco_opt.files.differences import Compared
from coco_opt.files.folder import FileTable
from coco_opt.files.geometry import Outlines
from coco_opt.files.release_checks import Check, Regions
from coco_opt.kinds import kind_row
from coco_opt.privacy import Pair
from coco_opt.privacy.blocks import Block, ExactBlocks
from coco_opt.privacy.measurement import Measurement, MeasurementPlan, identity_of
from coco_opt.privacy.promise import Promise, joint
from coco_opt.privacy.queries import Exact
from coco_opt.problem import Problem
from coco_opt.releases.reporter import Reporter

AnyProblem = Problem[Any, Any]
PrivateT = TypeVar("PrivateT", bound="Private")
MethodT = TypeVar("MethodT")
ResultT = TypeVar("ResultT", bound="Result")


class Private(Protocol):
    """A private table, read and checked in full; its repr shows nothing private."""

    @property
    def arrays(self) -> tuple[Ints, ...]:
        """Return all private data in a canonical form: the arrays are equal exactly where the data are."""

    def identity(self) -> dict[str, int]:
        """Return row counts (rows_read, rows_counted, rows_rejected, ...) for the run's *private* record."""


class Result(Protocol):
    """The result of an estimation."""

    @property
    def certificates(self) -> tuple[Certificate, ...]:
        """Return how well each kind of problem was solved."""


@dataclass(frozen=True, eq=False, slots=True)
class Plan:
    """The public half of a release, checked: any later input error lies in the private table.

    ``detail`` is what the kind itself needs to read and to measure; ``notes`` are for the user to know before paying.
    ``replanned`` plans for another configuration from the public tables already read; given ``keys`` that an earlier
    run of the same ``choice`` took, it takes these. If it is None, the tables are read again, and nothing is chosen.

    With a ``look`` the queries are provisional: the look is measured first, and ``resolve`` returns the plan that its
    noisy answers lead to. Given ``chosen`` keys, which a plan that was resolved before states, it takes these instead
    of choosing. ``also`` are measurements to estimate together with this plan's. ``choice`` tells apart what several
    configurations with the same look leave to be chosen, and ``before`` is the plan with the look that this plan was
    resolved from. ``ranking`` returns tables of what was chosen and of the next best, for ``plan`` to show.
    ``promised`` says by name what holds without noise.
    """

    config: Config
    measurement_plan: MeasurementPlan
    detail: Any
    notes: tuple[str, ...] = ()
    replanned: Callable[[Config, Mapping[str, Any] | None], Plan] | None = field(default=None, repr=False)
    look: MeasurementPlan | None = None
    resolve: Callable[[Measurement, Mapping[str, Any] | None], Plan] | None = field(default=None, repr=False)
    chosen: Mapping[str, Any] = field(default_factory=dict)
    choice: str = ""
    before: Plan | None = field(default=None, repr=False)
    also: tuple[Measurement, ...] = ()
    ranking: Callable[[], tuple[Figures, ...]] = field(default=tuple, repr=False)
    promised: tuple[tuple[str, str], ...] = ()

    @property
    def is_chosen(self) -> bool:
        """Return whether keys were chosen from public numbers, not by a look."""
        return bool(self.chosen) and self.before is None and self.look is None

    @property
    def after_look(self) -> str:
        """Return in words that the cost is that of the main measurement alone, empty where no look was paid."""
        looks = ", ".join(str(measurement.measurement_plan.cost) for measurement in self.also)
        return f", the main measurement alone: the look for {looks} was paid before" if looks else ""

    @property
    def identity(self) -> str:
        """Return the digest that the release's manifest will give for the queries of all its measurements."""
        plans = (self.measurement_plan, *(measurement.measurement_plan for measurement in self.also))
        return identity_of(plan.digest for plan in plans) if self.also else self.measurement_plan.digest

    def on(self, measurement_plan: MeasurementPlan, detail: Any) -> Plan:
        """Return the same plan for other public tables, such as those of simulated data."""
        return replace(
            self,
            measurement_plan=measurement_plan,
            detail=detail,
            replanned=None,
            look=None,
            resolve=None,
            also=(),
            before=None,
        )


@dataclass(frozen=True, eq=False, slots=True)
class SimulatedData:
    """Data that need no protection, simulated or public, in place of the private data; ``words`` describe them.

    ``plan`` has the same queries; its regions may be others or fewer.
    """

    plan: Plan
    private: Any
    words: str


@dataclass(frozen=True, eq=False, slots=True)
class Work:
    """What an estimation works with: solvers, an executor, its progress reports, and a folder for finished parts.

    ``threads`` are for work that no executor runs: a kind may start as many in this process.
    ``note`` takes sentences for the user, such as which method was given up because it is slow.
    ``scratch`` is a private folder of the run, None where nothing is kept. Its content was made by the same method from
    the same measurement; losing it costs time only.
    """

    solvers: SolverChoices
    threads: int = 1
    progress: Progress | None = None
    scratch: Path | None = None
    executor: Executor = field(default_factory=Threads)
    note: Callable[[str], None] | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Released:
    """What a kind adds to what the engine publishes: tables by file name, and the kind's part of the manifest.

    ``promises`` are names of properties that ``ReleaseKind.verify`` can check; ``notes`` are lines for the user.
    ``numbers`` int64[regions] come from the measurement and are written next to the public columns of
    hierarchy.parquet. ``for_page`` is what the report page can reuse, None for nothing.
    """

    files: Mapping[str, FileTable]
    promises: tuple[str, ...]
    manifest: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    numbers: Mapping[str, Ints] = field(default_factory=dict)
    for_page: Any = None


@dataclass(frozen=True, eq=False, slots=True)
class Instance:
    """A problem of one kind that can be made with at most ``size`` unknowns; ``largest`` is its full size."""

    kind: str
    largest: int
    make: Callable[[int], AnyProblem]


@dataclass(frozen=True, eq=False, slots=True)
class Truth:
    """The truth about simulated data: the private table itself, and other methods' results, by name, to compare with.

    Only a release that is NOT PRIVATE may have one.
    """

    private: Any
    others: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False, slots=True)
class Shown:
    """All that the report of a release may show; ``truth`` is None wherever noise protects somebody.

    ``for_page`` is what the kind made for its page when it made the release, None where there is nothing. ``outlines``
    are those of the regions, to draw a map, where the configuration names a file of them.
    """

    manifest: Mapping[str, Any]
    spent: str
    measurement: Measurement
    method: Any
    result: Any
    truth: Truth | None = None
    for_page: Any = None
    outlines: Outlines | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Folder:
    """A release folder whose shared files passed their checks: its manifest, and its regions by row.

    ``earlier`` are folders, besides its own parent, where releases that it builds on may lie.
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
class ForecastOptions:
    """The options of a forecast.

    ``public``: data in the form of the private table, made public by its owner, to rehearse on. ``runs``: simulated
    releases a prediction. ``rows``: the declared number of rows of the private table, which stays closed.
    """

    public: Path | None = None
    runs: int = 1
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class ResourceCost:
    """What a stage takes: seconds of this machine's cores, and its peak memory in bytes besides the answers.

    ``longest`` are the seconds that it takes at most, where public numbers do not determine them; None elsewhere.
    """

    seconds: float
    memory: int = 0
    longest: float | None = None

    @property
    def most(self) -> float:
        """Return the seconds that the stage takes at most."""
        return self.seconds if self.longest is None else self.longest


@dataclass(frozen=True, eq=False, slots=True)
class Forecast:
    """What a kind predicts of a release from public inputs: tables, and the same as plain values.

    The costs are those of ``reading`` the private table, ``querying`` it, ``estimating``, and ``writing``
    tables and page; None where nothing is predicted.
    """

    tables: tuple[Figures, ...] = ()
    plain: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[tuple[str, str], ...] = ()
    reading: ResourceCost | None = None
    querying: ResourceCost | None = None
    estimating: ResourceCost | None = None
    writing: ResourceCost | None = None


@dataclass(frozen=True, slots=True)
class ColumnNotes:
    """What is known of columns of the private table besides their names, by column.

    ``values`` are those that the user states or lets be read: names, or ranges of integers such as "0..17".
    ``left_out`` says in a few words what a column of no use is.
    """

    values: Mapping[str, Sequence[str]] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Draft:
    """A first configuration, from the headers of the user's files, and what the user says of their columns.

    ``files`` are the keys of [data] that it needs, each with a note of what the file must hold; ``data`` are further
    lines of [data], ``section`` is the text of the kind's own section. ``replaced`` says in words what is public where
    neighbours = "replace", and ``left`` what the user must still do. ``taken`` are lines that say what columns were
    taken as. ``attributes`` are the columns whose values the section lists; None for kinds that list none. ``ranged``
    are columns of numbers whose domain is stated by ranges, in such a kind.
    """

    files: Mapping[str, str]
    section: str
    replaced: str
    left: str
    data: tuple[str, ...] = ()
    taken: tuple[str, ...] = ()
    attributes: tuple[str, ...] | None = None
    ranged: tuple[str, ...] = ()


class ReleaseKind(Protocol[PrivateT, MethodT, ResultT]):
    """A kind of release: one immutable value of a class that derives from this one.

    ``name`` stands in measurements and manifests, ``section`` in the configuration; ``unit`` is whom noise protects, in
    one word (entity, person). ``data_model`` and ``section_model`` are its parts of the configuration. ``promises`` are
    what a release can promise, ``least`` what each of them does. ``compared`` says which tables of two releases are
    subtracted, the main one first. ``takes_several`` says whether several measurements of the same data can be
    estimated together (``Measurement.also``). ``plainest`` is the key of its section that names the method, with the
    method that asks the least of data and solvers. ``error_words`` say what ``errors`` are, with their unit.
    """

    name: ClassVar[str]
    section: ClassVar[str]
    unit: ClassVar[str]
    data_model: ClassVar[type[DataSection]]
    section_model: ClassVar[type[Section]]
    promises: ClassVar[tuple[str, ...]]
    least: ClassVar[tuple[str, ...]]
    takes_several: ClassVar[bool]
    compared: ClassVar[tuple[Compared, ...]]
    plainest: ClassVar[Mapping[str, Any]]
    error_words: ClassVar[str]

    def file_key(self, columns: Sequence[str]) -> str | None:
        """Return the key of [data] that a file with these columns would fill, None for none."""

    def draft(self, files: Mapping[str, Sequence[str]], notes: ColumnNotes | None = None) -> Draft:
        """Return a first configuration for files of these columns, by key of [data]; some may be missing."""

    def section_of(self, measurement_plan: MeasurementPlan) -> Mapping[str, Any]:
        """Return the keys of its section with a measurement's queries, and those whose defaults cannot read it."""

    def plan(self, config: Config) -> Plan:
        """Read the public tables and plan the measurement; raise ConfigError, InputError, ProblemError."""

    def outline(self, config: Config) -> Plan:
        """Return the plan as a prediction needs it: it reads no private table, and ids may be left unread."""
        return self.plan(config)

    def promise(self, measurement_plan: MeasurementPlan) -> Promise:
        """Return whom the noise of a measurement protects, and all that is published without noise."""

    def read(self, plan: Plan) -> PrivateT:
        """Open the private table and count, the only private step. InputError messages hold no private value."""

    def remarks(self, plan: Plan, private: PrivateT) -> tuple[str, ...]:
        """Return sentences on rows that are accepted and not released as they are, for the holder of the data.

        They hold private counts: ``check`` shows them, and nothing else does.
        """
        return ()

    def exact_answers(self, plan: Plan, private: PrivateT) -> Iterable[Exact]:
        """Return the exact answers to all queries of the plan before the noise, part after part."""

    def blocks(self, plan: Plan) -> Iterable[Block]:
        """Return the blocks of all answers in their order, from public numbers alone; each answer lies in one.

        An executor draws the noise of a large measurement by blocks. Without any, it is drawn in order.
        """
        return ()

    def exact_blocks(self, plan: Plan, private: PrivateT) -> ExactBlocks:
        """Return what gives the exact answers of one of the ``blocks``; it pickles, and holds no more than needed."""
        raise ProblemError(f"the answers of {self.name} are drawn in order")

    def method(self, config: Config, measurement_plan: MeasurementPlan, *also: MeasurementPlan) -> MethodT:
        """Return the configured post-processing; ConfigError where it cannot read what was measured.

        ``also`` are the plans of further measurements to estimate together, where the kind ``takes_several``.
        """

    def late_kernels(self, method: MethodT, measurement_plan: MeasurementPlan) -> tuple[str, ...]:
        """Return the names in ``coco_opt.compiling.LAST`` that a first estimation calls late, in the order to compile.

        A second core compiles them meanwhile.
        """
        return ()

    def estimate(self, measurement: Measurement, method: MethodT, work: Work) -> ResultT:
        """Post-process a measurement; nothing private is in reach. Raises SolverError, ProblemError."""

    def release(self, measurement: Measurement, method: MethodT, result: ResultT, config: Config) -> Released:
        """Return what is published of a result."""

    def open(self, folder: Path) -> Any:
        """Return the content of a release folder as a value of this kind; ``verify`` judges it. Raises InputError."""

    def verify(self, folder: Folder) -> Iterator[Check]:
        """Check the kind's files from the raw columns, and every promise; what cannot be checked fails."""

    def page(self, shown: Shown) -> Sequence[str]:
        """Return the report's sections of this kind, as HTML: what readers see first, then the method, folded."""

    def errors(self, measurement: Measurement, truth: Truth, result: ResultT) -> Mapping[str, list[float]]:
        """Return the mean error of each level, root first, by method ("this release" first); needs the truth."""

    def simulated_data(self, plan: Plan, public: Path | None = None, branches: int | None = None) -> SimulatedData:
        """Return simulated data of the plan's public shape, or the user's public data; the private table stays closed.

        ``branches`` is how many children of each region simulated data have at most: the first children.
        """

    def rehearsal(self, plan: Plan, method: MethodT) -> tuple[SimulatedData, MethodT]:
        """Return a small instance of a plan on simulated data, and its method, which takes a second at most.

        It has a plan's kinds of queries, noise and constraints on a few regions, if possible an empty leaf, a region
        with a single child, and counts at their bounds. Where it has a ``look``, this is measured too.
        """

    def forecast(self, plan: Plan, options: ForecastOptions, reporter: Reporter) -> Forecast:
        """Predict a release from public inputs, in seconds."""

    def instances(self, measurement: Measurement, config: Config) -> Sequence[Instance]:
        """Return the problems that an estimation of this measurement poses, cut to any size, to compare solvers."""

    def neighbours(self, simulated_data: SimulatedData) -> Pair[Any]:
        """Return two neighbouring tables that the measurement distinguishes best. Raises ProblemError without any."""

    def statistics(self, measurement_plan: MeasurementPlan, table: PrivateT | ResultT) -> Mapping[str, NDArray[Any]]:
        """Return the counts that an audit compares, by part: exact counts of a table, released counts of a result.

        Arrays of one part have one shape. A table's may be masked (numpy.ma) where a residual would say nothing.
        """


AnyKind = ReleaseKind[Any, Any, Any]


def kind_named(name: str) -> AnyKind:
    """Return a kind of release by its name; raise InputError (unknown-kind)."""
    kind: AnyKind = kind_row(name).load()
    return kind


def kind_of(config: Config) -> AnyKind:
    """Return the kind of release of a configuration."""
    return kind_named(config.kind)


def promise_of(*measurement_plans: MeasurementPlan) -> Promise:
    """Return what measurements of one kind, for the same neighbours, promise together."""
    promise = joint(kind_named(plan.kind).promise(plan) for plan in measurement_plans)
    assert promise is not None
    return promise


PageWriter = Callable[[AnyKind, Shown], str]
