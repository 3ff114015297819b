"""Group matching: pair every group of a parent region with one of its children's (Kuo et al. 2018, section 5.2).

Parent and children describe the same groups by estimated sizes, as runs (size, count). A matching is a flow::

    minimise  sum_{i,j} flow_ij |s_i - t_j|   subject to   sum_j flow_ij = a_i,  sum_i flow_ij = b_j,  flow integer

over parent runs i (size s_i, a_i groups) and all children's runs j (size t_j, b_j groups): a transport problem whose
cost is an earth mover's distance (people). On the line its dual is a 1-Lipschitz potential f (Kantorovich), so the
certified gap is ``sum flow_ij (|s_i - t_j| - f(s_i) + f(t_j))``, every term nonnegative and the best f available in
closed form. If several children have groups of equal size, the cost does not decide which child's groups are matched:
Algorithm 2's kernel takes proportional shares, other solvers any.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coco_opt.array_types import Floats, Ints
from coco_opt.errors import ProblemError
from coco_opt.forms import Formulation, LinearProgram, MixedIntegerProgram, in_form
from coco_opt.problem import MAX_INTEGER, IntegerProblem, as_array, integer_answer, plain_answer

MAX_ARCS = 20_000_000
MAX_COST = 2**61  # people; reduced costs, at most twice that, then fit in int64
MAX_UNITS = 4_000
USED = 1e-3  # a rest (groups) above this is flow, below it the solver's inaccuracy
NO_FLOW = 1e-9  # flow (groups) below this is a solver's zero
NEAR_INTEGER = 1e-6  # flow this near to the next integer counts as that integer


@dataclass(frozen=True, eq=False, slots=True)
class Flow:
    """A matching as sparse triples: ``count[k]`` groups of parent run ``parent_run[k]`` are ``child_run[k]``'s.

    Child runs are numbered through all children. Counts are int64, or float64 while a solver's answer is raw.
    """

    parent_run: Ints
    child_run: Ints
    count: NDArray[Any]


@dataclass(frozen=True, eq=False, slots=True)
class Potentials:
    """A dual point: values of a 1-Lipschitz function at the parent's and at the children's runs."""

    parent: NDArray[Any]
    child: NDArray[Any]


@dataclass(frozen=True, eq=False, init=False)
class GroupMatching(IntegerProblem[Flow, Potentials]):
    """Match a parent's runs of groups with its children's at least total difference in size.

    Parameters
    ----------
    parent_sizes, parent_counts : array_like of int, shape (P,)
        The parent's sizes, nondecreasing, and how many groups have each of them, positive.
    child_sizes, child_counts : array_like of int, shape (C,)
        The same for all children, one child after the other.
    child_offsets : array_like of int, shape (children + 1,)
        Child c has the runs ``child_offsets[c]`` to ``child_offsets[c + 1] - 1``.

    Raises
    ------
    ProblemError
        Sizes decrease, a count is not positive, the numbers of groups of parent and children differ, or there are more
        than 2^53 groups.

    Notes
    -----
    Algorithm 2 of Kuo et al. 2018, section 5.2, on runs in place of single groups.

    Examples
    --------
    >>> from coco_opt import GroupMatching, solve
    >>> solve(GroupMatching([1, 2], [1, 1], [1, 3], [1, 1], [0, 2])).objective
    1.0
    """

    parent_sizes: Ints
    parent_counts: Ints
    child_sizes: Ints
    child_counts: Ints
    child_offsets: Ints

    kind: ClassVar[str] = "group_matching"
    forms: ClassVar[tuple[type[LinearProgram], ...]] = (LinearProgram, MixedIntegerProgram)

    def __init__(
        self,
        parent_sizes: ArrayLike,
        parent_counts: ArrayLike,
        child_sizes: ArrayLike,
        child_counts: ArrayLike,
        child_offsets: ArrayLike,
    ) -> None:
        fields = {
            "parent_sizes": parent_sizes,
            "parent_counts": parent_counts,
            "child_sizes": child_sizes,
            "child_counts": child_counts,
            "child_offsets": child_offsets,
        }
        for name, values in fields.items():
            object.__setattr__(self, name, _integers(values, name))
        self._check()

    def _check(self) -> None:
        offsets = self.child_offsets
        ends_right = offsets.size >= 1 and offsets[0] == 0 and offsets[-1] == self.child_sizes.size
        if not ends_right or (np.diff(offsets) < 0).any():
            raise ProblemError("child_offsets must rise from 0 to the number of child runs")
        for sizes, counts, whose in (
            (self.parent_sizes, self.parent_counts, "parent"),
            (self.child_sizes, self.child_counts, "child"),
        ):
            if sizes.size != counts.size:
                raise ProblemError(f"{whose}_sizes and {whose}_counts must have equal length")
            if (counts <= 0).any():
                raise ProblemError(f"{whose}_counts must be positive")
        falls = np.diff(self.child_sizes) < 0
        starts = offsets[(offsets > 0) & (offsets < self.child_sizes.size)]
        falls[starts - 1] = False
        if (np.diff(self.parent_sizes) < 0).any() or falls.any():
            raise ProblemError("sizes must be nondecreasing within the parent and within each child")
        groups = sum(self.parent_counts.tolist())
        if groups != sum(self.child_counts.tolist()):
            raise ProblemError("the parent and its children must have equally many groups")
        if groups > MAX_INTEGER:
            raise ProblemError("the number of groups must not exceed 2^53")
        runs = (self.parent_sizes, self.child_sizes)
        largest, smallest = max(int(r.max(initial=0)) for r in runs), min(int(r.min(initial=0)) for r in runs)
        if (largest - smallest) * groups >= MAX_COST:
            raise ProblemError("largest size times number of groups must stay below 2^61: costs would overflow")

    @classmethod
    def examples(cls) -> Mapping[str, Self]:
        """Return matchings of equal and of shifted sizes, with a child without groups, and of sizes in millions."""
        return {
            "tiny": cls([1, 2], [1, 1], [1, 3], [1, 1], [0, 1, 2]),
            "several": cls([1, 2, 4], [2, 1, 2], [1, 3, 2, 5], [1, 1, 2, 1], [0, 2, 4]),
            "shift": cls([1], [4], [2, 3], [2, 2], [0, 1, 2]),
            "empty-child": cls([0, 7], [2, 2], [1, 6], [3, 1], [0, 0, 2]),
            "one-group": cls([3], [1], [5], [1], [0, 1]),
            "large-sizes": cls([7, 10**6], [1, 3], [0, 10**6 - 5], [2, 2], [0, 1, 2]),
        }

    @property
    def variables(self) -> int:
        """Return the number of pairs of runs, the size of a flow written out."""
        return self.parent_sizes.size * self.child_sizes.size

    @property
    def groups(self) -> int:
        """Return the number of groups to match."""
        return int(self.parent_counts.sum())

    def accept(self, answer: Any) -> Flow:
        """Return the flow with int64 counts where all are integer, else with float64 counts."""
        return Flow(answer.parent_run, answer.child_run, integer_answer(answer.count))

    def objective(self, x: Flow) -> float:
        """Return the earth mover's distance (people), summed over matched groups."""
        return float((x.count * self._distances(x)).sum())

    def violation(self, x: Flow) -> float:
        """Return the largest error of a run's groups, negative flow or distance from integers.

        Infinite where the triples do not name runs of this problem.
        """
        x = Flow(x.parent_run, x.child_run, plain_answer(x.count))
        if not (self._names_runs(x) and np.isfinite(x.count).all()):
            return np.inf
        if x.count.size == 0:
            return float(self.groups)
        marginals = self._marginals(x)
        negative = -float(x.count.min(initial=0))
        fractional = 0.0 if x.count.dtype.kind == "i" else float(np.abs(x.count - np.rint(x.count)).max())
        return max(
            0.0,
            negative,
            fractional,
            float(np.abs(marginals[0] - self.parent_counts).max()),
            float(np.abs(marginals[1] - self.child_counts).max()),
        )

    def repair(self, x: Flow) -> Flow:
        """Return an integer flow on the arcs of a fractional flow, or x where its integer part overfills a run.

        An optimal fractional flow uses arcs of reduced cost zero only, so every integer flow on them is optimal too.
        The units missing from its integer part are an assignment problem; x stays where they are more than 4,000.
        """
        integers = np.floor(x.count + NEAR_INTEGER).astype(np.int64).clip(min=0)
        marginals = self._marginals(Flow(x.parent_run, x.child_run, integers))
        parent_left, child_left = self.parent_counts - marginals[0], self.child_counts - marginals[1]
        overfull = (parent_left < 0).any() or (child_left < 0).any()
        if overfull or parent_left.sum() > MAX_UNITS:
            return x
        left = parent_left.astype(np.int64), child_left.astype(np.int64)
        tails, heads = _last_units(x, x.count - integers, *left)
        arcs = np.concatenate([x.parent_run, tails]) * self.child_sizes.size + np.concatenate([x.child_run, heads])
        counts = np.concatenate([integers, np.ones(tails.size, dtype=np.int64)])
        used, where = np.unique(arcs[counts > 0], return_inverse=True)
        total = np.zeros(used.size, dtype=np.int64)
        np.add.at(total, where, counts[counts > 0])
        return Flow(used // self.child_sizes.size, used % self.child_sizes.size, total)

    def multipliers(self, x: Flow) -> Potentials:
        """Return the optimal potentials, which do not depend on the flow."""
        from coco_opt.kernels import matching

        parent, child = matching.potentials(self.parent_sizes, self.parent_counts, self.child_sizes, self.child_counts)
        return Potentials(parent, child)

    def gap(self, x: Flow, multipliers: Potentials) -> float:
        """Return the certified gap; exact in integers for an integer flow."""
        drop = multipliers.parent[x.parent_run] - multipliers.child[x.child_run]
        return float((x.count * (self._distances(x) - drop)).sum())

    def certified_gap(self, x: Flow, multipliers: Potentials | None = None) -> float:
        """Return the gap at the optimal potentials; a solver's own are not read: they need not be 1-Lipschitz."""
        return self.gap(x, self.multipliers(x))

    def formulate(self, form: type[LinearProgram]) -> Formulation[Flow, Potentials]:
        """Write the transport problem over all pairs of runs (ProblemError beyond 20 million pairs)."""
        if form not in self.forms:
            raise self._no_form(form)
        if self.variables > MAX_ARCS:
            raise ProblemError(f"{self.variables} pairs of runs are too many to write out; use the kernel")
        from scipy.sparse import csc_array, eye_array, kron, vstack

        p, c = self.parent_sizes.size, self.child_sizes.size
        counts = np.concatenate([self.parent_counts, self.child_counts]).astype(np.float64)
        unit = 1.0 if form is MixedIntegerProgram else max(float(counts.max(initial=1.0)), 1.0)
        costs = np.abs(self.parent_sizes[:, None] - self.child_sizes[None, :]).ravel().astype(np.float64)
        linear = LinearProgram(
            c=costs,
            A=csc_array(vstack([kron(eye_array(p), np.ones((1, c))), kron(np.ones((1, p)), eye_array(c))])),
            row_lower=counts / unit,
            row_upper=counts / unit,
            lower=np.zeros(p * c),
            upper=np.full(p * c, np.inf),
        )

        def recover(z: Floats) -> Flow:
            flow = unit * z
            used = np.flatnonzero(np.abs(flow) > NO_FLOW)
            return Flow(used // c, used % c, flow[used])

        return Formulation(in_form(linear, form), recover)

    def _names_runs(self, x: Flow) -> bool:
        ends = ((x.parent_run, self.parent_sizes.size), (x.child_run, self.child_sizes.size))
        return x.count.ndim == 1 and all(
            run.shape == x.count.shape and run.dtype.kind in "iu" and bool(((run >= 0) & (run < runs)).all())
            for run, runs in ends
        )

    def _distances(self, x: Flow) -> Ints:
        distances: Ints = np.abs(self.parent_sizes[x.parent_run] - self.child_sizes[x.child_run])
        return distances

    def _marginals(self, x: Flow) -> tuple[Floats, Floats]:
        """Return the groups of every run in floats: exact up to the largest number, and they never wrap around."""
        parent, child = np.zeros(self.parent_counts.size), np.zeros(self.child_counts.size)
        np.add.at(parent, x.parent_run, x.count)
        np.add.at(child, x.child_run, x.count)
        return parent, child


def _integers(values: ArrayLike, name: str) -> Ints:
    array = as_array(values, name)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ProblemError(f"{name} must be a vector of integers")
    array = np.ascontiguousarray(array, dtype=np.int64).view()
    array.flags.writeable = False
    return array


def _last_units(x: Flow, fractions: Floats, parent_left: Ints, child_left: Ints) -> tuple[Ints, Ints]:
    """Return arcs (tails, heads) for the missing units, as many as can be among those with a fractional rest."""
    from scipy.optimize import linear_sum_assignment
    from scipy.sparse import csr_array

    # Any used arc is as good as another; a small preference for large rests makes the choice definite.
    score = np.where(fractions > USED, 1.0 + 1e-3 * fractions, 0.0)
    rest = csr_array((score, (x.parent_run, x.child_run)), shape=(parent_left.size, child_left.size))
    tails = np.repeat(np.arange(parent_left.size), parent_left)
    heads = np.repeat(np.arange(child_left.size), child_left)
    rows, columns = linear_sum_assignment(rest[tails][:, heads].toarray(), maximize=True)
    return tails[rows], heads[columns]
