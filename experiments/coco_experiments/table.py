"""The experiment table: a row a figure, table or benchmark, and what its figure shows; add a row here to add one.

The command line finds it through the entry-point group ``coco_opt.experiments``.
"""

from __future__ import annotations

from coco_experiments.experiment import Experiment

PAPERS = {
    "kuo2018": "Kuo, Chiu, Kifer, Hay and Machanavajjhala 2018",
    "flaxman2019": "Flaxman 2019",
    "hay2010": "Hay, Rastogi, Miklau and Suciu 2010",
    "kifer2019": "Kifer 2019 slides",
    "topdown": "Kifer 2019 slides; Abowd et al. 2022",
    "beyond": "beyond the papers",
    "peers": "other systems",
}
"""What the experiments of a folder repeat; the bench repeats nothing."""

ROWS: dict[str, tuple[str, str]] = {
    "kuo2018/table3": (
        "poster, Table 3",
        "one region: error of the naive, rank and cumulative estimators on four data sets",
    ),
    "kuo2018/table4": (
        "poster, Table 4",
        "three levels: bottom-up against top-down matching, independent noise and one seed for all",
    ),
    "kuo2018/figure1": ("Figure 1", "where in the sizes the errors of the rank and cumulative estimates lie"),
    "kuo2018/figure4": ("Figure 4", "merging by variance against plain averages, two levels"),
    "kuo2018/figure5": ("Figure 5", "every combination of estimators on two levels compared with the omniscient line"),
    "kuo2018/figure6": ("Figure 6", "three levels without and with consistency"),
    "kuo2018/datasets": ("section 6.2, beyond it", "every method on every data set, level and epsilon, and the best"),
    "kuo2018/selection": (
        "section 6.2, Algorithm selection",
        "choosing a method by its noisy error: what is chosen and its price",
    ),
    "kuo2018/mean_consistency": ("section 5", "mean-consistency shown failing: negative, fractional, wrong totals"),
    "kuo2018/private_counts": (
        "footnote 4",
        "private numbers of groups compared with public ones, by the share of the budget that measures them",
    ),
    "kuo2018/l1_l2": (
        "beyond it",
        "absolute values against squares on the same noise: error, time, objective, integer values",
    ),
    "beyond/auto": ("", "what is chosen automatically against plans chosen manually and the usual methods"),
    "beyond/auto_tables": (
        "",
        "tables and ranges: what is chosen automatically against plans written by hand and every fan-out",
    ),
    "beyond/which_method": (
        "",
        "which method errs least, from sparse to dense regions, shallow to deep, at two epsilons",
    ),
    "beyond/ablation": ("", "better queries alone, the learned prior alone, both and neither"),
    "beyond/budgets": ("", "the posterior, joint estimation, Algorithm 1 and bottom-up by total epsilon"),
    "beyond/frontier": ("", "error at the root against error at the leaves by the split of one budget"),
    "beyond/west_coast": ("", "the posterior against all methods on simulated housing and race on the West Coast"),
    "beyond/posterior": (
        "",
        "buckets and the posterior against joint estimation, Algorithm 1 and bottom-up; the planner's buckets",
    ),
    "beyond/coverage": (
        "",
        "how often the posterior's intervals hold the true counts, by level and class of sizes, twenty seeds",
    ),
    "beyond/ranks": ("", "rank histograms of the three posteriors, and what intervals hold by released value"),
    "beyond/tables_posterior": (
        "",
        "the posterior of tables of persons on Hawaii's blocks: errors, bias of cells and coverage, two splits",
    ),
    "beyond/ranges_posterior": (
        "",
        "the posterior of ranges against other estimators: errors and coverage by number of cells",
    ),
    "beyond/floor": ("", "the groups' posterior against the best possible, which knows the distribution of sizes"),
    "beyond/floor_tree": ("", "the same in a tree of three levels whose regions share one distribution of sizes"),
    "beyond/wrong_priors": ("", "the posterior against joint estimation where a smooth prior is wrong"),
    "peers/isotonic": (
        "",
        "isotonic regression by coco-opt, SciPy, scikit-learn, HiGHS, Clarabel and a network simplex",
    ),
    "peers/ranges": ("", "ordered histograms by coco-opt and by OpenDP's consistent tree: all ranges, all prefixes"),
    "peers/strategies": (
        "",
        "expected errors of ranges over the least of any strategy: coco-opt's trees, OpenDP's and cells alone",
    ),
    "peers/marginals": ("", "tables of persons from noisy marginals by coco-opt, private-PGM and CVXPY"),
    "peers/planner": ("", "planned strategies for marginals against the optimum of ResidualPlanner, by formula"),
    "peers/reconciliation": (
        "",
        "forecasts of a hierarchy made to add up by coco-opt, hierarchicalforecast and Clarabel",
    ),
    "flaxman2019/figure1": (
        "Figure 1",
        "residuals and empirical privacy loss of three counting mechanisms, his curves next to ours",
    ),
    "flaxman2019/plateaus": ("Figure 1", "what of Figure 1 does not depend on the seed, over 15 databases"),
    "flaxman2019/direct": ("section 2.3", "the direct estimate: 500 runs on each of two neighbours"),
    "flaxman2019/sweep": ("section 2.3", "the less-obvious estimate over N, J, mu, epsilon, bandwidth and percentile"),
    "flaxman2019/releases": (
        "section 4, asked for there",
        "the privacy lost by whole releases of Taxi: Algorithm 1 and bottom-up",
    ),
    "hay2010/figure3": ("Figure 3, Example 5", "isotonic regression of one noisy sequence, drawn"),
    "hay2010/figure5": (
        "Figure 5, Theorem 2",
        "unattributed histograms: error of S~, S~r and S-bar on simulated data and degree sequences",
    ),
    "hay2010/figure6": (
        "Figure 6, Theorem 4 (iii)",
        "universal histograms: error of range queries by L~, H~ and H-bar",
    ),
    "hay2010/figure7": ("Figure 7, Appendix C", "where in an unattributed histogram the error lies"),
    "hay2010/theorem4": ("Theorem 4", "exact variances of H-bar and H~ over every range; the range that gains most"),
    "hay2010/usefulness": ("Appendix E", "the largest error over all ranges against the usefulness bound"),
    "topdown/hawaii": (
        "",
        "blocks of Hawaii on five levels: full, classic, bottom-up and linear estimates at equal budget",
    ),
    "topdown/backends": ("", "every step of the methods by every backend: certified gap, seconds"),
    "kifer2019/dorm": (
        "Invariants, An Example",
        "the college town's implied constraints by elimination, flows and lifting, published next to ours",
    ),
    "kifer2019/implied": (
        "Implied constraints",
        "implied constraints by every method against enumeration on 500 random small instances",
    ),
    "kifer2019/facilities": (
        "TopDown with invariants, Example",
        "3 to 28 facility types by 10 to 1,000 blocks: bounds, cuts and the minimal schema",
    ),
    "kifer2019/households": ("Invariants", "householders >= spouses + partners in 300 blocks, declared and not"),
    "kifer2019/rounding": (
        "beyond it",
        "totals of five identical children and of Hawaii's counties next to the linear estimate's",
    ),
    "kifer2019/zcdp": (
        "zCDP/RDP vs. Pure DP",
        "variances of Laplace and Gaussian noise at six levels, published next to ours",
    ),
    "kifer2019/noise": (
        "zCDP/RDP, asked for there",
        "Laplace against Gaussian through the whole pipeline, with and without invariants",
    ),
    "kifer2019/integrality": (
        "TopDown with invariants",
        "rounding with totally unimodular rows and without: integer vertices, distance, time",
    ),
    "kifer2019/redistricting": (
        "Abowd et al. 2022",
        "an acceptance test like the 2020 redistricting data on Hawaii, from files to a verified release",
    ),
    "kifer2019/stages": (
        "Incremental Schema Extension",
        "two and three stages that agree exactly against one: error and bias at equal budget, on Hawaii",
    ),
    "bench/isotonic_l2": ("", "isotonic regression in squares against SciPy and scikit-learn"),
    "bench/isotonic_l1": ("", "isotonic regression in absolute values against a compiled heap and HiGHS"),
    "bench/plan": (
        "",
        "what plans take, and what they predict compared with releases, in the cores' seconds and in memory",
    ),
    "bench/tree": ("", "least squares on trees against OpenDP's consistent tree and Clarabel"),
    "bench/split": ("", "top-down splits, with certificate, against PIQP and Clarabel; thousands of tiny ones"),
    "bench/table_rounding": (
        "",
        "integer tables next to fractional ones, with certificate, against HiGHS; thousands of tiny ones",
    ),
    "bench/joint": ("", "joint estimation on Taxi and Hawaii's blocks, against HiGHS and PIQP on small cases"),
    "bench/posterior": ("", "the posterior with integer tables and intervals on Taxi and Hawaii's blocks"),
    "bench/matching": ("", "matching and merging on 3,025 regions, and as runs double"),
    "bench/topdown": ("", "tables of five levels: Hawaii with 7 and 2,016 cells, and twice the blocks"),
    "bench/country": (
        "",
        "a simulated country of --states N, 124,000 blocks x 2,016 cells each, to a verified release",
    ),
    "bench/ingestion": (
        "",
        "20 million entities from Parquet with all checks, integer ids and texts, against DuckDB's group-by",
    ),
    "bench/ingestion_large": (
        "",
        "100 million entities in one file and in 64: fifteen minutes, 15 GB of disk, so by its whole name only",
    ),
    "bench/records": (
        "",
        "ten million records in 100,000 regions from Parquet with all checks, against DuckDB's group-by",
    ),
    "bench/executors": (
        "",
        "estimation by threads, processes and Dask against one thread: a simulated nation, Hawaii's tables",
    ),
    "bench/nation": ("", "a private release of 3,109 counties, K = 100,000: seconds, memory, the sealed file"),
    "bench/joint_nation": (
        "",
        "joint estimation of 3,161 regions, K = 10,000: many minutes and GB, so by its whole name only",
    ),
    "bench/nation_posterior": (
        "",
        "the posterior of 3,161 regions, K = 10,000: many minutes, so by its whole name only",
    ),
    "bench/first_call": ("", "the demo on an empty cache of kernels, and once they are there"),
    "bench/release": ("", "Taxi on three levels from file to consistent histograms; the import of coco_opt"),
}
"""By name: where in the paper, "" for all of it, and what the experiment does."""

SHOWS = {
    "kuo2018/table3": "Error of the cumulative (Hc), rank (Hg) and naive estimates of one region, measured next "
    "to the published table: the naive ones are orders of magnitude worse.",
    "kuo2018/table4": "Three levels by bottom-up and by matching, with independent noise and with one seed for "
    "all levels, as the published code had it.",
    "kuo2018/figure1": "Where the error lies: rank estimates err at small sizes, cumulative ones at large sizes.",
    "kuo2018/figure4": "Merging parent and children by their variances (full) against plain averages (hollow), "
    "two levels.",
    "kuo2018/figure5": "Every combination of rank and cumulative estimates at two levels, next to the "
    "omniscient line of the paper.",
    "kuo2018/figure6": "Three levels without and with consistency, by epsilon, next to the omniscient line of "
    "the paper.",
    "kuo2018/datasets": "The methods on every data set and level, by epsilon: no consistency, matching, joint, "
    "bottom-up.",
    "kuo2018/selection": "What choosing a method by its noisy error costs, next to the methods it chooses from.",
    "kuo2018/mean_consistency": "Mean-consistency of noisy histograms is two orders worse than matching; of "
    "integer estimates it is close, but its tables are neither integer nor nonnegative.",
    "kuo2018/private_counts": "What confidential numbers of groups cost, by the share of the budget that "
    "measures them.",
    "kuo2018/l1_l2": "Error of squares over that of absolute values on the same noise: below one squares win, "
    "which they mostly do with discrete Gaussian noise.",
    "beyond/which_method": "Error of each method over that of Algorithm 1, in the geometric mean over levels, "
    "by groups a leaf, on simulated hierarchies of four parts a region.",
    "beyond/ablation": "What buckets and the learned prior take off the error of each level, alone and together.",
    "beyond/budgets": "Error over that of Algorithm 1 at the same total epsilon, level by level.",
    "beyond/frontier": "What the split of one budget trades: error at the root against error at the leaves, a "
    "mark a split.",
    "beyond/west_coast": "Housing simulated from the 2010 census, race by blocks simulated; three levels, every "
    "method.",
    "flaxman2019/figure1": "Errors of three mechanisms and the privacy loss read off them: the whole budget of "
    "GDPC, half of ADPC's, a quarter of RDPC's.",
    "flaxman2019/plateaus": "What of Flaxman's Figure 1 does not depend on the seed, over 15 databases.",
    "flaxman2019/direct": "Log-ratios of frequencies on two neighbouring databases: 500 runs a side tell little.",
    "flaxman2019/sweep": "The estimate as one factor moves: its plateau is steady, its maximum follows the tails.",
    "flaxman2019/releases": "The privacy lost by whole releases of groups, by level, with the budget claimed.",
    "hay2010/figure3": "One noisy sequence and its isotonic regression: the runs of equal counts come back.",
    "hay2010/figure5": "Unattributed histograms by epsilon: S-bar is below the noisy and the sorted answers by "
    "orders of magnitude where counts repeat.",
    "hay2010/figure6": "Universal histograms by the size of a range: unit counts win on short ranges, the "
    "consistent tree on long ones.",
    "hay2010/figure7": "Where the error lies: at the ends of runs of equal counts; in their middle it vanishes.",
    "hay2010/theorem4": "How much consistency gains on the range that gains most, exactly computed, above the "
    "theorem's bound at every height.",
    "hay2010/usefulness": "The largest error over all ranges stays below the bound of the usefulness theorem.",
}
"""What a figure shows, in a sentence, of those that draw one."""

DECLARED = {
    "flaxman2019/plateaus": "sweep",
    "kifer2019/households": "facilities",
    "bench/isotonic_l1": "isotonic",
    "bench/isotonic_l2": "isotonic",
    "bench/posterior": "joint",
    "bench/nation_posterior": "nation",
    "bench/joint_nation": "nation",
    "bench/first_call": "release",
    "beyond/floor_tree": "floor",
    "beyond/tables_posterior": "topdown.hawaii",
    "hay2010/figure3": "unattributed",
    "hay2010/figure7": "unattributed",
    "kifer2019/zcdp": "noise",
    "kifer2019/integrality": "rounding",
    "peers/strategies": "ranges",
    "bench/ingestion_large": "ingestion",
    "kuo2018/figure4": "figures",
    "kuo2018/figure5": "figures",
    "kuo2018/figure6": "figures",
    "kuo2018/datasets": "figures",
    "beyond/ablation": "studies",
    "beyond/budgets": "studies",
    "beyond/frontier": "studies",
    "beyond/west_coast": "studies",
    "beyond/posterior": "studies",
}
"""The module of an experiment, where it has not its name."""

HEAVY = ("bench/country", "bench/ingestion_large", "bench/joint_nation", "bench/nation_posterior")
"""What runs only by a name that means no other."""


_BLOCKS, _TAXI, _HOUSING = "census2010_blocks", "kuo2018", "census2010_h13"
DATA: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("kuo2018/table3", "kuo2018/table4", "kuo2018/figure1", "kuo2018/figure6"), (_TAXI, _HOUSING)),
    **dict.fromkeys(("kuo2018/figure4", "kuo2018/figure5"), (_TAXI, _HOUSING)),
    **dict.fromkeys(("kuo2018/datasets", "kuo2018/l1_l2", "beyond/auto"), (_TAXI, _HOUSING, _BLOCKS)),
    **dict.fromkeys(("kuo2018/mean_consistency", "kuo2018/private_counts"), (_TAXI, _BLOCKS)),
    **dict.fromkeys(("beyond/ablation", "beyond/budgets", "beyond/frontier", "beyond/posterior"), (_TAXI, _BLOCKS)),
    **dict.fromkeys(
        ("beyond/coverage", "beyond/ranks", "topdown/backends", "bench/joint", "bench/posterior"), (_TAXI, _BLOCKS)
    ),
    "kuo2018/selection": (_TAXI, _HOUSING, _BLOCKS),
    "beyond/west_coast": (_TAXI, _HOUSING),
    **dict.fromkeys(("beyond/auto_tables", "beyond/tables_posterior", "topdown/hawaii", "kifer2019/noise"), (_BLOCKS,)),
    **dict.fromkeys(("kifer2019/rounding", "kifer2019/redistricting", "kifer2019/stages"), (_BLOCKS,)),
    **dict.fromkeys(("bench/plan", "bench/topdown", "bench/executors"), (_BLOCKS,)),
    "flaxman2019/figure1": ("flaxman_fig1",),
    **dict.fromkeys(("flaxman2019/releases", "bench/release"), (_TAXI,)),
    "hay2010/figure5": ("snap_degrees",),
    **dict.fromkeys(("bench/nation", "bench/nation_posterior", "bench/joint_nation"), (_HOUSING,)),
}
"""The folders of real data that an experiment reads; the others need none. What may be simulated is not listed."""

MINUTES: dict[str, float] = {
    "bench/country": 22.0,
    "beyond/ablation": 9.8,
    "beyond/auto": 240.0,
    "beyond/budgets": 15.0,
    "beyond/frontier": 8.6,
    "flaxman2019/direct": 0.034,
    "flaxman2019/figure1": 0.013,
    "flaxman2019/plateaus": 0.018,
    "flaxman2019/releases": 0.25,
    "flaxman2019/sweep": 0.13,
    "hay2010/figure3": 0.01,
    "hay2010/figure5": 0.1,
    "hay2010/figure6": 0.65,
    "hay2010/figure7": 0.019,
    "hay2010/theorem4": 0.04,
    "hay2010/usefulness": 0.072,
    "kifer2019/dorm": 0.03,
    "kifer2019/households": 0.05,
    "kifer2019/facilities": 0.13,
    "kifer2019/implied": 1.8,
    "kifer2019/integrality": 0.4,
    "kifer2019/noise": 0.22,
    "kifer2019/redistricting": 0.58,
    "kifer2019/stages": 0.52,
    "kifer2019/zcdp": 0.02,
    "kuo2018/datasets": 2.2,
    "kuo2018/figure1": 0.026,
    "kuo2018/figure4": 0.41,
    "kuo2018/figure5": 0.36,
    "kuo2018/figure6": 0.68,
    "kuo2018/l1_l2": 1.3,
    "kuo2018/mean_consistency": 0.19,
    "kuo2018/private_counts": 3.4,
    "kuo2018/selection": 1.1,
    "kuo2018/table3": 0.23,
    "kuo2018/table4": 1.3,
}
"""Minutes of processor time of one complete run, as measured on two cores; with --small all take seconds."""


def _row(name: str, where: str, summary: str) -> Experiment:
    folder = name.partition("/")[0]
    paper = "; ".join(part for part in (PAPERS.get(folder, ""), where) if part)
    declared, country = DECLARED.get(name, ""), name == "bench/country"
    return Experiment(
        name,
        summary,
        paper,
        SHOWS.get(name, ""),
        declared,
        name in HEAVY,
        takes_states=country,
        data=DATA.get(name, ()),
        minutes=MINUTES.get(name),
    )


EXPERIMENTS: tuple[Experiment, ...] = tuple(_row(name, *row) for name, row in ROWS.items())
