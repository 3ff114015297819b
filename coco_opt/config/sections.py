"""The sections of a configuration that all kinds of release share, as immutable models; an unknown key is an error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, PrivateAttr, create_model, model_validator

from coco_opt.config.values import (
    KeyedError,
    SolverChoice,
    aim_weights,
    budget,
    choice,
    column_names,
    dataset_name,
    duration,
    executor_name,
    file_path,
    look_share,
    probability,
    solver_choice,
    split_shares,
    table_input,
    witness_place,
)
from coco_opt.execution import Executor, executor_row, open_executor
from coco_opt.files.inputs import Columns, Frame, Input
from coco_opt.plugins import near
from coco_opt.privacy.accounting import rho_of_epsilon_delta
from coco_opt.privacy.budget import Neighbours
from coco_opt.privacy.cost import Cost, Epsilon, Rho
from coco_opt.privacy.noise import NoiseName
from coco_opt.problem import step_of
from coco_opt.problems import PROBLEMS

Mechanism = Literal["geometric", "discrete_gaussian"]
AUTO: Final = "auto"
"""The value of a key that is chosen, not stated."""

Split = Literal["auto", "uniform", "leaves"]
Aim = Literal["balanced", "leaves", "root"]
Word = Literal["group", "groups", "entity", "entities", "value"]

TableInput = Annotated[Path | Frame, PlainValidator(table_input)]
FilePath = Annotated[Path, PlainValidator(file_path)]
Choice = Annotated[SolverChoice | None, PlainValidator(solver_choice)]


class Section(BaseModel):
    """A table of the file: strict types, no unknown keys, immutable.

    ``hidden`` names keys of private files: they appear in no manifest. ``unmeasured`` has values for required keys that
    a configuration may leave out where nothing is measured. ``chooses_split`` says that the kind of a section chooses
    the budget's allocation; for others an allocation that is not stated is even.
    """

    model_config = ConfigDict(
        strict=True, frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True
    )

    hidden: ClassVar[tuple[str, ...]] = ()
    unmeasured: ClassVar[Mapping[str, Any]] = {}
    chooses_split: ClassVar[bool] = False

    @property
    def hides(self) -> tuple[str, ...]:
        """Return the keys of [data] whose tables are private because of what this section says."""
        return ()


class DataSection(Section):
    """Where the input lies: each table a file or a folder of files by its path or, in Python, a frame.

    ``columns`` maps names of columns here to their names in the files: { entity_id = "pid" }; a list where files call a
    column differently. A kind lists the ``tables`` whose columns may have other names, and says whether attributes may,
    too (``with_attributes``), which its own section states. ``chains`` are the ways in which tables are linked, from
    the private one to the hierarchy: the key of each table, and the column by which the table before it names its rows.
    For the first it is the column that identifies a row, "" where rows need none.
    """

    tables: ClassVar[tuple[Columns, ...]] = ()
    with_attributes: ClassVar[bool] = False
    chains: ClassVar[tuple[tuple[tuple[str, str], ...], ...]] = ()

    columns: Annotated[dict[str, str | tuple[str, ...]], PlainValidator(column_names)] = Field(default_factory=dict)
    """The names of columns in your files, by their names here: `{ entity_id = "pid" }`; a list where files differ."""

    def table_of(self, key: str) -> Input:
        """Return the table of a key that is set."""
        if key != "hierarchy":
            return Input(getattr(self, key), self.columns)
        levels, root = getattr(self, "levels", None), getattr(self, "root", None)
        return Input(self.hierarchy, self.columns, levels or (), root)  # type: ignore[attr-defined]

    def neighbour_of(self, path: Path, key: str) -> Input | None:
        """Return the file or folder next to ``path`` that is called like the table of a key; None where there is none.

        The table itself is not returned: it may be private, and ``path`` is public.
        """
        table = getattr(self, key, None)
        if not isinstance(table, Path):
            return None
        neighbour = path.parent / table.name
        is_another = neighbour.exists() and neighbour.resolve() != table.resolve()
        return Input(neighbour, self.columns) if is_another else None

    @model_validator(mode="after")
    def _columns_known(self) -> DataSection:
        if not self.with_attributes:
            self.check_columns()
        first = [there if isinstance(there, str) else there[0] for there in self.columns.values()]
        if len(set(first)) < len(first):
            raise KeyedError("columns", "two columns cannot have one name in your files")
        return self

    def check_columns(self, attributes: Sequence[str] = ()) -> None:
        """Raise KeyedError for a name in ``columns`` that neither a table nor an attribute has."""
        own = (name for table in self.tables for name in (*table.required, *table.optional))
        names = list(dict.fromkeys((*own, *attributes)))
        for name in self.columns:
            if name not in names:
                hint = near(name, names, f": they are {', '.join(names)}")
                raise KeyedError(f"columns.{name}", f"is not a column of these tables{hint}")


class PrivacyConfig(Section):
    """The budget and how noise is drawn; all amounts are exact fractions.

    The whole budget is ``epsilon`` for mechanism "geometric"; for "discrete_gaussian" it is ``rho``, or ``epsilon``
    and ``delta`` together, which stand for the largest rho that the queries may cost. ``dataset`` names the data in the
    ``ledger``; ``witness`` keeps the ledger's head elsewhere, in a file or by a command (a list). ``total`` is what may
    be spent on the data in all, in epsilon or rho by mechanism. It is stated when the first release opens the account
    (default: what that release spends); from then on the ledger's total counts.
    """

    epsilon: Annotated[Fraction, PlainValidator(budget)] | None = None
    """The whole budget of geometric noise; together with `delta`, that of discrete Gaussian noise."""
    split: Annotated[Split | tuple[Fraction, ...], PlainValidator(split_shares(Split))] = "auto"
    """How levels share the budget: evenly, all to the last level, or one share a level, root first, that sum to 1."""
    mechanism: Annotated[Mechanism, choice(Mechanism)] = "geometric"
    """The distribution of the noise, and with it the unit of the budget: epsilon, or rho."""
    rho: Annotated[Fraction, PlainValidator(budget)] | None = None
    """The whole budget of discrete Gaussian noise (zero-concentrated differential privacy)."""
    delta: Annotated[Fraction, PlainValidator(probability)] | None = None
    """With `epsilon` in place of `rho`: between 0 and 1, such as "1/1000000"."""
    noise: Annotated[NoiseName, choice(NoiseName)] = "secure"
    """Where noise comes from; "seeded" is NOT PRIVATE and needs a `seed`."""
    seed: Annotated[int, Field(ge=0)] | None = None
    """For "seeded" noise only."""
    neighbours: Annotated[Neighbours, choice(Neighbours)] = "add_remove"
    """Which data sets are neighbours: one entity added or removed, or one replaced (twice the noise)."""
    dataset: Annotated[str, PlainValidator(dataset_name)] | None = None
    """The ledger's name of the data; required unless noise is "seeded"."""
    ledger: FilePath | None = None
    """The ledger's file; unset: `ledger.sqlite` in the private folder."""
    witness: Annotated[Path | tuple[str, ...], PlainValidator(witness_place)] | None = None
    """A second place for the ledger's head, out of reach of whoever restores it: a file, or a command as a list."""
    total: Annotated[Fraction, PlainValidator(budget)] | None = None
    """What may be spent on the data set in total; stated when its account opens."""
    weaker_promise: bool = False
    """Accept that the account's sum promises only what both this measurement and the earlier ones do."""
    _bought: Fraction | None = PrivateAttr(None)

    @property
    def pair(self) -> tuple[Fraction, Fraction] | None:
        """Return (epsilon, delta) where the budget is stated so."""
        return None if self.epsilon is None or self.delta is None else (self.epsilon, self.delta)

    def buying(self, rho: Fraction) -> PrivacyConfig:
        """Return the same section with the ``rho`` that (epsilon, delta) buys: more than zCDP alone implies."""
        section = self.model_copy()
        section._bought = rho
        return section

    @property
    def cost(self) -> Cost:
        """Return the whole budget; for (epsilon, delta) the rho it buys, or until then a rho that implies it."""
        if self.mechanism == "geometric":
            assert self.epsilon is not None
            return Epsilon(self.epsilon)
        if self.rho is not None:
            return Rho(self.rho)
        assert self.pair is not None
        return Rho(self._bought or rho_of_epsilon_delta(*self.pair))

    def measured(self, cost: Cost, split: tuple[Fraction, ...], neighbours: str, noise: str) -> PrivacyConfig:
        """Return this section with the cost and the noise of a measurement in place of its own."""
        budget_keys = {"epsilon": None, "rho": None, "delta": None, cost.unit: cost.amount}
        mechanism = _MECHANISMS[type(cost)]
        noise_keys = {"mechanism": mechanism, "split": split, "neighbours": neighbours, "noise": noise}
        # These keys belong to whoever measured and are unknown here.
        unknown_keys = dict.fromkeys(("seed", "dataset", "total", "ledger", "witness"))
        return self.model_copy(update={**budget_keys, **noise_keys, **unknown_keys})

    @model_validator(mode="after")
    def _seed_if_seeded(self) -> PrivacyConfig:
        if self.noise == "seeded" and self.seed is None:
            raise ValueError('noise = "seeded" needs a seed')
        if self.noise != "seeded" and self.seed is not None:
            raise ValueError(f'a seed makes noise predictable: noise = "{self.noise}" accepts none')
        return self

    @model_validator(mode="after")
    def _named_if_private(self) -> PrivacyConfig:
        if self.noise != "seeded" and self.dataset is None:
            message = 'is required where noise is private: the ledger\'s name of the data, such as "households-2026"'
            raise KeyedError("dataset", message)
        return self

    @model_validator(mode="after")
    def _one_budget(self) -> PrivacyConfig:
        if self.mechanism == "geometric":
            self._check_pure()
        elif self.rho is not None:
            for key in ("epsilon", "delta"):
                if getattr(self, key) is not None:
                    raise KeyedError(key, "give either rho, or epsilon and delta, not both")
        elif self.epsilon is None and self.delta is None:
            raise KeyedError("rho", 'is required by mechanism = "discrete_gaussian", or epsilon and delta instead')
        elif self.delta is None:
            raise KeyedError("delta", "is required together with epsilon: discrete Gaussian noise has no pure epsilon")
        elif self.epsilon is None:
            raise KeyedError("epsilon", "is required together with delta")
        return self

    @model_validator(mode="after")
    def _within_total(self) -> PrivacyConfig:
        amount = self.rho if self.epsilon is None else self.epsilon
        if self.total is not None and amount is not None and self.delta is None and amount > self.total:
            raise KeyedError("total", f"is {self.total}, less than the {amount} that this release spends")
        return self

    def _check_pure(self) -> None:
        for key in ("rho", "delta"):
            if getattr(self, key) is not None:
                raise KeyedError(key, 'needs mechanism = "discrete_gaussian": geometric noise is charged in epsilon')
        if self.epsilon is None:
            raise KeyedError("epsilon", "is required")


_MECHANISMS: dict[type[Cost], Mechanism] = {Epsilon: "geometric", Rho: "discrete_gaussian"}


class SolversConfig(Section):
    """Which solver answers each type of problem; unset means the fast exact solver.

    A problem's own key comes first, then its step's, which serves both losses (``joint`` is ``joint_l1`` and
    ``joint_l2``), then ``default``. Keys of more than one problem serve those that their solver can express.
    ``fallback``: where an answer misses its tolerance, the next exact solver is used, and the manifest says so.
    """

    fallback: bool = True
    """Whether the next exact solver is used where one misses its tolerance; the manifest says so."""
    default: Choice = None
    """The solver of every problem that it can express and that no other key names; the rest stay automatic."""

    def key_of(self, kind: str) -> str | None:
        """Return the key that chooses the solver of a problem type, None where it stays automatic."""
        stated = {key: getattr(self, key) for key in (kind, step_of(kind), "default") if key in type(self).model_fields}
        return next((key for key, choice in stated.items() if choice and (key == kind or choice.serves(kind))), None)

    def chosen(self) -> dict[str, SolverChoice]:
        """Return the choices made, by problem type."""
        keys = {kind: key for kind in PROBLEMS if (key := self.key_of(kind)) is not None}
        return {kind: getattr(self, key) for kind, key in keys.items()}

    @model_validator(mode="after")
    def _each_solver_serves_a_problem(self) -> SolversConfig:
        for step in dict.fromkeys(map(step_of, PROBLEMS)):
            kinds, choice = [kind for kind in PROBLEMS if step_of(kind) == step], getattr(self, step)
            if step not in PROBLEMS and choice is not None and not any(map(choice.serves, kinds)):
                raise KeyedError(step, f"solver {choice.name!r} cannot express {' or '.join(kinds)}")
        return self


_choices: dict[str, Any] = {key: (Choice, None) for kind in PROBLEMS for key in dict.fromkeys((step_of(kind), kind))}
SOLVERS_MODEL: type[SolversConfig] = create_model("SolversConfig", __base__=SolversConfig, **_choices)
"""The section with one key for each step and each type of problem."""


class EngineConfig(Section):
    """How measuring and estimating are spread over processors and machines; the result is the same bit for bit.

    Private tables are read by the one process that pays. The answers of large tables are drawn by the executor.
    """

    executor: Annotated[str, executor_name()] = "threads"
    """What runs the tasks of a measurement and an estimation: "threads", "processes", "dask", or a package's own."""
    workers: Annotated[int, Field(ge=1, le=1024)] = 2
    """The number of parallel threads or processes; a running cluster uses its own number."""
    address: Annotated[str, Field(min_length=1)] | None = None
    """For "dask" only: the scheduler of a running cluster, such as "tcp://10.0.0.1:8786"; unset: start one here."""
    scratch: FilePath | None = None
    """The folder for results of workers; on a cluster, a folder that all machines see. Unset: a temporary folder."""

    def open(self) -> Executor:
        """Return the executor, to be used as a context manager; WorkerError, MissingPackageError."""
        return open_executor(self.executor, self.workers, scratch=self.scratch, address=self.address)

    @model_validator(mode="after")
    def _options_fit(self) -> EngineConfig:
        options = executor_row(self.executor).options
        for key in ("address", "scratch"):
            if getattr(self, key) is not None and key not in options:
                raise KeyedError(
                    key, f"executor {self.executor!r} takes none: leave it out, or choose another executor"
                )
        return self


class AutoSection(Section):
    """How keys that are left out, or are "auto", are chosen: from public numbers, and from a look at the data.

    The ``aim`` is a weighted geometric mean of the expected errors of the levels. The ``look`` is a first small
    measurement, paid from the same budget; what is measured next is chosen by its noisy answers. ``time`` in seconds.
    """

    aim: Annotated[Aim | tuple[float, ...], PlainValidator(aim_weights(Aim))] = "balanced"
    """What is to be small: errors of all levels alike, of the leaves, of the root, or one weight a level."""
    look: Annotated[Fraction, PlainValidator(look_share)] = Fraction(1, 50)
    """The part of the budget that a first look may take; 0: no look, choose from public numbers alone."""
    time: Annotated[float, PlainValidator(duration)] = 600.0
    """What an estimation may take: a slower method is not chosen, and the posterior begins no more draws after it."""


class OutputConfig(Section):
    """Where public results and private run records go, by default to folders next to the config; words for readers."""

    directory: FilePath = Field(default="releases", validate_default=True)
    """Where release folders go; relative to the config."""
    private: FilePath = Field(default="private", validate_default=True)
    """Where the ledger, sealed measurements and records go: a folder for its owner only, not within `directory`."""
    geometry: FilePath | None = None
    """A public GeoJSON file of the regions' outlines in degrees, with `region_id` in each feature's properties: the
    report then has a map."""
    title: str | None = None
    """The heading of the report and of exported tables; unset: the name of the data. It changes no figure."""
    date: str | None = None
    """When the counts were true, in words for readers: "26 March 2021"."""
    words: dict[Word, str] = Field(default_factory=dict)
    """What readers call a group and an entity: `{ group = "household", entity = "person" }`. Plurals that do not end
    with "s" are `groups` and `entities`; `value` is what [ranges] counts by, such as "days"."""
