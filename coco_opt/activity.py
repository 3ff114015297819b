"""What this process is doing, in words, for whoever waits: written by the code that works, read by what reports.

There is one account for the whole process, because threads share compiled kernels and one terminal. It holds labels and
numbers of units of work, never a value of a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic

PAYMENT_KEPT = "What was paid for, if anything was, stays paid: run the same again, and it goes on for free"
"""What is kept when a payment may just have been made."""
NOTHING_PAID = "Nothing was paid, and nothing is kept: run the same again"
"""What is kept before a payment."""

Progress = Callable[[int, int], None]
"""Called with the number of units done and their total number."""

_MINUTE, _HOUR = 60, 3600


class Step:
    """A step of the work: its label, when it began and how much of it is done; ``more`` adds words when it is shown."""

    def __init__(
        self, label: str, more: Callable[[], str] | None = None, clock: Callable[[], float] = monotonic
    ) -> None:
        self.label, self.more, self._clock = label, more, clock
        self.may_end_early = False
        self.start = clock()
        self._first: tuple[float, int] | None = None
        self._done, self._total = 0, 0

    def progress(self, done: int, total: int) -> None:
        """Record how far the step got; threads may call it."""
        if self._first is None or done < self._done:
            self._first = (self._clock(), done)
        self._done, self._total = done, total

    @property
    def elapsed(self) -> float:
        """Return the seconds since it began."""
        return self._clock() - self.start

    @property
    def share(self) -> float | None:
        """Return the share that is done, None where that is unknown."""
        return self._done / self._total if self._total else None

    @property
    def left(self) -> str:
        """Return in words how long is left, from the pace since the first report; "" where that is unknown."""
        if self._first is None or self._done == self._first[1]:
            return ""
        begin, before = self._first
        words = time_left(self._clock() - begin, self._done - before, self._total - before)
        return words.replace("about", "at most about") if self.may_end_early else words

    def __str__(self) -> str:
        """Return the label, the share that is done and the time that is left."""
        share = "" if self.share is None else f"{int(100 * self.share)} % done"
        words = [word for word in (share, self.left, self.more() if self.more else "") if word]
        return f"{self.label}: {', '.join(words)}" if words else self.label


_steps: list[Step] = []
_advice = PAYMENT_KEPT
_stopped_at = ""


@contextmanager
def doing(label: str, more: Callable[[], str] | None = None) -> Iterator[Progress]:
    """Say what is done while the body runs; the value takes the units done and their total."""
    global _stopped_at
    step = Step(label, more)
    _steps.append(step)
    try:
        yield step.progress
    except KeyboardInterrupt:
        _stopped_at = label
        raise
    finally:
        _steps.remove(step)


def may_end_early() -> None:
    """Mark the current steps as able to finish early: their remaining time is shown as an upper bound."""
    for step in _steps:
        step.may_end_early = True


def steps() -> tuple[Step, ...]:
    """Return the steps that are going on, the outermost first."""
    return tuple(_steps)


def described(shown: Sequence[Step]) -> str:
    """Return the words of some steps; of those that count the same (compiled kernels), only the last is named."""
    counts = [step.more for step in shown]
    return "; ".join(str(step) for n, step in enumerate(shown) if step.more is None or step.more not in counts[n + 1 :])


def set_interrupt_advice(advice: str) -> None:
    """Record what an interrupt would leave, and how to go on."""
    global _advice
    _advice = advice


def take_interrupt_message() -> str:
    """Return where the work was interrupted, what is kept and how to go on, and forget the place."""
    global _stopped_at
    place, _stopped_at = _stopped_at, ""
    return f"interrupted{f' ({place})' if place else ''}. {_advice}"


def time_left(seconds: float, done: int, total: int) -> str:
    """Return in words how long is left of work that took ``seconds`` so far; "" where that is unknown."""
    if not 0 < done < total:
        return ""
    remaining = seconds * (total - done) / done
    if remaining < _MINUTE:
        return f"about {max(1, round(remaining))} s left"
    if remaining < 2 * _HOUR:
        minutes = round(remaining / _MINUTE)
        return f"about {minutes} minute{'s' if minutes > 1 else ''} left"
    return f"about {round(remaining / _HOUR)} hours left"
