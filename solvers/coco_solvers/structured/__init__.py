"""Fast exact solvers, each for one problem: thin classes over compiled kernels."""
