"""The command line ``coco-opt``: one verb a module; errors become one clear line and an exit code.

Exit codes: 0 done; 1 a check failed; 2 bad usage, configuration or input; 3 budget refused; 4 a solver did not reach
its tolerance; 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import typer

from coco_opt.cli import audit, compare, demo, experiments, init, ledger, plan, release, solvers, verify
from coco_opt.cli.options import Version
from coco_opt.errors import CocoOptError

INTERRUPTED = 130
UNEXPECTED = 1

app = typer.Typer(
    name="coco-opt",
    help="Differentially private histograms of groups over a hierarchy of regions, on certified solvers.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback(invoke_without_command=True)
def _coco_opt(context: typer.Context, version: Version = False) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(2)


for _verb in (
    demo.demo,
    init.init,
    plan.plan,
    release.release,
    verify.verify,
    compare.compare,
    ledger.ledger,
    audit.audit,
    solvers.solvers,
    experiments.reproduce,
    experiments.bench,
):
    app.command(_verb.__name__)(_verb)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; nothing it raises gets out, and no private value is printed."""
    try:
        code = _run(argv)
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except CocoOptError as error:
        _say(str(error))
        code = error.exit_code
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else UNEXPECTED
    except Exception as error:
        code = _foreign(error)
    if code == INTERRUPTED:
        _say("interrupted")
    return code


def _run(argv: Sequence[str] | None) -> int:
    arguments = None if argv is None else list(argv)
    command: Any = typer.main.get_command(app)
    result = command.main(args=arguments, prog_name="coco-opt", standalone_mode=False)
    return result if isinstance(result, int) else 0


def _foreign(error: Exception) -> int:
    """Report a usage error by its message, and any other by its type alone: its message may hold private values."""
    explain = getattr(error, "format_message", None)
    if explain is not None:
        message = " ".join(str(explain()).split())
        if message:
            _say(f"{message} (see coco-opt --help)")
        return int(getattr(error, "exit_code", 2))
    if os.environ.get("COCO_OPT_DEBUG") == "1":
        raise error
    _say(
        f"unexpected {type(error).__name__}; its text is withheld because it may hold private values. "
        "Set COCO_OPT_DEBUG=1 to see it, and report it without your data"
    )
    return UNEXPECTED


def _say(text: str) -> None:
    """Print errors to the standard error stream, one line each."""
    for line in text.splitlines():
        sys.stderr.write(f"error: {line}\n")
