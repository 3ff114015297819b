"""The audit's figures: the distribution of residuals and the empirical privacy loss, one line a part of the release."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from coco_opt.audit.privacy_loss import CAVEAT, PrivacyLoss
from coco_opt.report.style import PAGE, saved, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ROW = 1.9  # inches
_DASHES = ("-", "--", "-.")
_SHOWN = 4.0  # times the claim: farther out the estimate follows a handful of residuals


@styled()
def plot_losses(path: Path, losses: Mapping[str, PrivacyLoss], claimed: float, released: str = "count") -> list[Path]:
    """Write ``path``.png and ``path``.pdf: residuals on the left, losses with the claim on the right; return them.

    Parts named "what: part" have a row of panels for each ``what``. ``released`` names the released quantity,
    with its unit.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows: dict[str, dict[str, PrivacyLoss]] = {} if losses else {"": {}}
    for name, loss in losses.items():
        what, _, part = name.rpartition(": ")
        rows.setdefault(what, {})[part] = loss
    figure = Figure(figsize=(PAGE, 0.4 + _ROW * len(rows)), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(rows), 2, squeeze=False)
    for (shares, epl), (what, part_losses) in zip(panels, rows.items(), strict=True):
        begin = f"{what}: " if what else ""
        _draw_residuals(shares, part_losses, f"{begin}how far cells are off")
        _draw_losses(epl, part_losses, claimed, "empirical privacy loss")
    panels[-1][0].set_xlabel(f"released minus exact {released}")
    panels[-1][1].set_xlabel(f"k: released minus exact {released}")
    figure.supxlabel(f"The loss is {CAVEAT}.", fontsize=8)
    return saved(figure, path)


def _draw_residuals(axes: Axes, losses: Mapping[str, PrivacyLoss], title: str) -> None:
    from matplotlib.ticker import FuncFormatter

    for (name, loss), dash in zip(losses.items(), cycle(_DASHES)):
        share = loss.counts / max(1, int(loss.counts.sum()))
        seen = np.where(share > 0, share, np.nan)
        axes.semilogy(loss.centres - 0.5, seen, f".{dash}", markersize=3, linewidth=1.0, label=name)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
    axes.set(ylabel="share of the cells", title=title)
    axes.grid(alpha=0.3)
    if losses:
        axes.legend(fontsize=7)


def _draw_losses(axes: Axes, losses: Mapping[str, PrivacyLoss], claimed: float, title: str) -> None:
    largest = 0.0
    for loss, dash in zip(losses.values(), cycle(_DASHES)):
        seen = np.flatnonzero(loss.counts)  # beyond, the estimate is the kernel's alone
        shown = slice(seen[0], seen[-1]) if seen.size else slice(0)
        axes.plot(loss.centres[:-1][shown], loss.loss[shown], dash, linewidth=1.1)
        largest = max(largest, float(np.nanmax(np.abs(loss.loss[shown]), initial=0.0)))
    for sign in (-1, 1):
        axes.axhline(sign * claimed, color="black", linestyle=":", label="epsilon claimed" if sign > 0 else None)
    if largest > _SHOWN * claimed:
        axes.set_ylim(-_SHOWN * claimed, _SHOWN * claimed)
        title += f", cut at {_SHOWN:g} epsilon"
    axes.set(ylabel="log of share at k\nover that at k + 1", title=title)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7)
