"""The experiment table: one row a figure, table or benchmark; add a row here to add one.

The command line finds it through the entry-point group ``coco_opt.experiments``.
"""

from __future__ import annotations

from coco_experiments.experiment import Experiment

KUO2018 = "Kuo, Chiu, Kifer, Hay and Machanavajjhala 2018"

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
        name="bench/release",
        target="coco_experiments.bench.release:run",
        summary="Taxi on three levels from file to consistent histograms; the import of coco_opt",
        kind="bench",
    ),
)
