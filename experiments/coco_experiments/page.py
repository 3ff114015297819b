"""One page a paper: what it says next to what was measured, every table and figure, of all runs into one folder.

A run leaves its record next to its files; the page is made anew of all records of its paper, so that experiments may
be run one after the other, in any order. It fetches nothing but the figures next to it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any

from coco_experiments.outcome import Outcome, readable
from coco_opt._version import machine, versions
from coco_opt.report.html import document, table

_RECORDS = "_record.json"
_FIGURES = (".png",)
_RUNS = 5  # recorded of the bench
_CALL = {"instance", "what", "n", "seconds"}  # columns of the bench's table of timed calls
_PACKAGES = ("coco-opt", "numpy", "scipy", "numba", "highspy", "osqp")


def write_page(
    out: Path, name: str, outcome: Outcome, about: Mapping[str, str], *, small: bool, minutes: float = 0.0
) -> Path:
    """Write the record of an experiment's outcome and the page of its folder, ``out/<folder>.html``; return the page.

    ``about`` are its summary and its paper; ``minutes`` are those of a processor. The bench keeps former runs.
    """
    folder, _, _ = name.partition("/")
    record = {
        **outcome.record(name),
        **about,
        "small": small,
        "minutes": minutes,
        "machine": machine(),
        "versions": {package: number for package, number in versions(_PACKAGES).items() if package != "python"},
        "files": [Path(os.path.relpath(path, out)).as_posix() for path in outcome.files],
    }
    path = out / f"{name}{_RECORDS}"
    path.parent.mkdir(parents=True, exist_ok=True)
    if folder == "bench":
        earlier = json.loads(path.read_text(encoding="utf-8")).get("runs", []) if path.is_file() else []
        record["runs"] = [*earlier, _run(record)][-_RUNS:]
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    records = [json.loads(file.read_text(encoding="utf-8")) for file in sorted((out / folder).glob(f"*{_RECORDS}"))]
    page = out / f"{folder}.html"
    page.write_text(document(folder, [f"<h1>{escape(folder)}</h1>", *map(_section, records)]), encoding="utf-8")
    return page


def _section(record: Mapping[str, Any]) -> str:
    statements = record["statements"]
    explained = any(item["why"] for item in statements)
    header = ("verdict", "where", "published", "measured", *(("why",) if explained else ()))
    said = [[item[name] for name in header] for item in statements]
    parts = [
        f"<h2>{escape(record['name'])}</h2>\n<p>{escape(record['summary'])}. {escape(record['paper'])}</p>",
        "<p class='note'>Run with --small: simulated data and few runs.</p>" if record["small"] else "",
        *(f'<p class="banner exposed">{escape(failure)}</p>' for failure in record["failures"]),
        table(header, said, numeric=len(header)) if said else "",
        *(
            f'<img loading="lazy" alt="Figure of {escape(record["name"])}" src="{escape(path, quote=True)}">'
            for path in record["files"]
            if path.endswith(_FIGURES)
        ),
        *(_table(item) for item in record["tables"]),
        _runs(record.get("runs", [])),
        f"<p class='note'>{escape(record['machine'])}; {escape(_versions(record['versions']))}; "
        f"{record.get('minutes', 0.0):.2g} minutes of a processor</p>",
    ]
    return "\n".join(part for part in parts if part)


def _run(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is kept of a run of the bench: when and on what, and the seconds of every row."""
    rows = (row for table in record["tables"] for row in table["rows"])
    return {
        "when": datetime.now(UTC).strftime("%Y-%m-%d %H:%M"),
        "on": f"{record['machine']}; coco-opt {record['versions']['coco-opt']}"
        + ("; small" if record["small"] else ""),
        "seconds": {name: seconds for row in rows for name, seconds in _seconds(row).items()},
    }


def _seconds(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the seconds of a row by name: of a timed call, or of every column in seconds of another table."""
    if row.keys() >= _CALL:
        return {f"{row['instance']}, {row['what']}, n = {row['n']:,}": row["seconds"]}
    first = next(iter(row.values()))
    return {f"{first}: {name}": value for name, value in row.items() if name.endswith((" s", "seconds"))}


def _runs(runs: Sequence[Mapping[str, Any]]) -> str:
    """Return the recorded runs, newest first, folded away: a column a run."""
    if not runs:
        return ""
    newest = list(reversed(runs))
    what = dict.fromkeys(name for run in newest for name in run["seconds"])
    header = ("seconds of", *(f"{run['when']} UTC, {run['on']}" for run in newest))
    rows = [(name, *(readable(run["seconds"].get(name)) for run in newest)) for name in what]
    return f"<details><summary>Recorded runs: {len(runs)}</summary>\n{table(header, rows)}</details>"


def _table(record: Mapping[str, Any]) -> str:
    """Return a table folded away under its title: a paper has thousands of figures."""
    rows = record["rows"]
    header = tuple(rows[0]) if rows else ()
    shown = table(header, [[readable(row[name]) for name in header] for row in rows])
    notes = "".join(f"<p class='note'>{escape(note)}</p>" for note in record["notes"])
    return f"<details><summary>{escape(record['title'])}</summary>\n{shown}{notes}</details>"


def _versions(numbers: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in numbers.items())
