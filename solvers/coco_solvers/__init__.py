"""The built-in solvers of coco-opt: ``table`` lists them, one row each.

``structured`` holds the fast exact solvers, thin classes over coco_opt's compiled kernels; ``generic`` one file for
each LP, QP or MILP package; ``oracles`` slow exact references for tests.
"""
