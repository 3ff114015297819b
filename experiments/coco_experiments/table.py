"""The experiment table: one row a figure, table or benchmark; add a row here to add one.

The command line finds it through the entry-point group ``coco_opt.experiments``.
"""

from __future__ import annotations

from coco_experiments.experiment import Experiment

KUO2018 = "Kuo, Chiu, Kifer, Hay and Machanavajjhala 2018"
FLAXMAN2019 = "Flaxman 2019"
HAY2010 = "Hay, Rastogi, Miklau and Suciu 2010"

EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment(
        name="kuo2018/table3",
        target="coco_experiments.kuo2018.table3:run",
        summary="one region: error of the naive, rank and cumulative estimators on Taxi and Hawaiian",
        paper=f"{KUO2018}; poster, Table 3",
    ),
    Experiment(
        name="kuo2018/table4",
        target="coco_experiments.kuo2018.table4:run",
        summary="three levels of Taxi: bottom-up against top-down matching, weighted and plain",
        paper=f"{KUO2018}; poster, Table 4",
    ),
    Experiment(
        name="flaxman2019/figure1",
        target="coco_experiments.flaxman2019.figure1:run",
        summary="residuals and empirical privacy loss of three counting mechanisms, his curves beside ours",
        paper=f"{FLAXMAN2019}; Figure 1",
    ),
    Experiment(
        name="flaxman2019/plateaus",
        target="coco_experiments.flaxman2019.plateaus:run",
        summary="what of Figure 1 does not depend on the seed, over 15 databases",
        paper=f"{FLAXMAN2019}; Figure 1",
    ),
    Experiment(
        name="flaxman2019/direct",
        target="coco_experiments.flaxman2019.direct:run",
        summary="the direct estimate: 500 runs on each of two neighbours",
        paper=f"{FLAXMAN2019}; section 2.3",
    ),
    Experiment(
        name="flaxman2019/sweep",
        target="coco_experiments.flaxman2019.sweep:run",
        summary="the less-obvious estimate over N, J, mu, epsilon, bandwidth and percentile",
        paper=f"{FLAXMAN2019}; section 2.3",
    ),
    Experiment(
        name="flaxman2019/releases",
        target="coco_experiments.flaxman2019.releases:run",
        summary="the privacy lost by whole releases of Taxi: Algorithm 1 and bottom-up",
        paper=f"{FLAXMAN2019}; section 4, asked for there",
    ),
    Experiment(
        name="flaxman2019/bounds",
        target="coco_experiments.flaxman2019.bounds:run",
        summary="sound lower bounds for each mechanism and estimator, and planted faults they catch",
        paper=f"{FLAXMAN2019}; section 4, beyond it",
    ),
    Experiment(
        name="hay2010/figure3",
        target="coco_experiments.hay2010.figure3:run",
        summary="isotonic regression of one noisy sequence, drawn",
        paper=f"{HAY2010}; Figure 3, Example 5",
    ),
    Experiment(
        name="hay2010/figure5",
        target="coco_experiments.hay2010.figure5:run",
        summary="unattributed histograms: error of S~, S~r and S-bar on look-alikes and degree sequences",
        paper=f"{HAY2010}; Figure 5, Theorem 2",
    ),
    Experiment(
        name="hay2010/figure6",
        target="coco_experiments.hay2010.figure6:run",
        summary="universal histograms: error of range queries by L~, H~ and H-bar",
        paper=f"{HAY2010}; Figure 6, Theorem 4 (iii)",
    ),
    Experiment(
        name="hay2010/figure7",
        target="coco_experiments.hay2010.figure7:run",
        summary="where in an unattributed histogram the error lies",
        paper=f"{HAY2010}; Figure 7, Appendix C",
    ),
    Experiment(
        name="hay2010/theorem4",
        target="coco_experiments.hay2010.theorem4:run",
        summary="exact variances of H-bar and H~ over every range; the range that gains most",
        paper=f"{HAY2010}; Theorem 4",
    ),
    Experiment(
        name="hay2010/usefulness",
        target="coco_experiments.hay2010.usefulness:run",
        summary="the largest error over all ranges against the usefulness bound",
        paper=f"{HAY2010}; Appendix E",
    ),
    Experiment(
        name="bench/isotonic_l2",
        target="coco_experiments.bench.isotonic_l2:run",
        summary="isotonic regression in squares against SciPy and scikit-learn",
        kind="bench",
    ),
    Experiment(
        name="bench/isotonic_l1",
        target="coco_experiments.bench.isotonic_l1:run",
        summary="isotonic regression in absolute values against a compiled heap and HiGHS",
        kind="bench",
    ),
    Experiment(
        name="bench/tree",
        target="coco_experiments.bench.tree:run",
        summary="least squares on trees against OpenDP's consistent tree and Clarabel",
        kind="bench",
    ),
    Experiment(
        name="bench/release",
        target="coco_experiments.bench.release:run",
        summary="Taxi on three levels from file to consistent histograms; the import of coco_opt",
        kind="bench",
    ),
)
