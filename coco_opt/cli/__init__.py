"""The command line ``coco-opt``: a few verbs a module; errors become one clear line and an exit code.

Exit codes: 0 done; 1 a check failed; 2 bad usage, configuration, input or output; 3 budget refused; 4 a solver did not
reach its tolerance; 130 interrupted. With ``--json`` an error is an object on standard output too.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from coco_opt.activity import take_interrupt_message
from coco_opt.cli import (
    audit,
    compare,
    demo,
    diff,
    experiments,
    export,
    init,
    ledger,
    plan,
    reference,
    release,
    verify,
)
from coco_opt.cli.console import Heartbeat, SafeStream, keep_stdout, open_descriptors, safe_streams, write, write_json
from coco_opt.cli.options import Version
from coco_opt.errors import CocoOptError, InputError, MissingPackageError, is_out_of_memory, with_advice

INTERRUPTED = 130
UNEXPECTED = 1
BAD_USAGE = 2

_OUT_OF_MEMORY = (
    "out of memory. A measurement that was paid for is kept, and the same command goes on from there for free; before "
    "that nothing was paid. Give it more memory, or ask for fewer cells"
)

_Row = tuple[Callable[..., int], str, str]
EVERYDAY: tuple[_Row, ...] = (
    (demo.demo, "Try it: release simulated data, and show the errors.", "demo"),
    (init.init, "Write a first config for the tables in this folder.", "init persons.csv homes.csv areas.csv"),
    (plan.check, "Read and check all input; spend nothing.", "check coco-opt.toml"),
    (plan.plan, "Predict cost, error, time and memory; public data only.", "plan coco-opt.toml"),
    (release.release, "Measure once and estimate: the main job.", "release coco-opt.toml"),
    (
        verify.verify,
        "Check a release folder against its manifest.",
        "verify releases/coco-opt-20260101T000000Z-0badcafe",
    ),
    (export.export, "Write the tables as CSV, for spreadsheets.", "export releases/b --out tables"),
    (
        diff.diff,
        "Subtract a release from a later one; mark changes.",
        "diff releases/a releases/b --page changes.html",
    ),
    (ledger.ledger, "Show the budget: granted, spent, and on what.", "ledger coco-opt.toml"),
    (reference.keys, "List the keys of a config: type, default, meaning.", "keys privacy"),
    (reference.errors, "Explain the code of an error.", "errors input-changed"),
)
METHODS: tuple[_Row, ...] = (
    (release.measure, "Check, pay, draw noise, seal: the step that costs.", "measure coco-opt.toml --publish noisy"),
    (release.estimate, "Make a release of a measurement, for free.", "estimate noisy coco-opt.toml --out releases/b"),
    (
        export.import_,
        "Import noisy measurements that others published.",
        "import coco-opt.toml US.parquet --out theirs",
    ),
    (verify.sign, "Sign a release or a measurement.", "sign noisy --key office.key"),
    (compare.solvers, "Show which solver solves which problem.", "solvers"),
    (compare.compare, "Compare all solvers on your problems; spend nothing.", "compare coco-opt.toml"),
)
RESEARCH: tuple[_Row, ...] = (
    (audit.audit, "Bound the privacy lost, on simulated or public data.", "audit coco-opt.toml"),
    (experiments.reproduce, "Recompute the papers' figures and tables.", "reproduce kuo2018/table3 --small"),
    (experiments.bench, "Time the solvers against their peers, in one run.", "bench isotonic_l2"),
    (reference.cite, "Print what to cite, for a method or a release.", "cite joint"),
)
GROUPS = {
    "Everyday": EVERYDAY,
    "Methods (the steps of a release one by one, and its solvers)": METHODS,
    "Research (audits, the papers' experiments, citations)": RESEARCH,
}


class _Verbs(TyperGroup):
    """The list of verbs in three groups, as most people need them."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the groups below the options."""
        for title, rows in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(_name(verb), summary) for verb, summary, _ in rows], col_max=12)


class _Verb(TyperCommand):
    """A verb whose usage line shows arguments as they are spelled everywhere else."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the options and the arguments in their order."""
        arguments = [parameter.metavar or "" for parameter in self.params if parameter.param_type_name == "argument"]
        return [self.options_metavar or "", *arguments]


def _name(verb: Callable[..., int]) -> str:
    return verb.__name__.rstrip("_")


app = typer.Typer(
    name="coco-opt",
    cls=_Verbs,
    help="Differentially private histograms and tables over a hierarchy of regions, by certified solvers.",
    epilog="\b\nBegin with:         coco-opt demo\n"
    "Your own tables:    coco-opt init FILES, then check, plan and release\n"
    "More on a command:  coco-opt COMMAND --help",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback(invoke_without_command=True)
def _coco_opt(context: typer.Context, version: Version = False) -> None:
    if context.invoked_subcommand is None:
        write(context.get_help())
        raise typer.Exit(BAD_USAGE)


for _verb, _summary, _example in (*EVERYDAY, *METHODS, *RESEARCH):
    app.command(_name(_verb), cls=_Verb, short_help=_summary, epilog=f"Example:  coco-opt {_example}")(_verb)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a command failed; ``code`` is a stable name of the kind of failure, ``bad_rows`` are rows of the input."""

    exit_code: int
    code: str
    message: str
    bad_rows: list[dict[str, Any]] = field(default_factory=list)


def run() -> NoReturn:
    """Run the command of this process, and end the process.

    Exit handlers run as usual. What the interpreter would do after them, taking apart every module and table in memory,
    took up to three seconds after the last line.
    """
    open_descriptors()
    keep_stdout()
    code = main()
    threading._shutdown()  # type: ignore[attr-defined]  # ends threads and pools, as the interpreter does first
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; it raises nothing and prints no private value.

    Closed or full standard streams stop nothing; if a full stream lost output, an error says so at the end.
    """
    open_descriptors()
    # Arrow's own pool keeps freed memory: 50 MB after a table of 100,000 regions, and 100 MB at a release's peak.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    # Threads of linear algebra wait actively for one another: on busy cores small matrices take 20 times as long.
    if "OMP_NUM_THREADS" not in os.environ:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    arguments = list(sys.argv[1:] if argv is None else argv)
    with safe_streams() as (out, err):
        with Heartbeat(next((word for word in arguments if not word.startswith("-")), "working"), out, err):
            code, failure = _run(arguments)
        if failure is not None:
            _report(failure, out, json="--json" in arguments)
            code = failure.exit_code
        out.flush()
        if out.failure:
            _say(f"standard output could not be written: {out.failure}. The command is done, its output is lost")
            code = code or BAD_USAGE
    return code


@cache
def _command() -> Any:
    """Return the verbs with their options; built once, however many commands a program runs."""
    return typer.main.get_command(app)


def _run(arguments: list[str]) -> tuple[int, Failure | None]:
    try:
        result = _command().main(args=arguments, prog_name="coco-opt", standalone_mode=False)
        if result == INTERRUPTED:  # what typer makes of Ctrl-C
            raise KeyboardInterrupt
        return (result if isinstance(result, int) else 0), None
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED, Failure(INTERRUPTED, "interrupted", take_interrupt_message())
    except CocoOptError as error:
        bad_rows = error.bad_rows if isinstance(error, InputError) else []
        return error.exit_code, Failure(error.exit_code, error.code, with_advice(str(error), error), bad_rows)
    except SystemExit as stop:
        return (stop.code if isinstance(stop.code, int) else UNEXPECTED), None
    except Exception as error:
        return UNEXPECTED, _failure_of(error)


def _failure_of(error: Exception) -> Failure:
    """Describe a usage error by its message, and any other by its type alone: its message may hold private values."""
    explain = getattr(error, "format_message", None)
    if explain is not None:
        message = " ".join(str(explain()).split())
        code = int(getattr(error, "exit_code", BAD_USAGE))
        return Failure(code, "usage", f"{_as_key(error) or message or 'bad usage'} (see coco-opt --help)")
    if os.environ.get("COCO_OPT_DEBUG") == "1":
        raise error
    if isinstance(error, ModuleNotFoundError) and error.name:  # the name of a package, and no value
        missing = MissingPackageError(error.name.partition(".")[0], "this command")
        return Failure(missing.exit_code, missing.code, str(missing))
    if is_out_of_memory(error):
        return Failure(BAD_USAGE, "out-of-memory", _OUT_OF_MEMORY)
    if isinstance(error, OSError) and error.filename is not None:
        # This names a path and the system's reason, and no value of a table.
        name = Path(os.fsdecode(error.filename)).name
        return Failure(BAD_USAGE, "file-error", f"{name}: {error.strerror}. Nothing that was paid for is lost")
    message = (
        f"unexpected {type(error).__name__}; its text is withheld because it may hold private values. "
        f"Set COCO_OPT_DEBUG=1 to see it, and report it without your data"
    )
    return Failure(UNEXPECTED, "unexpected", with_advice(message, error))


def _as_key(error: Exception) -> str:
    """Return the message for a key of the configuration that was written as an option, "" for any other error."""
    from coco_opt.cli.config_keys import config_keys

    name = getattr(error, "option_name", "").lstrip("-").replace("-", "_")
    if type(error).__name__ != "NoSuchOption" or not name:
        return ""
    sections = dict.fromkeys(each.section.partition(",")[0] for each in config_keys() if each.key == name)
    return f"--{name} is no option: set {name} in [{'] or ['.join(sections)}] of the configuration" if sections else ""


def _report(failure: Failure, out: SafeStream, *, json: bool) -> None:
    """Write what failed to standard error, one line each; also as JSON, unless standard output was used already."""
    for line in failure.message.splitlines():
        _say(line)
    if json and not out.used:
        write_json({"error": asdict(failure)})


def _say(text: str) -> None:
    sys.stderr.write(f"error: {text}\n")
