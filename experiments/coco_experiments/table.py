"""The experiment table: one row a figure, table or benchmark; add a row here to add one.

The command line finds it through the entry-point group ``coco_opt.experiments``.
"""

from __future__ import annotations

from coco_experiments.experiment import Experiment

KUO2018 = "Kuo, Chiu, Kifer, Hay and Machanavajjhala 2018"
FLAXMAN2019 = "Flaxman 2019"
HAY2010 = "Hay, Rastogi, Miklau and Suciu 2010"
KIFER2019 = "Kifer 2019 slides"
BEYOND = "beyond the papers"
PEERS = "other systems"
TOPDOWN = "Kifer 2019 slides; Abowd et al. 2022"

EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment(
        name="kuo2018/table3",
        summary="one region: error of the naive, rank and cumulative estimators on four data sets",
        paper=f"{KUO2018}; poster, Table 3",
        shows="Error of the cumulative (Hc), rank (Hg) and naive estimates of one region, measured next to the "
        "published table: the naive ones are orders of magnitude worse.",
    ),
    Experiment(
        name="kuo2018/table4",
        summary="three levels: bottom-up against top-down matching, independent noise and one seed for all",
        paper=f"{KUO2018}; poster, Table 4",
        shows="Three levels by bottom-up and by matching, with independent noise and with one seed for all levels, "
        "as the published code had it.",
    ),
    Experiment(
        name="kuo2018/figure1",
        summary="where in the sizes the errors of the rank and cumulative estimates lie",
        paper=f"{KUO2018}; Figure 1",
        shows="Where the error lies: rank estimates err at small sizes, cumulative ones at large sizes.",
    ),
    Experiment(
        name="kuo2018/figure4",
        summary="merging by variance against plain averages, two levels",
        declared="figures",
        paper=f"{KUO2018}; Figure 4",
        shows="Merging parent and children by their variances (full) against plain averages (hollow), two levels.",
    ),
    Experiment(
        name="kuo2018/figure5",
        summary="every combination of estimators on two levels compared with the omniscient line",
        declared="figures",
        paper=f"{KUO2018}; Figure 5",
        shows="Every combination of rank and cumulative estimates at two levels, next to the omniscient line of the "
        "paper.",
    ),
    Experiment(
        name="kuo2018/figure6",
        summary="three levels without and with consistency",
        declared="figures",
        paper=f"{KUO2018}; Figure 6",
        shows="Three levels without and with consistency, by epsilon, next to the omniscient line of the paper.",
    ),
    Experiment(
        name="kuo2018/naive",
        summary="the naive estimate clipped and as stated, next to the published errors",
        paper=f"{KUO2018}; section 6.2.1",
        shows="The naive estimate as the paper states its problem, and clipped at zero without the sum, next to the "
        "published errors.",
    ),
    Experiment(
        name="kuo2018/datasets",
        summary="every method on every data set, level and epsilon, and the best",
        declared="figures",
        paper=f"{KUO2018}; section 6.2, beyond it",
        shows="The methods on every data set and level, by epsilon: no consistency, matching, joint, bottom-up.",
    ),
    Experiment(
        name="kuo2018/selection",
        summary="choosing a method by its noisy error: what is chosen and its price",
        paper=f"{KUO2018}; section 6.2, Algorithm selection",
        shows="What choosing a method by its noisy error costs, next to the methods it chooses from.",
    ),
    Experiment(
        name="kuo2018/mean_consistency",
        summary="mean-consistency shown failing: negative, fractional, wrong totals",
        paper=f"{KUO2018}; section 5",
        shows="Mean-consistency of noisy histograms is two orders worse than matching; of integer estimates it is "
        "close, but its tables are neither integer nor nonnegative.",
    ),
    Experiment(
        name="kuo2018/variances",
        summary="Algorithm 1 with the paper's variances, those of a parametric bootstrap, and the true errors",
        paper=f"{KUO2018}; section 5.1, beyond it",
        shows="Algorithm 1 with the paper's variances, those of a bootstrap, the true errors, and plain averages.",
    ),
    Experiment(
        name="kuo2018/joint",
        summary="joint estimation of all regions against Algorithm 1 and bottom-up",
        paper=f"{KUO2018}; beyond it",
        shows="All regions in one convex program against matching and bottom-up, by level.",
    ),
    Experiment(
        name="kuo2018/private_counts",
        summary="private numbers of groups compared with public ones, by the share of the budget that measures them",
        paper=f"{KUO2018}; footnote 4",
        shows="What confidential numbers of groups cost, by the share of the budget that measures them.",
    ),
    Experiment(
        name="kuo2018/l1_l2",
        summary="absolute values against squares on the same noise: error, time, objective, integer values",
        paper=f"{KUO2018}; beyond it",
        shows="Error of squares over that of absolute values on the same noise: below one squares win, which they "
        "mostly do with discrete Gaussian noise.",
    ),
    Experiment(
        name="beyond/auto",
        summary="what is chosen automatically against plans chosen manually and the usual methods",
        paper=BEYOND,
    ),
    Experiment(
        name="beyond/auto_tables",
        summary="tables and ranges: what is chosen automatically against plans written by hand and every fan-out",
        paper=BEYOND,
    ),
    Experiment(
        name="beyond/which_method",
        summary="which method errs least, from sparse to dense regions, shallow to deep, at two epsilons",
        declared="which_method",
        paper=BEYOND,
        shows="Error of each method over that of Algorithm 1, in the geometric mean over levels, by groups a leaf, on "
        "simulated hierarchies of four parts a region.",
    ),
    Experiment(
        name="beyond/ablation",
        summary="better queries alone, the learned prior alone, both and neither",
        declared="studies",
        paper=BEYOND,
        shows="What buckets and the learned prior take off the error of each level, alone and together.",
    ),
    Experiment(
        name="beyond/budgets",
        summary="the posterior, joint estimation, Algorithm 1 and bottom-up by total epsilon",
        declared="studies",
        paper=BEYOND,
        shows="Error over that of Algorithm 1 at the same total epsilon, level by level.",
    ),
    Experiment(
        name="beyond/frontier",
        summary="error at the root against error at the leaves by the split of one budget",
        declared="studies",
        paper=BEYOND,
        shows="What the split of one budget trades: error at the root against error at the leaves, a mark a split.",
    ),
    Experiment(
        name="beyond/west_coast",
        summary="the posterior against all methods on simulated housing and race on the West Coast",
        declared="studies",
        paper=BEYOND,
        shows="Housing simulated from the 2010 census, race by blocks simulated; three levels, every method.",
    ),
    Experiment(
        name="beyond/posterior",
        summary="buckets and the posterior against joint estimation, Algorithm 1 and bottom-up; the planner's buckets",
        declared="studies",
        paper=BEYOND,
    ),
    Experiment(
        name="beyond/coverage",
        summary="how often the posterior's intervals hold the true counts, by level and class of sizes, twenty seeds",
        paper=BEYOND,
    ),
    Experiment(
        name="beyond/tables_posterior",
        summary="the posterior of tables of persons on Hawaii's blocks: errors, bias of cells and coverage, two splits",
        paper=BEYOND,
    ),
    Experiment(
        name="beyond/ranges_posterior",
        summary="the posterior of ranges against other estimators: errors and coverage by number of cells",
        paper=BEYOND,
    ),
    Experiment(
        name="beyond/floor",
        summary="the groups' posterior against the best possible, which knows the distribution of sizes",
        paper=BEYOND,
    ),
    Experiment(
        name="beyond/floor_tree",
        summary="the same in a tree of three levels whose regions share one distribution of sizes",
        paper=BEYOND,
    ),
    Experiment(
        name="beyond/wrong_priors",
        summary="the posterior against joint estimation where a smooth prior is wrong",
        paper=BEYOND,
    ),
    Experiment(
        name="peers/isotonic",
        summary="isotonic regression by coco-opt, SciPy, scikit-learn, HiGHS, Clarabel and a network simplex",
        paper=PEERS,
    ),
    Experiment(
        name="peers/ranges",
        summary="ordered histograms by coco-opt and by OpenDP's consistent tree: all ranges, all prefixes",
        paper=PEERS,
    ),
    Experiment(
        name="peers/strategies",
        summary="expected errors of ranges over the least of any strategy: coco-opt's trees, OpenDP's and cells alone",
        paper=PEERS,
    ),
    Experiment(
        name="peers/marginals",
        summary="tables of persons from noisy marginals by coco-opt, private-PGM and CVXPY",
        paper=PEERS,
    ),
    Experiment(
        name="peers/planner",
        summary="planned strategies for marginals against the optimum of ResidualPlanner, by formula",
        paper=PEERS,
    ),
    Experiment(
        name="peers/reconciliation",
        summary="forecasts of a hierarchy made to add up by coco-opt, hierarchicalforecast and Clarabel",
        paper=PEERS,
    ),
    Experiment(
        name="flaxman2019/figure1",
        summary="residuals and empirical privacy loss of three counting mechanisms, his curves next to ours",
        paper=f"{FLAXMAN2019}; Figure 1",
        shows="Errors of three mechanisms and the privacy loss read off them: the whole budget of GDPC, half of "
        "ADPC's, a quarter of RDPC's.",
    ),
    Experiment(
        name="flaxman2019/plateaus",
        summary="what of Figure 1 does not depend on the seed, over 15 databases",
        paper=f"{FLAXMAN2019}; Figure 1",
        shows="What of Flaxman's Figure 1 does not depend on the seed, over 15 databases.",
    ),
    Experiment(
        name="flaxman2019/direct",
        summary="the direct estimate: 500 runs on each of two neighbours",
        paper=f"{FLAXMAN2019}; section 2.3",
        shows="Log-ratios of frequencies on two neighbouring databases: 500 runs a side tell little.",
    ),
    Experiment(
        name="flaxman2019/sweep",
        summary="the less-obvious estimate over N, J, mu, epsilon, bandwidth and percentile",
        paper=f"{FLAXMAN2019}; section 2.3",
        shows="The estimate as one factor moves: its plateau is steady, its maximum follows the tails.",
    ),
    Experiment(
        name="flaxman2019/releases",
        summary="the privacy lost by whole releases of Taxi: Algorithm 1 and bottom-up",
        paper=f"{FLAXMAN2019}; section 4, asked for there",
        shows="The privacy lost by whole releases of groups, by level, with the budget claimed.",
    ),
    Experiment(
        name="flaxman2019/bounds",
        summary="sound lower bounds for each mechanism and estimator, and planted faults they catch",
        paper=f"{FLAXMAN2019}; section 4, beyond it",
        shows="Sound lower bounds next to the budgets claimed; the last rows are planted faults, caught above the "
        "claim.",
    ),
    Experiment(
        name="hay2010/figure3",
        summary="isotonic regression of one noisy sequence, drawn",
        paper=f"{HAY2010}; Figure 3, Example 5",
        shows="One noisy sequence and its isotonic regression: the runs of equal counts come back.",
    ),
    Experiment(
        name="hay2010/figure5",
        summary="unattributed histograms: error of S~, S~r and S-bar on simulated data and degree sequences",
        paper=f"{HAY2010}; Figure 5, Theorem 2",
        shows="Unattributed histograms by epsilon: S-bar is below the noisy and the sorted answers by orders of "
        "magnitude where counts repeat.",
    ),
    Experiment(
        name="hay2010/figure6",
        summary="universal histograms: error of range queries by L~, H~ and H-bar",
        paper=f"{HAY2010}; Figure 6, Theorem 4 (iii)",
        shows="Universal histograms by the size of a range: unit counts win on short ranges, the consistent tree on "
        "long ones.",
    ),
    Experiment(
        name="hay2010/figure7",
        summary="where in an unattributed histogram the error lies",
        paper=f"{HAY2010}; Figure 7, Appendix C",
        shows="Where the error lies: at the ends of runs of equal counts; in their middle it vanishes.",
    ),
    Experiment(
        name="hay2010/theorem4",
        summary="exact variances of H-bar and H~ over every range; the range that gains most",
        paper=f"{HAY2010}; Theorem 4",
        shows="How much consistency gains on the range that gains most, exactly computed, above the theorem's bound "
        "at every height.",
    ),
    Experiment(
        name="hay2010/usefulness",
        summary="the largest error over all ranges against the usefulness bound",
        paper=f"{HAY2010}; Appendix E",
        shows="The largest error over all ranges stays below the bound of the usefulness theorem.",
    ),
    Experiment(
        name="topdown/hawaii",
        summary="blocks of Hawaii on five levels: full, classic, bottom-up and linear estimates at equal budget",
        paper=TOPDOWN,
    ),
    Experiment(
        name="topdown/backends",
        summary="every backend on the same splits: objective, certified gap, seconds",
        paper=TOPDOWN,
    ),
    Experiment(
        name="kifer2019/dorm",
        summary="the college town's implied constraints by elimination, flows and lifting, published next to ours",
        paper=f"{KIFER2019}; Invariants, An Example",
    ),
    Experiment(
        name="kifer2019/implied",
        summary="implied constraints by every method against enumeration on 500 random small instances",
        paper=f"{KIFER2019}; Implied constraints",
    ),
    Experiment(
        name="kifer2019/facilities",
        summary="3 to 28 facility types by 10 to 1,000 blocks: bounds, cuts and the minimal schema",
        paper=f"{KIFER2019}; TopDown with invariants, Example",
    ),
    Experiment(
        name="kifer2019/households",
        summary="householders >= spouses + partners in 300 blocks, declared and not",
        paper=f"{KIFER2019}; Invariants",
    ),
    Experiment(
        name="kifer2019/rounding",
        summary="totals of five identical children and of Hawaii's counties next to the linear estimate's",
        paper=f"{KIFER2019}; beyond it",
    ),
    Experiment(
        name="kifer2019/zcdp",
        summary="variances of Laplace and Gaussian noise at six levels, published next to ours",
        paper=f"{KIFER2019}; zCDP/RDP vs. Pure DP",
    ),
    Experiment(
        name="kifer2019/noise",
        summary="Laplace against Gaussian through the whole pipeline, with and without invariants",
        paper=f"{KIFER2019}; zCDP/RDP, asked for there",
    ),
    Experiment(
        name="kifer2019/integrality",
        summary="rounding with totally unimodular rows and without: integer vertices, distance, time",
        paper=f"{KIFER2019}; TopDown with invariants",
    ),
    Experiment(
        name="kifer2019/redistricting",
        summary="an acceptance test like the 2020 redistricting data on Hawaii, from files to a verified release",
        paper=f"{KIFER2019}; Abowd et al. 2022",
    ),
    Experiment(
        name="kifer2019/stages",
        summary="two and three stages that agree exactly against one: error and bias at equal budget, on Hawaii",
        paper=f"{KIFER2019}; Incremental Schema Extension",
    ),
    Experiment(
        name="bench/isotonic_l2",
        summary="isotonic regression in squares against SciPy and scikit-learn",
    ),
    Experiment(
        name="bench/isotonic_l1",
        summary="isotonic regression in absolute values against a compiled heap and HiGHS",
    ),
    Experiment(
        name="bench/plan",
        summary="what plans take, and what they predict compared with releases, in the cores' seconds and in memory",
    ),
    Experiment(
        name="bench/tree",
        summary="least squares on trees against OpenDP's consistent tree and Clarabel",
    ),
    Experiment(
        name="bench/split",
        summary="top-down splits, with certificate, against PIQP and Clarabel; thousands of tiny ones",
    ),
    Experiment(
        name="bench/units",
        summary="every continuous problem at counts and noise of all sizes, each package beside CVXPY's plain form",
    ),
    Experiment(
        name="bench/table_rounding",
        summary="integer tables next to fractional ones, with certificate, against HiGHS; thousands of tiny ones",
    ),
    Experiment(
        name="bench/joint",
        summary="joint estimation on Taxi and Hawaii's blocks, against HiGHS and PIQP on small cases",
    ),
    Experiment(
        name="bench/posterior",
        summary="the posterior with integer tables and intervals on Taxi and Hawaii's blocks",
    ),
    Experiment(
        name="bench/matching",
        summary="matching and merging on 3,025 regions, and as runs double",
    ),
    Experiment(
        name="bench/topdown",
        summary="tables of five levels: Hawaii with 7 and 2,016 cells, and twice the blocks",
    ),
    Experiment(
        name="bench/tables",
        summary="a simulated state of 20,000 blocks x 210 cells by the command line, by stage: cost of one more block",
    ),
    Experiment(
        name="bench/tables_large",
        summary="the same of 300,000 blocks: minutes and 3 GB of memory, so by its whole name only",
        heavy=True,
    ),
    Experiment(
        name="bench/country",
        summary="a simulated country of --states N, 124,000 blocks x 2,016 cells each, to a verified release",
        heavy=True,
        takes_states=True,
    ),
    Experiment(
        name="bench/constraints",
        summary="Hawaii's blocks x 224 cells with totals and facilities, 28 types x 1,000 blocks, proofs",
    ),
    Experiment(
        name="bench/ingestion",
        summary="20 million entities from Parquet with all checks, integer ids and texts, against DuckDB's group-by",
    ),
    Experiment(
        name="bench/ingestion_large",
        summary="100 million entities in one file and in 64: fifteen minutes, 15 GB of disk, so by its whole name only",
        heavy=True,
    ),
    Experiment(
        name="bench/records",
        summary="ten million records in 100,000 regions from Parquet with all checks, against DuckDB's group-by",
    ),
    Experiment(
        name="bench/rank",
        summary="ranks of 240.9 million groups streamed, and their exact shortcut with its chi-square",
    ),
    Experiment(
        name="bench/executors",
        summary="estimation by threads, processes and Dask against one thread: a simulated nation, Hawaii's tables",
    ),
    Experiment(
        name="bench/scaling",
        summary="seconds of every solver by size, up to a million unknowns, drawn on the page",
    ),
    Experiment(
        name="bench/noisy_measurements",
        summary="A million rows of published noisy measurements read with all checks, compared with bare pyarrow",
    ),
    Experiment(
        name="bench/nation",
        summary="a private release of 3,109 counties, K = 100,000: seconds, memory, the sealed file",
    ),
    Experiment(
        name="bench/joint_nation",
        summary="joint estimation of 3,161 regions, K = 10,000: many minutes and GB, so by its whole name only",
        heavy=True,
    ),
    Experiment(
        name="bench/nation_posterior",
        summary="the posterior of 3,161 regions, K = 10,000: many minutes, so by its whole name only",
        heavy=True,
    ),
    Experiment(
        name="bench/first_call",
        summary="the demo on an empty cache of kernels, and once they are there",
    ),
    Experiment(
        name="bench/release",
        summary="Taxi on three levels from file to consistent histograms; the import of coco_opt",
    ),
)
