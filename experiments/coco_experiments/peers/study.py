"""What the comparisons with other systems share: a system, its runs, and one table of errors and seconds a task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from statistics import median
from typing import Any

from coco_experiments.bench.apart import clocked
from coco_experiments.outcome import Record, Table
from coco_experiments.statistics import Mean

OURS = "coco-opt"
_ROUNDING = 1e-9
_LEVEL = 1.02  # what counts as better: errors differ by more than 2 %
_FASTER = 1.2  # what counts as faster: seconds vary from run to run


@dataclass(frozen=True, slots=True)
class System:
    """A way to do a task: ``package`` is the distribution it comes from, ``setting`` how it is used."""

    package: str
    setting: str

    @property
    def version(self) -> str | None:
        """Return the installed version, None where it is not installed."""
        try:
            return version(self.package)
        except PackageNotFoundError:
            return None

    @property
    def ours(self) -> bool:
        """Return whether this is coco-opt."""
        return self.package == OURS

    @property
    def name(self) -> str:
        """Return package and setting."""
        return f"{self.package}: {self.setting}"


@dataclass(frozen=True, slots=True)
class Result:
    """All runs of a system on one instance: errors by measure, a value a run, and seconds."""

    instance: str
    system: System
    errors: Mapping[str, tuple[float, ...]]
    seconds: tuple[float, ...]


Trial = dict[str, tuple[dict[str, float], float]]
"""One seed's errors by measure and seconds, by the name of the system."""


def trial(calls: Mapping[System, Callable[[], Any]], errors: Callable[[Any], dict[str, float]], *, warm: bool) -> Trial:
    """Run every installed system once on one instance; ``warm`` calls it before, so that it compiles and imports."""
    found = {}
    for system, call in calls.items():
        if system.version is not None:
            if warm:
                call()
            seconds, _, answer = clocked(call)
            found[system.name] = errors(answer), seconds
    return found


def results_of(instance: str, systems: Iterable[System], trials: Sequence[Trial]) -> list[Result]:
    """Return the results of all systems that ran on one instance."""
    results = []
    for system in (system for system in systems if system.name in trials[0]):
        errors, seconds = zip(*(found[system.name] for found in trials), strict=True)
        by_measure = {measure: tuple(error[measure] for error in errors) for measure in errors[0]}
        results.append(Result(instance, system, by_measure, seconds))
    return results


def missing(systems: Sequence[System]) -> list[str]:
    """Return one line a package that is not installed, with the command that installs it."""
    absent = dict.fromkeys(system.package for system in systems if system.version is None)
    return [f"{package} is not installed and was left out: pip install {package}" for package in absent]


def peer_table(title: str, results: Sequence[Result], notes: Sequence[str] = ()) -> Table:
    """Return a row an instance and system: mean errors with standard errors, and seconds over those of coco-opt.

    Where a peer errs less than every setting of coco-opt, the first notes say so, and then where one is faster.
    """
    measures = tuple(dict.fromkeys(measure for result in results for measure in result.errors))
    rows: list[Record] = []
    for result in results:
        row: Record = {"data": result.instance, "system": result.system.name, "version": result.system.version}
        row["runs"] = len(result.seconds)
        for measure in measures:
            mean = Mean.of(result.errors[measure]) if measure in result.errors else None
            error = "standard error" if len(measures) == 1 else f"its standard error: {measure}"
            row |= {measure: None, error: None} if mean is None else {measure: mean.value, error: mean.standard_error}
        own = [median(other.seconds) for other in results if other.instance == result.instance and other.system.ours]
        seconds = median(result.seconds)
        rows.append({**row, "seconds": seconds, "times coco-opt's": seconds / min(own) if own else None})
    return Table.of(title, rows, (*wins(results, measures), *faster(results), *notes))


def wins(results: Sequence[Result], measures: Sequence[str]) -> list[str]:
    """Return one line for each instance and measure in which a peer errs less than coco-opt; what is level is not."""
    lines = []
    for instance in dict.fromkeys(result.instance for result in results):
        for measure in measures:
            errors = {
                result.system: Mean.of(result.errors[measure]).value
                for result in results
                if result.instance == instance and measure in result.errors
            }
            own = [error for system, error in errors.items() if system.ours]
            if not own:
                continue
            # Errors that are rounding alone are equal.
            lines += [
                f"A peer errs less: {system.name} on {instance}, {measure}: {error:.4g} against {min(own):.4g}"
                for system, error in errors.items()
                if not system.ours and error * _LEVEL + _ROUNDING < min(own)
            ]
    return lines or ["No peer errs less than coco-opt by more than 2 % in any row."]


def faster(results: Sequence[Result]) -> list[str]:
    """Return one line for each instance and peer that errs as little as a setting of coco-opt in less time."""
    lines = []
    for own in (result for result in results if result.system.ours):
        for peer in results:
            ratio = median(own.seconds) / median(peer.seconds)
            if peer.instance == own.instance and not peer.system.ours and ratio > _FASTER and _is_level(peer, own):
                pace = f"{ratio:.2g} times as fast as {own.system.name}"
                lines.append(f"A peer is faster at the same errors: {peer.system.name} on {own.instance}, {pace}")
    return lines


def _is_level(peer: Result, own: Result) -> bool:
    """Return whether a peer errs as little as coco-opt, by all measures."""
    pairs = ((Mean.of(peer.errors[name]).value, Mean.of(values).value) for name, values in own.errors.items())
    return all(error <= own_error * _LEVEL + _ROUNDING for error, own_error in pairs)
