"""Every public name of coco_opt once, on simulated data: runs as it is, and passes mypy in strict mode."""

from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

import coco_opt as co
from coco_opt.operators import identity, total

# --- values: groups by size, regions, distances ------------------------------------------------------------
assert co.__version__
tree = co.Hierarchy.from_paths([("nation", "north"), ("nation", "south")])
north = co.CountOfCounts.from_runs(sizes=[1, 2, 3], counts=[90, 120, 40])
south = co.CountOfCounts.from_runs(sizes=[1, 2, 5], counts=[30, 50, 6])
truth = [north + south, north, south]
assert co.emd(north, north) == 0

# --- noise: what it costs, its distribution, where it comes from -------------------------------------------
epsilon, rho = co.Epsilon(Fraction(1)), co.Rho(Fraction(1, 2))
assert epsilon.epsilon() == 1
assert co.Geometric(Fraction(2)).variance > 7
assert co.DiscreteGaussian(Fraction(4)).variance < 5
sources: list[co.SeededNoise | co.OpenDPNoise] = [co.SeededNoise(7), co.OpenDPNoise()]  # seeded noise is NOT PRIVATE
assert [source.private for source in sources] == [False, True]

# --- groups: measured once, estimated in any way -----------------------------------------------------------
noisy: co.Measurement = co.measure_hierarchy(
    truth,
    tree,
    [histogram.groups for histogram in truth],
    queries=["cumulative"] * 2,
    costs=epsilon.shared(["1/2", "1/2"]),
    max_size=8,
    neighbours="add_remove",
    source=co.SeededNoise(7),
)
method = co.GroupsMethod(consistency="joint")
choices = co.SolverChoices({"isotonic_l1": "highs"}, fallback=True)
result: co.GroupsResult = co.estimate_groups(noisy, method, choices)
assert result["nation"].equals(result["nation/north"] + result["nation/south"])

# --- problems and solvers: each answer is certified --------------------------------------------------------
problem = co.IsotonicL1([3, 1, 4, 1, 5], lower=0, upper=5)
solution = co.solve(problem, co.make_solver("highs"))
assert isinstance(solution, co.Solution)
assert solution.status is co.Status.OPTIMAL
assert solution.gap is not None
assert solution.gap <= 1e-6
assert any(backend.name == "highs" for backend in co.backends())
fits = co.solve_many([co.IsotonicL2([2.0, 1.0], lower=0, upper=2), co.IsotonicL2([1.0, 2.0], lower=0, upper=2)])
assert [list(fit.value) for fit in fits] == [[1.5, 1.5], [1.0, 2.0]]
assert isinstance(problem, co.Problem)
assert list(co.solve(co.SimplexProjection([3.0, 1.0], 2)).value) == [2.0, 0.0]
assert list(co.solve(co.ControlledRounding([0.6, 1.4], 2)).value) == [1, 1]
assert co.solve(co.GroupMatching([1, 2], [1, 1], [1, 3], [1, 1], [0, 2])).objective == 1
family = co.Tree([-1, 0, 0])
assert list(co.solve(co.TreeLeastSquares(family, [6.0, 2.0, 1.0])).value) == [5.0, 3.0, 2.0]
rows = [[1, 3], [0, 2], [0, 1]]
assert co.solve(co.JointL1(family, rows, [4, 2, 2])).objective <= 1
assert co.solve(co.JointL2(family, rows, [4, 2, 2])).objective <= 1
draws = co.Marginals.from_samples([[[1, 4]], [[2, 4]], [[2, 4]]])
assert co.solve(co.ExpectedDistance([-1], [4], draws)).value.tolist() == [[2, 4]]
assert co.solve(co.IntegerTreeL1(family, [[6], [2], [1]])).objective == 3
assert co.solve(co.IntegerTreeL2(family, [[6], [2], [1]])).objective == 3
known = co.LinearRows(total(2), [[4.0], [3.0]], [[4.0], [3.0]])
noisy_cells = co.SplitTerm(identity(2), [[3.0, 2.0], [1.0, 1.0]], 1.0)
tables_of_children = co.solve(co.TopdownSplit([noisy_cells], constraints=known)).value
assert tables_of_children.round(6).tolist() == [[2.5, 1.5], [1.5, 1.5]]
integer_tables = co.solve(co.TableRounding(tables_of_children, constraints=known)).value
assert integer_tables.sum(axis=1).tolist() == [4, 3]

# --- tables of persons -------------------------------------------------------------------------------------
schema = co.Schema({"sex": ["female", "male"], "age": ["child", "adult", "old"]})
people = co.TableCounts.from_counts(tree, schema, [[90, 210, 60, 95, 190, 40], [30, 80, 20, 25, 85, 15]])
strategy = co.Strategy.uniform(co.parse_queries(["total", "sex * age"], schema))
answers = co.measure_tables(people, co.TablePlan.product(strategy, rho, levels=2), source=co.SeededNoise(7))
tables = co.estimate_tables(answers, co.TopdownMethod("classic"))
assert (tables["nation"] == tables["nation/north"] + tables["nation/south"]).all()

# --- ordered histograms ------------------------------------------------------------------------------------
week = co.UniversalHistogram.fit(co.measure_ranges([3] * 7, epsilon, source=co.SeededNoise(3)), "consistent")
weekend, standard_error = week.range(5, 7)
assert abs(weekend - 6) < 6 * standard_error
assert len(co.measure_sorted([5, 2, 9], epsilon, source=co.SeededNoise(3)).answers[0].values) == 3

# --- whole releases: from frames to a folder that is verified ----------------------------------------------
regions = pd.DataFrame({"region_id": ["n", "s"], "nation": "all", "part": ["north", "south"]})
with TemporaryDirectory() as name:
    folder = Path(name)
    privacy = {"epsilon": "1", "noise": "seeded", "seed": 7}
    config: co.Config = co.configure(
        folder=folder,
        data={
            "entities": pd.DataFrame({"entity_id": range(40), "group_id": [k % 17 for k in range(40)]}),
            "groups": pd.DataFrame({"group_id": range(20), "region_id": ["n", "s"] * 10}),
            "hierarchy": regions,
        },
        privacy=privacy,
        groups={"max_size": 10},
    )
    assert co.check(config).plan.measurement_plan.cost == epsilon
    assert co.forecast(config).cost == epsilon
    measured = co.measure(config)
    estimated = co.estimate(measured)
    groups = estimated.save(folder / "groups", page=co.render_report)
    assert all(check.passed for check in co.verify_release(groups))
    assert co.read_release(groups).to_pandas().equals(co.read_groups_release(groups).to_pandas())
    assert not co.differences(groups, estimated)["difference"].any()
    main, *looks = measured.measurement.every  # a look, from which the queries were chosen, is a second one
    co.write_measurement(folder / "noisy", main, private=False)
    again, _ = co.read_measurement(folder / "noisy")
    assert co.estimate([again, *looks], config).to_pandas().equals(estimated.to_pandas())
    assert co.compare(config, size=50).rows

    persons = pd.DataFrame({"region_id": ["n", "s", "s"] * 9, "sex": ["f", "m", "m"] * 9})
    census = co.configure(
        folder=folder,
        data={"records": persons, "hierarchy": regions},
        privacy=privacy,
        topdown={"attributes": {"sex": ["f", "m"]}, "workload": ["total", "sex"]},
    )
    outcome = co.release(census, folder / "persons")
    assert set(co.read_tables_release(outcome.folder).to_pandas()["sex"]) <= {"f", "m"}

    theirs = pd.DataFrame([{"geocode": "all", "query_name": "sex_dpq", "value": [17, 11], "variance": 8.0}])
    theirs.to_parquet(folder / "theirs.parquet")
    assert co.read_noisy_measurements(folder / "theirs.parquet", census).status == "as its publisher states"

    (folder / "visits.csv").write_text("value\n3\n1\n4\n1\n5\n")
    text = '[data]\nvalues = "visits.csv"\n[privacy]\nepsilon = "1"\nnoise = "seeded"\nseed = 7\n[ranges]\ncells = 8\n'
    (folder / "visits.toml").write_text(text)
    visits = co.load_config(folder / "visits.toml")
    assert co.parse_config(text, folder).as_dict() == visits.as_dict()
    histogram = co.read_ranges_release(co.release(visits, folder / "visits").folder)
    assert histogram.range(0, 8)[1] >= 0
