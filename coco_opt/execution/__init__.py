"""How work is run: in threads, in processes, on a Dask cluster; the answer is the same, bit for bit.

What is run so is estimation, which reads a measurement and nothing else. Private tables are read, and noise is drawn,
by the one process that pays: no worker is ever handed them.
"""

from coco_opt.execution.executor import Count, Executor, Shared, Threads, even_tasks
from coco_opt.execution.table import EXECUTORS, ExecutorRow, executor_row, executor_rows, open_executor

__all__ = [
    "EXECUTORS",
    "Count",
    "Executor",
    "ExecutorRow",
    "Shared",
    "Threads",
    "even_tasks",
    "executor_row",
    "executor_rows",
    "open_executor",
]
