"""Signs of life, standard streams that are closed or full, and memory that is short."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coco_opt import __version__, release, solve
from coco_opt.activity import NOTHING_PAID, Step, described, doing, set_interrupt_advice, steps, time_left
from coco_opt.cli import main
from coco_opt.cli.console import Heartbeat, SafeStream, TerminalReporter, figure, fraction, size, write
from coco_opt.errors import SolverError
from coco_opt.kernels.compile import compiled
from coco_opt.releases.reporter import NotebookReporter, in_notebook
from tests.cli.helpers import CANARY, KINDS, SECURE, Runner, paid, write_groups


class Clock:
    """A clock that is set."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("seconds", "done", "total", "words"),
    [
        (10.0, 0, 8, ""),
        (10.0, 8, 8, ""),
        (100.0, 9, 10, "about 11 s left"),
        (0.1, 9, 10, "about 1 s left"),
        (60.0, 1, 2, "about 1 minute left"),
        (600.0, 1, 12, "about 110 minutes left"),
        (3600.0, 1, 9, "about 8 hours left"),
    ],
)
def test_time_left_is_said_in_words(seconds: float, done: int, total: int, words: str) -> None:
    assert time_left(seconds, done, total) == words


def test_the_time_before_the_first_report_does_not_count_for_the_pace() -> None:
    """A first run compiles for a minute before its first unit is done: an hour a unit would be foolish."""
    clock = Clock()
    step = Step("Estimating", clock=clock)
    assert str(step) == "Estimating"
    clock.now = 60.0
    step.progress(1, 101)
    assert str(step) == "Estimating: 0 % done"
    clock.now = 70.0
    step.progress(51, 101)
    assert str(step) == "Estimating: 50 % done, about 10 s left"
    step.may_end_early = True
    assert str(step) == "Estimating: 50 % done, at most about 10 s left"


def test_a_pipe_hears_something_every_two_seconds_and_lines_ever_less_often() -> None:
    clock, err = Clock(), io.StringIO()
    out_stream, err_stream = SafeStream(io.StringIO()), SafeStream(err)
    heart = Heartbeat("plan", out_stream, err_stream, clock, silence=2.0)
    out_stream.before = err_stream.before = heart.end_line
    for second in range(2, 21, 2):
        clock.now = float(second)
        heart.beat()
    out_stream.write("a result")  # on another stream that may be the same terminal
    heart.beat()
    lines = err.getvalue().splitlines()
    assert lines == ["  2 s: plan ", "  4 s: plan .", "  8 s: plan ...", "  16 s: plan ..", "  20 s: plan "]


def test_compiling_is_announced_and_counted() -> None:
    seen: list[str] = []

    @compiled
    def fresh_kernel(x: int) -> int:
        return x + 1

    dispatcher: Any = fresh_kernel
    dispatcher._cache.flush()  # an earlier run of this test stored it
    load = dispatcher._cache.load_overload
    dispatcher._cache.load_overload = lambda *which: load(*which) or seen.append(described(steps()))
    assert fresh_kernel(1) == 2
    assert re.match(r"compiling test_progress\..*fresh_kernel: \d+ compiled$", seen[-1])
    assert steps() == ()


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_one_bar_with_what_is_left_and_the_present_step(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setattr(sys, "stderr", terminal)
    reporter = TerminalReporter()
    with reporter.stage("Predicting") as progress:
        progress(1, 10)
        progress(5, 10)
        with reporter.stage("Rehearsing"), doing("compiling fit"):
            pass
    assert "5/10" in terminal.getvalue()
    assert "left" in terminal.getvalue()


def test_a_notebook_shows_a_bar_that_moves_and_disappears(capsys: pytest.CaptureFixture[str]) -> None:
    shown: list[str] = []

    def show(html: str) -> object:
        shown.append(html)
        return shown.append

    assert not in_notebook()
    reporter = NotebookReporter(show, pause=0.001)  # type: ignore[arg-type]
    with reporter.stage("Sampling <fast>") as progress:
        progress(1, 4)
        with reporter.stage("within"):
            while not any("within" in html for html in shown):
                pass
    assert 'value="0.250"' in "".join(shown)
    assert "Sampling &lt;fast&gt;" in shown[0]
    assert shown[-1] == ""
    reporter.line("a line")
    set_interrupt_advice(NOTHING_PAID)
    with pytest.raises(KeyboardInterrupt), reporter.stage("Sampling"):
        raise KeyboardInterrupt
    assert capsys.readouterr().out.splitlines() == ["a line", f"interrupted (Sampling). {NOTHING_PAID}"]


@pytest.mark.parametrize(
    ("method", "place", "kept"),
    [
        ("read", "Reading the private table", "Nothing was paid"),
        ("estimate", "Estimating", "is paid, and its measurement is kept: run the same again, and it goes on for free"),
    ],
)
def test_an_interrupt_says_where_and_what_is_kept(
    method: str, place: str, kept: str, tmp_path: Path, coco: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = KINDS["ranges"].write(tmp_path, privacy=SECURE)
    kind = type(kind_of_ranges())
    original = getattr(kind, method)
    with monkeypatch.context() as patched:

        def stopped(self: object, given: object, *more: object) -> object:
            if getattr(given, "private", True):  # not what is rehearsed
                raise KeyboardInterrupt
            return original(self, given, *more)

        patched.setattr(kind, method, stopped)
        ran = coco("release", config)
    assert ran.code == 130
    assert f"error: interrupted ({place}" in ran.err
    assert kept in ran.err
    assert coco("release", config).code == 0


def kind_of_ranges() -> object:
    from coco_opt.kinds import kind_row

    return kind_row("ranges").load()


def test_without_a_reporter_a_script_stays_silent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from coco_opt import load_config

    release(load_config(KINDS["ranges"].write(tmp_path)))
    assert capsys.readouterr() == ("", "")


ONCE = ["GRANTED", "RESERVED", "MEASURED", "RELEASED"]
COCO = f"{sys.executable} -m coco_opt"
# In place of the command line, with so many megabytes left once everything is imported.
SHORT = """
import resource, sys
from coco_opt.cli import main
warm, config, left = sys.argv[1:]
assert main(["release", warm, "--json"]) == 0
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + int(left) * 2**20,) * 2)
sys.exit(main(["release", config]))
"""


def shell(command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize(
    ("redirected", "code", "words"),
    [
        (">&- 2>&-", 0, ""),
        ("> /dev/full", 2, "standard output could not be written: No space left on device"),
        ("| true; exit ${PIPESTATUS[0]}", 0, ""),
    ],
)
def test_a_paid_run_is_finished_without_standard_output(
    redirected: str, code: int, words: str, tmp_path: Path, coco: Runner
) -> None:
    config, out = KINDS["ranges"].write(tmp_path, privacy=SECURE), tmp_path / "out"
    ran = shell(f"{COCO} release {config} --out {out} {redirected}")
    assert ran.returncode == code, ran.stderr
    assert words in ran.stderr
    assert "Traceback" not in ran.stderr
    assert "Exception ignored" not in ran.stderr
    assert paid(tmp_path) == ONCE
    assert coco("verify", out, "--ledger", config).code == 0


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_short_of_memory_a_run_pays_once_and_goes_on_for_free(tmp_path: Path, coco: Runner) -> None:
    data, folder = KINDS["ranges"], tmp_path / "large"
    warm, config = data.write(tmp_path / "warm"), data.write(folder, privacy=SECURE)
    large = config.read_text().replace("cells = 9", "cells = 500_000").replace("fan_out = 3", 'fan_out = "cells"')
    config.write_text(large)
    codes = []
    for left in (4, 64):
        command = [sys.executable, "-c", SHORT, str(warm), str(config), str(left)]
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        codes.append(ran.returncode)
        failed = [line for line in ran.stderr.splitlines() if line.startswith("error: ")]
        assert len(failed) == (ran.returncode != 0), ran.stderr
        assert all("memory" in line for line in failed)
        assert paid(folder) == ONCE[: len(paid(folder))]
    assert codes[0] == 2
    assert set(codes) <= {0, 2}
    assert coco("release", config).code == 0
    assert paid(folder) == ONCE


def test_the_installed_command(tmp_path: Path) -> None:
    """Run whole processes: version, light start, exit code, no traceback."""
    config = write_groups(tmp_path, entities=f"entity_id,group_id\n{CANARY},nowhere\n")
    code = (
        "import sys, coco_opt.cli as c\n"
        "assert c.main(['--version']) == 0\n"
        "loaded = {'numpy', 'numba', 'pandas', 'duckdb', 'pyarrow', 'matplotlib', 'scipy'} & set(sys.modules)\n"
        "assert not loaded, loaded\n"
    )
    light = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (light.returncode, light.stdout) == (0, f"coco-opt {__version__}\n"), light.stderr
    failed = shell(f"{COCO} release {config} --json")
    assert failed.returncode == 2
    assert json.loads(failed.stdout)["error"]["code"] == "unknown-group"
    said = [line for line in failed.stderr.splitlines() if not line.startswith("  ")]  # without signs of life
    assert said[:2] == ["Reading the public tables", "Reading the private table"]
    assert len(said) == 3
    assert CANARY not in failed.stderr + failed.stdout


def test_what_compiled_packages_print_is_no_output_of_the_command() -> None:
    code = (
        "import ctypes, os, coco_opt.cli.console as console\n"
        "console.keep_stdout()\n"
        "ctypes.CDLL(None).puts(b'a banner')\n"
        "os.write(1, b'another')\n"
        "print('the output')\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, "the output\n"), ran.stderr
    assert "a banner" in ran.stderr
    assert "another" in ran.stderr


def test_json_is_json_where_other_solvers_had_to_answer(tmp_path: Path) -> None:
    more = '[solvers]\ntopdown_split = { name = "osqp", max_iter = 1 }\ntable_rounding = "cvxpy"\n'
    config = KINDS["tables"].write(tmp_path, more=more)
    ran = shell(f"{COCO} release {config} --json")
    assert ran.returncode == 0, ran.stderr
    solvers = json.loads(ran.stdout)["solvers"]
    assert [entry["solver"] for entry in solvers["topdown_split"]["fallbacks"]] == ["osqp"]


def test_answers_that_no_solver_certified_are_counted_where_certified_ones_are(
    tmp_path: Path, coco: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missed(problem: Any, solver: Any) -> Any:
        solution = solve(problem, solver)
        if problem.kind == "topdown_split":
            raise SolverError("missed", replace(solution, gap=0.25))
        return solution

    monkeypatch.setattr("coco_opt.choices.solve", missed)
    ran = coco("release", KINDS["tables"].write(tmp_path))
    assert ran.code == 0
    (row,) = [line for line in ran.out.splitlines() if line.strip().startswith("topdown_split")]
    assert "not certified" in row


def test_exit_handlers_run_and_the_interpreter_is_not_taken_apart() -> None:
    code = (
        "import atexit, sys, coco_opt.cli as c\n"
        "class Kept:\n"
        "    def __del__(self): print('taken apart')\n"
        "kept = Kept()\n"
        "atexit.register(print, 'handled')\n"
        "sys.argv = ['coco-opt', 'verify', 'nowhere']\n"
        "c.run()\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (2, "handled\n"), ran.stderr


class Failing(io.StringIO):
    """A stream that takes ``most`` characters and then fails."""

    def __init__(self, number: int, most: int = 0) -> None:
        super().__init__()
        self._number, self._most = number, most

    def write(self, text: str) -> int:
        if self.tell() + len(text) > self._most:
            raise OSError(self._number, os.strerror(self._number))
        return super().write(text)


@pytest.mark.parametrize(
    ("stream", "failure"),
    [
        (None, ""),
        (Failing(errno.EPIPE), ""),
        (Failing(errno.ENOSPC), "No space left on device"),
        (Failing(errno.EIO, 3), "Input/output error"),
    ],
)
def test_a_safe_stream_keeps_its_failure(stream: io.StringIO | None, failure: str) -> None:
    safe = SafeStream(stream)
    for text in ("abc", "def", ""):
        assert safe.write(text) == len(text)
        safe.flush()
    assert (safe.failure, safe.used, safe.isatty()) == (failure, True, False)
    closed = io.StringIO()
    closed.close()
    safe = SafeStream(closed)
    safe.write("x")
    assert safe.failure == ""


def test_what_an_encoding_lacks_is_escaped() -> None:
    raw = io.BytesIO()
    safe = SafeStream(io.TextIOWrapper(raw, encoding="ascii"))
    safe.write("Gr\u00f6\u00dfe")
    safe.flush()
    assert raw.getvalue() == b"Gr\\xf6\\xdfe"


@pytest.mark.parametrize("verb", ["solvers", "--help", "--version"])
def test_any_output_may_be_lost(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    said = io.StringIO()
    monkeypatch.setattr(sys, "stdout", Failing(errno.ENOSPC))
    monkeypatch.setattr(sys, "stderr", said)
    assert main([verb]) == 2
    assert said.getvalue().startswith("error: standard output could not be written: No space left on device")
    monkeypatch.setattr(sys, "stdout", None)
    assert main([verb]) == 0


def test_lines_beside_json_and_stages_go_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    for lines in (True, False):
        reporter = TerminalReporter(lines=lines)
        reporter.line("a line")
        with reporter.stage("A stage") as progress:
            progress(1, 2)
        write("a result")
        printed = capsys.readouterr()
        assert printed.out.splitlines() == (["a line", "a result"] if lines else ["a result"])
        assert printed.err.splitlines() == (["A stage"] if lines else ["a line", "A stage"])


def test_figures() -> None:
    shown = {None: "-", -0.0: "0", 0.01234: "0.012", 1.66e-9: "1.7e-09", 28.4: "28", 166.0: "170", 1234.5: "1,200"}
    assert {value: figure(value) for value in shown} == shown
    assert figure(999.7, 3) == "1,000"
    assert [fraction("1/3"), fraction("1000000001/3000000000")] == ["1/3", "~0.333333"]
    assert [size(12), size(5_300_000)] == ["12 B", "5.3 MB"]


@pytest.mark.parametrize("chosen", [{}, {"OMP_NUM_THREADS": "3"}, {"OPENBLAS_NUM_THREADS": "3"}])
def test_linear_algebra_has_one_thread_unless_the_environment_says_how_many(
    chosen: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    for name, number in chosen.items():
        monkeypatch.setenv(name, number)
    assert main(["--version"]) == 0
    threads = {name: os.environ[name] for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS") if name in os.environ}
    assert threads == (chosen or {"OPENBLAS_NUM_THREADS": "1"})
