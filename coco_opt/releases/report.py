"""The report of a release: one HTML file, no network, nothing that the release does not show."""

from __future__ import annotations

from html import escape

from coco_opt.errors import ProblemError
from coco_opt.releases.kind import AnyKind, Shown
from coco_opt.releases.manifest import protection, title_of
from coco_opt.report.chart import error_figure
from coco_opt.report.front import folded
from coco_opt.report.html import (
    document,
    fallbacks_section,
    footer,
    guarantee_note,
    reading_section,
    solvers_section,
    table,
    unit_note,
)


def render_report(kind: AnyKind, shown: Shown) -> str:
    """Return the report of a release as one HTML document without references to anything outside it.

    Parameters
    ----------
    kind : ReleaseKind
        The kind of the release.
    shown : Shown
        What the release shows, as ``Estimated.shown`` holds it.

    Returns
    -------
    str
        The HTML document.

    Raises
    ------
    ProblemError
        A private release has a truth to compare with.
    """
    manifest = shown.manifest
    if shown.truth is not None and manifest["private"]:
        raise ProblemError("a report of a private release must not show the truth")
    title, (front, *method) = title_of(manifest), kind.page(shown)
    alarm = "" if manifest["private"] else f'<p class="banner exposed">{escape(protection(manifest))}</p>'
    head = f"<h1>{escape(title)}</h1>\n{alarm}"
    notes = (unit_note(shown.measurement.cost, kind.unit), guarantee_note(shown.measurement))
    privacy = (f"<p>{escape(shown.spent)}.</p>", reading_section(notes))
    proofs = (solvers_section(manifest), fallbacks_section(manifest), footer(manifest))
    return document(
        title,
        (
            head,
            front,
            '<h2 class="more">Method, privacy and proofs</h2>',
            folded("Method: how the figures were made", (*method, _errors(kind, shown))),
            folded("Privacy: what was spent, and whom it protects", privacy),
            folded("Proofs: what was checked", proofs),
        ),
    )


def _errors(kind: AnyKind, shown: Shown) -> str:
    """Return the errors by method and level, empty where the truth is not known."""
    levels = shown.measurement.measurement_plan.levels
    errors = {} if shown.truth is None else kind.errors(shown.measurement, shown.truth, shown.result)
    if not errors:
        return ""
    rows = [(name, *(f"{value:,.1f}" for value in values)) for name, values in errors.items()]
    return (
        f"<h2>Error by level</h2>\n<p>The data are simulated, so the truth is known: {kind.error_words}; mean over the "
        f"regions of a level.</p>\n{table(('method', *levels), rows)}\n"
        f"{error_figure(errors, levels, 'mean over regions') if len(levels) > 1 else ''}"
    )
