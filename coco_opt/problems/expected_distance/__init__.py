"""The consistent table of least expected distance to a random table, given every count's own distribution."""

from coco_opt.problems.expected_distance.marginals import Marginals
from coco_opt.problems.expected_distance.problem import ExpectedDistance

__all__ = ["ExpectedDistance", "Marginals"]
