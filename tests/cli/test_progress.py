"""Signs of life: what a pipe, a terminal and a notebook show of long work, and what an interrupt says."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from coco_opt.activity import NOTHING_PAID, Step, described, doing, set_interrupt_advice, steps, time_left
from coco_opt.cli.console import Heartbeat, SafeStream, TerminalReporter
from coco_opt.kernels.compile import compiled
from coco_opt.releases import release
from coco_opt.releases.notebook import NotebookReporter, in_notebook
from tests.cli.helpers import KINDS, SECURE, Runner


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


def test_steps_within_each_other_are_named_and_counts_are_said_once() -> None:
    def count() -> str:
        return "3 compiled"

    with doing("outer") as progress, doing("compiling fit", count), doing("compiling cut", count):
        progress(1, 4)
        assert described(steps()) == "outer: 25 % done; compiling cut: 3 compiled"
    assert steps() == ()


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


def test_a_silent_command_shows_signs_of_life_by_itself() -> None:
    err = io.StringIO()
    stream = SafeStream(err)
    with Heartbeat("verify", SafeStream(None), stream, silence=0.0), doing("Checking files") as progress:
        progress(1, 2)
        while "50 %" not in err.getvalue():  # the watching thread writes it
            pass
    assert err.getvalue().endswith("\n")
    assert stream.before is None


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
