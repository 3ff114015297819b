"""``coco-opt reproduce`` and ``coco-opt bench``: the experiments found through their entry-point group."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any

import typer

from coco_opt.activity import NOTHING_PAID, doing, set_interrupt_advice
from coco_opt.cli.console import write, write_json, write_table
from coco_opt.cli.options import Json, Version, integer
from coco_opt.errors import ConfigError, MissingPackageError, VerificationError
from coco_opt.plugins import near

GROUP = "coco_opt.experiments"

Names = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[NAME]...",
        help="Names or their beginnings; 'figures' and 'all' mean many. Heavy ones run by their whole name only.",
    ),
]
Small = Annotated[bool, typer.Option("--small", help="Simulated data and few runs: seconds instead of minutes.")]
Out = Annotated[Path, typer.Option("--out", help="Folder for tables and figures.")]
States = Annotated[
    int | None,
    typer.Option(
        "--states", metavar="N", parser=integer(1, 50), help="How many of 50 states, for bench country alone."
    ),
]
Listing = Annotated[bool, typer.Option("--list", help="List the experiments and stop.")]


def reproduce(
    names: Names = None,
    small: Small = False,
    out: Out = Path("results"),
    listing: Listing = False,
    json: Json = False,
    version: Version = False,
) -> int:
    """Recompute figures and tables of the papers and compare them with the papers; exit 1 if one is out of bounds.

    Without a name it lists the experiments. 'figures' are all figures of the papers; 'all' takes hours.
    """
    return _run("paper", names or [], small=small, out=out, listing=listing or not names, json=json)


def bench(
    names: Names = None,
    small: Small = False,
    out: Out = Path("results"),
    listing: Listing = False,
    states: States = None,
    json: Json = False,
    version: Version = False,
) -> int:
    """Time kernels and certified solves against their peers, in one run."""
    chosen = [name if "/" in name or name == "bench" else f"bench/{name}" for name in names or []]
    return _run("bench", chosen, small=small, out=out, listing=listing, json=json, states=states)


def find(kind: str) -> list[Any]:
    """Return the installed experiments of a kind ("paper" or "bench"), in their tables' order."""
    points = sorted(entry_points(group=GROUP), key=lambda point: point.name)
    if not points:
        raise MissingPackageError("coco-opt", "the experiment table (installation metadata not found)")
    return [row for point in points for row in point.load() if getattr(row, "kind", "paper") == kind]


def _select(rows: Sequence[Any], names: Sequence[str], *, listing: bool = False) -> list[Any]:
    """Return the rows whose name begins with one of the names, all without names; ConfigError where none does.

    Heavy experiments run only by a name that matches no light experiment.
    """
    chosen: list[Any] = []
    for name in names or ["all"]:
        matching = [row for row in rows if _is_meant(row, name)]
        if not matching:
            all_names = [row.name for row in rows]
            hint = near(name, all_names, f"; there are: {', '.join(all_names)}")
            raise ConfigError("", f"no experiment is called {name!r}{hint}")
        light = [row for row in matching if listing or not getattr(row, "heavy", False)]
        chosen += light or matching
    return [row for row in rows if row in chosen]


def _is_meant(row: Any, name: str) -> bool:
    """Return whether a name, or the word for many, means an experiment."""
    if name == "figures":
        return bool(getattr(row, "shows", "")) and getattr(row, "of_a_paper", False)
    return name == "all" or str(row.name).startswith(name)


def _run(
    kind: str,
    names: Sequence[str],
    *,
    small: bool,
    out: Path,
    listing: bool,
    json: bool,
    states: int | None = None,
) -> int:
    rows = _select(find(kind), names, listing=listing)
    size: dict[str, int] = {} if states is None else {"states": states}
    if size and not all(getattr(row, "takes_states", False) for row in rows):
        raise ConfigError("", "--states is for bench country: name it")
    if listing:
        _list(rows, json=json)
        return 0
    set_interrupt_advice(NOTHING_PAID)
    failures: list[str] = []
    results: list[dict[str, Any]] = []
    for number, row in enumerate(rows, start=1):
        with doing(f"{row.name} ({number} of {len(rows)})"):
            outcome = row.run(small=small, out=out, reporter=_Quiet() if json else None, **size)
        failures += [f"{row.name}: {failure}" for failure in outcome.failures]
        results.append(outcome.record(row.name))
    if json:
        write_json(results)
    else:
        for folder in dict.fromkeys(row.name.partition("/")[0] for row in rows):
            write(f"Page  {out / folder}.html")
    if failures:
        raise VerificationError("\n".join(failures))
    return 0


def _list(rows: Sequence[Any], *, json: bool) -> None:
    listed = [
        {
            "name": row.name,
            "summary": row.summary,
            "figure": bool(getattr(row, "shows", "")),
            "minutes": getattr(row, "minutes", None),
            "data": list(getattr(row, "data", ())),
            "heavy": bool(getattr(row, "heavy", False)),
        }
        for row in rows
    ]
    if json:
        write_json(listed)
        return
    shown = [
        (
            row["name"],
            row["summary"],
            "yes" if row["figure"] else "",
            ("-" if row["minutes"] is None else f"{row['minutes']:.2g}") + (", heavy" if row["heavy"] else ""),
            ", ".join(row["data"]) or "none",
        )
        for row in listed
    ]
    write_table("Experiments", ("name", "what", "figure", "minutes", "data wanted"), shown, numeric=5)
    write(
        "Minutes are of a processor, measured on two cores; - was not timed. With --small each takes "
        "seconds. What is heavy runs by its whole name only."
    )


class _Quiet:
    """Shows nothing while an experiment runs: its tables come as JSON at the end."""

    def progress(self, label: str, done: int, total: int) -> None:
        """Show nothing."""

    def table(self, table: object) -> None:
        """Show nothing."""

    def note(self, text: str) -> None:
        """Show nothing."""
