"""The report of a release: one HTML file, no network, nothing that the release does not show."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from coco_opt.errors import ProblemError
from coco_opt.releases.kind import AnyKind, Shown
from coco_opt.report.html import document, fallbacks_section, footer, solvers_section


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
    title = _title(manifest)
    banner = "private" if manifest["private"] else "exposed"
    head = f'<h1>{escape(title)}</h1>\n{_subtitle(manifest)}\n<div class="banner {banner}">{escape(shown.spent)}.</div>'
    sections = (head, *kind.page(shown), solvers_section(manifest), fallbacks_section(manifest), footer(manifest))
    return document(title, sections)


def _title(manifest: Mapping[str, Any]) -> str:
    """Return the name of the data, or where the ledger has none, that of the configuration."""
    name: str = manifest.get("config", {}).get("privacy", {}).get("dataset") or manifest["name"]
    return "Release" if name == "release" else name


def _subtitle(manifest: Mapping[str, Any]) -> str:
    """Return what was released, and at which levels."""
    kind, levels = manifest.get("kind", ""), manifest.get("levels", ())
    what = f"Release of {kind}" if kind else "Release"
    by = f" by {', '.join(levels)}" if len(levels) > 1 else ""
    return f'<p class="note">{escape(what + by)}</p>'
