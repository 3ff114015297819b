"""One page a paper: what it says beside what was measured, every table and figure, of all runs into one folder.

A run leaves its record beside its files; the page is made anew of all records of its paper, so that experiments may
be run one after the other, in any order. It fetches nothing but the figures beside it.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import Any

from coco_experiments.experiment import Experiment, Outcome, readable
from coco_opt.report.html import document, table

_RECORDS = "_record.json"
_FIGURES = (".png",)
_PACKAGES = ("coco-opt", "numpy", "scipy", "numba", "highspy", "osqp")


def write_page(out: Path, experiment: Experiment, outcome: Outcome, *, small: bool) -> Path:
    """Keep an outcome's record, and write the page of its folder, ``out/<folder>.html``; return the page."""
    folder, _, _ = experiment.name.partition("/")
    record = {
        **outcome.record(experiment.name),
        "summary": experiment.summary,
        "paper": experiment.paper,
        "small": small,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "versions": {name: version(name) for name in _PACKAGES},
        "files": [Path(os.path.relpath(path, out)).as_posix() for path in outcome.files],
    }
    path = out / f"{experiment.name}{_RECORDS}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    records = [json.loads(one.read_text(encoding="utf-8")) for one in sorted((out / folder).glob(f"*{_RECORDS}"))]
    page = out / f"{folder}.html"
    page.write_text(document(folder, [f"<h1>{escape(folder)}</h1>", *map(_section, records)]), encoding="utf-8")
    return page


def _section(record: Mapping[str, Any]) -> str:
    statements = record["statements"]
    known = any(one["why"] for one in statements)
    header = ("verdict", "where", "published", "measured", *(("why",) if known else ()))
    said = [[one[name] for name in header] for one in statements]
    parts = [
        f"<h2>{escape(record['name'])}</h2>\n<p>{escape(record['summary'])}. {escape(record['paper'])}</p>",
        "<p class='note'>Run with --small: made data and few runs.</p>" if record["small"] else "",
        *(f'<p class="banner exposed">{escape(failure)}</p>' for failure in record["failures"]),
        table(header, said, numeric=len(header)) if said else "",
        *(
            f'<img loading="lazy" alt="Figure of {escape(record["name"])}" src="{escape(path, quote=True)}">'
            for path in record["files"]
            if path.endswith(_FIGURES)
        ),
        *(_table(one) for one in record["tables"]),
        f"<p class='note'>{escape(record['machine'])}; {escape(_versions(record['versions']))}</p>",
    ]
    return "\n".join(part for part in parts if part)


def _table(one: Mapping[str, Any]) -> str:
    """Return a table folded away under its title: a paper has thousands of figures."""
    rows = one["rows"]
    header = tuple(rows[0]) if rows else ()
    shown = table(header, [[readable(row[name]) for name in header] for row in rows])
    notes = "".join(f"<p class='note'>{escape(note)}</p>" for note in one["notes"])
    return f"<details><summary>{escape(one['title'])}</summary>\n{shown}{notes}</details>"


def _versions(found: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in found.items())
