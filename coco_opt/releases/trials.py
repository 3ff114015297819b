"""Whole releases under several values of keys, on the same simulated or public data: what each errs, and how long."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from pathlib import Path
from time import process_time
from typing import TYPE_CHECKING, Any

import numpy as np

from coco_opt.activity import doing
from coco_opt.array_types import Floats
from coco_opt.config.load import configure
from coco_opt.config.model import Config
from coco_opt.errors import ConfigError, ProblemError, SolverError
from coco_opt.privacy.seeded import SeededNoise
from coco_opt.releases.drawing import noisy
from coco_opt.releases.kind import Plan, Truth, Work, kind_of
from coco_opt.releases.planning import planned
from coco_opt.releases.reporter import Reporter, Silent, default_reporter
from coco_opt.releases.solvers import choices_of
from coco_opt.report.style import PAGE, fitted_legend, plain, saved, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_SEED = 2018  # of the first run; runs of the same number have the same noise where they ask the same queries


@dataclass(frozen=True, eq=False, slots=True)
class Trial:
    """Releases under one choice of values, by key: ``errors`` float64[runs, levels], in the unit of the kind.

    ``seconds`` are the processor time of an estimation, ``gap`` is the worst certified relative gap. Where the choice
    cannot be released, ``errors`` has no runs, and ``note`` says why.
    """

    values: Mapping[str, str]
    errors: Floats
    seconds: float = math.nan
    gap: float = math.nan
    note: str = ""

    @property
    def means(self) -> list[float]:
        """Return the mean error of each level, root first; none where nothing was released."""
        means: list[float] = self.errors.mean(axis=0).tolist() if self.errors.size else []
        return means

    @property
    def standard_errors(self) -> list[float]:
        """Return the standard error of each mean, nan after a single run."""
        runs = len(self.errors)
        if runs < 2:
            return [math.nan] * len(self.means)
        spread: list[float] = (self.errors.std(axis=0, ddof=1) / math.sqrt(runs)).tolist()
        return spread

    def times(self, first: Trial) -> float:
        """Return the geometric mean over the levels of this error over another's, nan where either has none."""
        pairs = [(a, b) for a, b in zip(self.means, first.means, strict=False) if a > 0 and b > 0]
        return math.exp(sum(math.log(a / b) for a, b in pairs) / len(pairs)) if pairs else math.nan


@dataclass(frozen=True, eq=False, slots=True)
class Trials:
    """Trials in the order of the grid, the names of the levels, and in words the data on which they were made."""

    data: str
    levels: tuple[str, ...]
    rows: tuple[Trial, ...]

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield one record a trial and level, for CSV and JSON; what could not be released has one without a level."""
        for trial in self.rows:
            shared = {**trial.values, "runs": len(trial.errors), "seconds": trial.seconds, "relative_gap": trial.gap}
            for level, mean, error in zip(self.levels, trial.means, trial.standard_errors, strict=False):
                yield {**shared, "level": level, "error": mean, "standard_error": error, "note": ""}
            if trial.note:
                yield {**shared, "level": "", "error": math.nan, "standard_error": math.nan, "note": trial.note}


def trials(
    config: Config,
    grid: Mapping[str, Sequence[Any]],
    *,
    runs: int = 10,
    public: Path | None = None,
    reporter: Reporter | None = None,
) -> Trials:
    """Release the same data under every combination of values of some keys; pays nothing, opens no private table.

    Parameters
    ----------
    config : Config
        All other keys.
    grid : mapping of str to sequence
        Values by key, such as ``{"groups.loss": ["l1", "l2"], "privacy.epsilon": ["1/2", "1"]}``.
    runs : int, default 10
        Releases of each combination, with the same seeds.
    public : Path, optional
        Public data in the form of the private table, in place of simulated data.
    reporter : Reporter, optional
        Receives the progress.

    Returns
    -------
    Trials
        One row for each combination. What a combination cannot release is a row with a note.

    Raises
    ------
    ConfigError, InputError, ProblemError
        A key does not exist, or a public table is wrong.
    """
    reporter = default_reporter(reporter)
    rows: list[Trial] = []
    data, levels, choices = "", tuple[str, ...](), list(product(*grid.values()))
    for number, choice in enumerate(choices, 1):
        values = dict(zip(grid, choice, strict=True))
        words = ", ".join(f"{key} = {value}" for key, value in values.items())
        varied = configure(config, **_sections(values))
        with doing(f"combination {number} of {len(choices)}"), reporter.stage(words):
            plan, kind = planned(varied, Silent()), kind_of(varied)
            simulated = kind.simulated_data(plan, public)
            if plan.resolve is not None and simulated.plan.look is not None:  # the look chooses, as in a release
                look = simulated.plan.on(simulated.plan.look, simulated.plan.detail)
                look_answers = noisy(look, simulated.private, SeededNoise(_SEED - 1), Silent())
                simulated = kind.simulated_data(plan.resolve(look_answers, None), public)
            data, levels = simulated.words, tuple(plan.measurement_plan.levels)
            shown = {key: str(value) for key, value in values.items()}
            try:
                rows.append(_tried(varied, simulated.plan, simulated.private, runs, shown))
            except (ConfigError, ProblemError, SolverError) as error:
                rows.append(Trial(shown, np.zeros((0, len(levels))), note=str(error)))
    return Trials(data, levels, tuple(rows))


def _tried(config: Config, plan: Plan, private: Any, runs: int, shown: Mapping[str, str]) -> Trial:
    """Measure and estimate some times."""
    kind, errors, seconds, gap = kind_of(config), [], 0.0, 0.0
    method, choices = kind.method(config, plan.measurement_plan), choices_of(config)
    for run in range(runs):
        measurement = noisy(plan, private, SeededNoise(_SEED + run), Silent())
        start = process_time()
        result = kind.estimate(measurement, method, Work(choices))
        seconds += process_time() - start
        gap = max([gap, *(certificate.relative_gap for certificate in result.certificates)])
        (error,) = kind.errors(measurement, Truth(private), result).values()
        errors.append(error)
    return Trial(shown, np.array(errors, np.float64), seconds / runs, gap)


def _sections(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values of dotted keys as sections."""
    sections: dict[str, Any] = {}
    for key, value in values.items():
        section, _, name = key.partition(".")
        sections.setdefault(section, {})[name] = value
    return sections


_COLUMNS = 3  # panels next to each other
_HEIGHT = 2.4  # inches of a panel


@styled()
def draw_trials(path: Path, trials: Trials) -> list[Path]:
    """Write ``path``.png and ``path``.pdf, a panel a level, with standard errors; return the files."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = [trial for trial in trials.rows if trial.means]
    key = _key_of_numbers(rows)
    columns = min(_COLUMNS, len(trials.levels))
    lines = -(-len(trials.levels) // columns)
    figure = Figure(figsize=(PAGE, 0.6 + _HEIGHT * lines), layout="constrained")
    FigureCanvasAgg(figure)
    for level, name in enumerate(trials.levels):
        axes = figure.add_subplot(lines, columns, level + 1)
        axes.set_title(name)
        _draw(axes, rows, level, key)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    if len(labels) > 1:
        fitted_legend(figure, dict(zip(labels, handles, strict=True)), 4, loc="outside upper center")
    figure.supylabel("mean error", fontsize="medium")
    figure.supxlabel(key, fontsize="medium")
    return saved(figure, path)


def _key_of_numbers(rows: list[Trial]) -> str:
    """Return the first key with several values that are all positive numbers, "" without one."""
    for key in rows[0].values if rows else ():
        values = {trial.values[key] for trial in rows}
        if len(values) > 1 and all(_number(value) > 0 for value in values):
            return key
    return ""


def _number(text: str) -> float:
    """Return a number, 0 for another text."""
    try:
        return float(Fraction(text))
    except (ValueError, ZeroDivisionError):
        return 0.0


def _draw(axes: Axes, rows: list[Trial], level: int, key: str) -> None:
    """Draw a line for each combination of the other keys; without a key of numbers, a place for each."""
    names = [", ".join(value for other, value in trial.values.items() if other != key) for trial in rows]
    for number, name in enumerate(dict.fromkeys(names)):
        some = [trial for trial, combination in zip(rows, names, strict=True) if combination == name]
        x = [_number(trial.values[key]) for trial in some] if key else [float(number)] * len(some)
        y, bars = [trial.means[level] for trial in some], [trial.standard_errors[level] for trial in some]
        axes.errorbar(x, y, bars, marker="o", markersize=4, linewidth=1.1, capsize=2, label=name)
    if key:
        axes.set_xscale("log")
        axes.set_yscale("log")
        plain(axes.xaxis)
        plain(axes.yaxis)
    else:
        axes.set_xticks([])
        axes.set_xlim(-0.5, len(set(names)) - 0.5)
        axes.set_ylim(0.0, 1.05 * axes.get_ylim()[1])
    axes.grid(alpha=0.3)
