"""What the report pages of all kinds share: the document, tables, certificates, how to read it, what is promised."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

_CSS = """
:root { color-scheme: light; }
body { font: 16px/1.55 Charter, "Bitstream Charter", "Sitka Text", Cambria, Georgia, serif; color: #222;
  background: #fff; max-width: 54rem; margin: 2.5rem auto; padding: 0 1.25rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .3rem; font-weight: 600; }
h2 { font-size: 1.2rem; margin: 2.4rem 0 .5rem; font-weight: 600; border-bottom: 1px solid #ddd; }
h3 { font-size: 1rem; margin: 1.4rem 0 .2rem; font-weight: 600; }
p { margin: .5rem 0; } .note { color: #555; font-size: .92rem; }
.banner { padding: .7rem 1rem; border-left: 6px solid; margin: 1.2rem 0; }
.private { border-color: #1f4e79; background: #eef3f8; }
.exposed { border-color: #b3261e; background: #fbeceb; }
table { border-collapse: collapse; font-size: .92rem; margin: .6rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .9rem .25rem 0; text-align: left; border-bottom: 1px solid #e5e5e5; }
th { font-weight: 600; border-bottom-color: #999; } td.n, th.n { text-align: right; }
img { max-width: 100%; height: auto; display: block; margin: .3rem 0; }
dt { font-weight: 600; margin-top: .6rem; } dd { margin: 0 0 0 1.2rem; }
footer { margin-top: 3rem; color: #666; font-size: .85rem; border-top: 1px solid #ddd; padding-top: .6rem; }
"""

GAP_NOTE = (
    "Certified gap",
    "Every step after the noise is an optimisation problem. The gap bounds how far an answer's objective can be "
    "from the best one; it is computed by the problem itself and trusts no solver. Zero means optimal.",
)


def document(title: str, sections: Iterable[str]) -> str:
    """Return one HTML document of sections, empty ones left out, without references to anything outside it."""
    body = "\n".join(section for section in sections if section)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_CSS}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def table(header: Sequence[str], rows: Iterable[Sequence[object]], numeric: int = 1) -> str:
    """Return an HTML table, every cell escaped; columns from ``numeric`` on are right-aligned."""

    def line(cells: Sequence[object], tag: str) -> str:
        marks = ("" if k < numeric else ' class="n"' for k in range(len(cells)))
        return "".join(f"<{tag}{m}>{escape(str(cell))}</{tag}>" for m, cell in zip(marks, cells, strict=True))

    body = "\n".join(f"<tr>{line(row, 'td')}</tr>" for row in rows)
    return f"<table>\n<thead><tr>{line(header, 'th')}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def solvers_section(manifest: Mapping[str, Any]) -> str:
    """Return the certificates of a manifest as a table."""
    rows = [
        (
            kind.replace("_", " "),
            row["solver"],
            f"{row['solves']:,}",
            f"{row['worst_gap']:.2g}",
            f"{row['worst_relative_gap']:.2g}",
            f"{row['worst_violation']:.2g}",
        )
        for kind, row in manifest["solvers"].items()
    ]
    header = ("problem", "solver", "solved", "worst gap", "relative", "worst violation")
    return f"<h2>Solvers and certificates</h2>\n{table(header, rows, numeric=2)}"


def fallbacks_section(manifest: Mapping[str, Any]) -> str:
    """Return where a chosen solver failed and another answered; "" where none did."""
    rows = [
        (
            kind.replace("_", " "),
            one["solver"],
            one["reason"].replace("_", " ").lower(),
            one["answered_by"],
            one["times"],
        )
        for kind, row in manifest["solvers"].items()
        for one in row.get("fallbacks", ())
    ]
    if not rows:
        return ""
    header = ("problem", "asked", "failed with", "answered by", "times")
    return f"<h2>Answers of other solvers</h2>\n{table(header, rows, numeric=4)}"


def reading_section(notes: Iterable[tuple[str, str]]) -> str:
    """Return what the terms of a page mean."""
    items = "\n".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in notes)
    return f"<h2>How to read this page</h2>\n<dl>\n{items}\n</dl>"


def footer(manifest: Mapping[str, Any]) -> str:
    """Return what is promised and the versions."""
    versions = ", ".join(f"{name} {number}" for name, number in manifest["versions"].items())
    promises = ", ".join(name.replace("_", " ") for name in manifest["promises"])
    return (
        f"<footer>Promised, and checked by <code>coco-opt verify</code>: {escape(promises)}.<br>"
        f"{escape(versions)}</footer>"
    )
