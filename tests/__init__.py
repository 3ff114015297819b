"""The tests. Linear algebra has one thread, as under the command line: workers share the cores and would wait."""

import os

if "OMP_NUM_THREADS" not in os.environ:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
