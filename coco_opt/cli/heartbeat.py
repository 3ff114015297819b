"""Signs of life: when a command has printed nothing for two seconds, standard error says what it is doing.

A line says what is done and what is left; while a step goes on, dots follow, one every two seconds, and a new line ever
less often. In a terminal the bar of a stage moves, so nothing is added there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic

from coco_opt.activity import described, steps
from coco_opt.cli.console import SafeStream

SILENCE = 1.75  # seconds without output, after which there is a sign of life
_LONGEST = 30.0  # seconds between two lines
_PAUSE = 0.1


class Heartbeat:
    """Watches both streams of a command while the body runs; ``verb`` names what is done outside any stage."""

    def __init__(
        self,
        verb: str,
        out: SafeStream,
        err: SafeStream,
        clock: Callable[[], float] = monotonic,
        silence: float = SILENCE,
    ) -> None:
        self._verb, self._out, self._err, self._clock, self._silence = verb, out, err, clock, silence
        self._start = clock()
        self._label = ""
        self._next = 0.0
        self._open = False
        self._lock = threading.RLock()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="heartbeat", daemon=True)

    def __enter__(self) -> Heartbeat:
        self._out.before = self._err.before = self.end_line
        self._thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._end.set()
        self._thread.join()
        self.end_line()
        self._out.before = self._err.before = None

    def _watch(self) -> None:
        while not self._end.wait(_PAUSE):
            if self._clock() - max(self._start, self._out.last, self._err.last) >= self._silence:
                self.beat()

    def beat(self) -> None:
        """Write a line where the last line has ended, a new stage has begun or a line is due; else add a dot."""
        with self._lock:
            going, now = steps(), self._clock()
            stage = going[0] if going else None
            label = self._verb if stage is None else stage.label
            if self._open and label == self._label and now < self._next:
                self._err.write_on(".")
                return
            self.end_line()
            elapsed = now - (self._start if stage is None else stage.start)
            self._label, self._next, self._open = label, now + min(_LONGEST, max(self._silence, elapsed)), True
            self._err.write_on(f"  {elapsed:.0f} s: {described(going) or self._verb} ")

    def end_line(self) -> None:
        """End a line that dots may still be added to, before anything else is written."""
        with self._lock:
            if self._open:
                self._open = False
                self._err.write_on("\n")
