"""How work is run: in threads, in processes, on a Dask cluster; the answer is the same, bit for bit.

What is run so is estimation, which reads a measurement and nothing else, and the drawing of large measurements
(``coco_opt.releases.drawing``), whose workers do nothing else and find what is private in files of the private folder.
"""

from coco_opt.execution.executor import Count, Executor, Shared, Threads, batch_size, batches, even_tasks
from coco_opt.execution.table import EXECUTORS, ExecutorRow, executor_row, executor_rows, open_executor

__all__ = [
    "EXECUTORS",
    "Count",
    "Executor",
    "ExecutorRow",
    "Shared",
    "Threads",
    "batch_size",
    "batches",
    "even_tasks",
    "executor_row",
    "executor_rows",
    "open_executor",
]
