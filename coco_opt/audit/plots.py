"""The audit's figures: how the residuals lie and the empirical privacy loss, one line a part of the release."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from coco_opt.audit.privacy_loss import CAVEAT, PrivacyLoss


def plot_losses(path: Path, losses: Mapping[str, PrivacyLoss], claimed: float, released: str = "count") -> list[Path]:
    """Write ``path``.png and ``path``.pdf: residuals on the left, losses with the claim on the right; return them.

    ``released`` names what the residuals are of, with its unit.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.0, 5.0), layout="constrained")
    FigureCanvasAgg(figure)
    shares, epl = figure.subplots(1, 2)
    for name, loss in losses.items():
        share = loss.counts / max(1, int(loss.counts.sum()))
        shares.semilogy(loss.centres - 0.5, np.where(share > 0, share, np.nan), ".-", markersize=3, label=name)
        epl.plot(loss.centres[:-1], loss.loss, label=name)
    shares.set(xlabel=f"released minus exact {released}", ylabel="share of cells", title="Residuals")
    for sign in (-1, 1):
        epl.axhline(sign * claimed, color="black", linestyle=":", label="epsilon claimed" if sign > 0 else None)
    epl.set(xlabel="k", ylabel="log p(k) / p(k + 1)", title="Empirical privacy loss")
    handles, names = epl.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=3, fontsize=8, frameon=False)
    figure.supxlabel(f"Estimates are {CAVEAT.removeprefix('an estimate ')}.", fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    files = [path.with_name(f"{path.name}.{kind}") for kind in ("png", "pdf")]
    for file in files:
        # Without dates the same numbers give the same file.
        metadata = {"Software": None} if file.suffix == ".png" else {"CreationDate": None}
        figure.savefig(file, dpi=130, metadata=metadata)
        # The layout found for the first file is the second one's: finding it takes a third of the drawing.
        figure.set_layout_engine("none")
    return files
