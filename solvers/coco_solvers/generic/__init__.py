"""Adapters to LP, QP and MILP packages, one a file; each solves every problem that can write itself so."""
