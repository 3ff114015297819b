"""What an experiment is: a name, a function found when it runs, and tables of measured next to published values.

The command line needs no more than this module's shapes: it finds ``EXPERIMENTS`` through the entry-point group
``coco_opt.experiments``, calls ``Experiment.run`` and reads ``Outcome.failures``.
"""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, cast

from coco_experiments.outcome import Outcome, Reporter

Kind = Literal["paper", "bench"]


class Run(Protocol):
    """The function behind an experiment; ``data`` is the folder of real data sets, None to look for it."""

    def __call__(self, *, small: bool, out: Path, reporter: Reporter, data: Path | None, **size: Any) -> Outcome:
        """Run, write files below ``out``, and return what came of it."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """One row of the experiment table; describes an experiment without importing it.

    ``name`` is "folder/module" ("kuo2018/table3"). In that module, or the one that ``declared`` names (with a dot where
    it lies in another folder), the experiment is a value called as its name in capital letters (``TABLE3``), with a
    method ``run``, or else a function ``run``.
    ``shows`` is what its figure shows, in a sentence, for the gallery; "" where it draws none. One that is
    ``heavy``, in time or disk, runs only by a name that means no other.
    One that takes ``states`` makes a country of so many. ``data`` are the folders of real data that it wants, each
    below the data folder; ``minutes`` of processor time were measured, None where no run was timed.
    """

    name: str
    summary: str
    paper: str = ""
    shows: str = ""
    declared: str = ""
    heavy: bool = False
    takes_states: bool = False
    data: tuple[str, ...] = ()
    minutes: float | None = None

    @property
    def kind(self) -> Kind:
        """Return which verb lists the experiment: "paper" for reproduce, "bench" for bench."""
        return "bench" if self.name.startswith("bench/") else "paper"

    @property
    def of_a_paper(self) -> bool:
        """Return whether it repeats what a paper shows: its folder has the paper's year."""
        return self.name.partition("/")[0][-4:].isdigit()

    def function(self) -> Run:
        """Import the experiment's module and return what runs it."""
        folder, _, name = self.name.partition("/")
        declared = self.declared or name
        place = declared if "." in declared else f"{folder}.{declared}"
        module: Any = importlib.import_module(f"{__package__}.{place}")
        return cast("Run", getattr(module, name.upper(), module).run)

    def run(
        self,
        *,
        small: bool = False,
        out: Path = Path("results"),
        reporter: Reporter | None = None,
        data: Path | None = None,
        states: int | None = None,
    ) -> Outcome:
        """Run the experiment and write its files below ``out``.

        ``small`` takes seconds on simulated data; otherwise real data are read from ``data``, the environment's
        COCO_OPT_DATA or ../shared/data. The default reporter prints with rich. A page of the folder of ``name``
        shows what was run into ``out`` so far. Raises ConfigError where the data are absent.
        """
        # Imported here: listing the experiments needs neither.
        from coco_experiments.console import ConsoleReporter
        from coco_experiments.page import write_page

        shown = reporter or ConsoleReporter()
        size = {"states": states} if self.takes_states else {}
        begun = sum(os.times()[:4])
        outcome = self.function()(small=small, out=out, reporter=shown, data=data, **size)
        minutes = (sum(os.times()[:4]) - begun) / 60.0
        for statement in outcome.statements:
            shown.note(statement.line)
        about = {"summary": self.summary, "paper": self.paper}
        write_page(out, self.name, outcome, about, small=small, minutes=minutes)
        return outcome
