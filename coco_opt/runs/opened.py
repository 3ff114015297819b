"""A run under way, whatever it releases: named, its folder free, and paid for where it spends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coco_opt.choices import Certificate
from coco_opt.privacy.ledger_chain import Charge
from coco_opt.runs.paid import PaidRun, resumed_run, started_run
from coco_opt.runs.publish import check_parent, refuse_existing
from coco_opt.runs.records import new_run_id, open_private_folder
from coco_opt.runs.reporter import Reporter
from coco_opt.runs.settings import RunSettings


@dataclass(frozen=True, slots=True)
class OpenRun:
    """A run's id, the folder it releases to, and its reservation: None where nothing is spent."""

    run_id: str
    folder: Path
    paid: PaidRun | None

    @property
    def resumed(self) -> bool:
        """Return whether an interrupted run was taken up."""
        return self.paid is not None and self.paid.resumed

    def tell(self, spent: str, told: Reporter) -> None:
        """Say what is spent, and that a resumed run spends nothing more."""
        told.line(spent)
        if self.resumed:
            told.line(f"Run {self.run_id} was paid for already: resumed, and nothing more is spent")

    def record(
        self,
        manifest: Mapping[str, Any],
        identity: Mapping[str, int],
        seconds: Mapping[str, float],
        certificates: Iterable[Certificate],
    ) -> dict[str, Any]:
        """Return the private record: timings and row counts depend on private data."""
        return {
            "run": self.run_id,
            "release": str(self.folder.resolve()),
            **{key: manifest[key] for key in ("status", "budget", "config")},
            "identity": dict(identity),
            "seconds": dict(seconds),
            "solver_seconds": {row.problem: row.seconds for row in certificates},
        }


@contextmanager
def opened_run(settings: RunSettings, charge: Charge | None, out: Path | None) -> Iterator[OpenRun]:
    """Take up the interrupted run of this charge, or start and pay one; without a charge nothing is paid.

    The release folder must not exist, unless the run taken up made it. Raises InputError, ConfigError and BudgetError
    before anything is spent.
    """
    with ExitStack() as stack:
        paid = None if charge is None else stack.enter_context(resumed_run(settings, charge))
        run_id = new_run_id() if paid is None else paid.name
        folder = _folder(settings, run_id, out, paid)
        check_parent(folder)
        open_private_folder(settings.output.private)
        if charge is not None and paid is None:
            paid = stack.enter_context(started_run(settings, charge, run_id, folder))
        yield OpenRun(run_id, folder, paid)


def _folder(settings: RunSettings, run_id: str, out: Path | None, paid: PaidRun | None) -> Path:
    target = None if paid is None else paid.target
    default = target or settings.output.directory / f"{settings.name}-{run_id}"
    folder = default if out is None else Path(out)
    if folder.absolute() != target:
        refuse_existing(folder)
    return folder
