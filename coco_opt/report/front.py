"""What a report shows its readers first: what was counted, the main figures in words, and how sure they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from coco_opt.histograms import Hierarchy

_ROUNDING = 1e-9  # of a last digit, which is that of an end computed as a fraction
TRIAL = "Every count was changed a little at random, as it would be for a real release."
"""What a page of trial figures says in place of whom they protect."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A main figure: its value, what it is of, and in words how sure it is; "" where nothing is known of that."""

    value: str
    label: str
    sure: str = ""


def between(low: float, high: float, decimals: int = 0) -> str:
    """Return an interval in words, rounded outwards to as many decimals, or more, as tell its ends apart."""
    if low == high:
        return "most likely exact"
    unit = 10**decimals
    if round(low * unit) == round(high * unit):
        return between(low, high, decimals + 1)
    lower, upper = math.floor(low * unit + _ROUNDING) / unit, math.ceil(high * unit - _ROUNDING) / unit
    return f"between {lower:,.{decimals}f} and {upper:,.{decimals}f}"


def where(tree: Hierarchy, levels: Sequence[str], date: str, most: int = 4) -> str:
    """Return the root by name, the date, and the levels below the root with the numbers of their regions."""
    counts = [
        f"{name} ({len(tree.level_range(level)):,})" for level, name in enumerate(levels[: tree.levels]) if level > 0
    ]
    if len(counts) > most:
        counts = [*counts[: most - 1], f"{len(counts) - most + 1} further levels"]
    listed = f"{', '.join(counts[:-1])} and {counts[-1]}" if len(counts) > 1 else "".join(counts)
    return f"in {tree.names[0]}" + (f", {date}" if date else "") + (f", by {listed}" if listed else "")


def precision(coverage: float | None) -> str:
    """Return in a sentence what intervals of a coverage say; None where a release has none."""
    if coverage is None:
        return "So a figure can differ from the true one; this release has no ranges that say by how much."
    return (
        "So a figure can differ a little from the true one: where the page says between one number and another, the "
        f"true number lies there in at least {100 * coverage:g} of 100 cases."
    )


def small_figures(half: float | None, what: str) -> str:
    """Return in a sentence that small figures are the least sure; ``half`` is the typical reach of an interval."""
    if half is None:
        return (
            f"Large figures are affected little, small ones much, such as {what}: do not build on a few more or less."
        )
    return (
        f"Large figures are affected little, small ones much: {what} are typically known to within "
        f"{max(1, round(half)):,} either way, so do not build on a difference of that size."
    )


def front_section(what: str, figures: Sequence[Figure], explorer: str, sure: Sequence[str]) -> str:
    """Return the section as HTML: what was counted, the figures of all regions together, the explorer, how sure."""
    shown = "\n".join(
        f"<div><dt>{escape(figure.label)}</dt><dd class='value'>{escape(figure.value)}</dd>"
        + (f"<dd class='note'>{escape(figure.sure)}</dd></div>" if figure.sure else "</div>")
        for figure in figures
    )
    sentences = "".join(f"<li>{escape(sentence)}</li>" for sentence in sure if sentence)
    return (
        f'<p class="what">{escape(what[:1].upper() + what[1:])}.</p>\n<dl class="figures">\n{shown}\n</dl>\n'
        f'{explorer}\n<h2>How sure are these figures?</h2>\n<ul class="sure">{sentences}</ul>'
    )


def folded(title: str, sections: Sequence[str]) -> str:
    """Return sections that a reader opens; "" where all are empty."""
    body = "\n".join(section for section in sections if section)
    return f"<details class='folded'><summary>{escape(title)}</summary>\n{body}\n</details>" if body else ""
