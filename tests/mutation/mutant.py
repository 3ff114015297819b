"""One planted fault: which text of the package it replaces, why that matters, and which tests must notice it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_ROOTS = ("solvers", "experiments")  # folders of packages beside coco_opt


@dataclass(frozen=True, slots=True)
class Mutant:
    """The package with ``old`` replaced by ``new`` in ``file``, where it must stand once; ``tests`` are node ids.

    ``why`` says what the fault would do to somebody. ``compiled`` is False for faults in kernels: their tests then run
    in the interpreter, for a kernel that is compiled holds the code of those it calls.
    """

    name: str
    why: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    compiled: bool = True

    @property
    def module(self) -> str:
        """Return the dotted name of the module."""
        parts = Path(self.file).with_suffix("").parts
        parts = parts[1:] if parts[0] in _ROOTS else parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def source(self) -> str:
        """Return the module's source with the fault; raise ValueError unless its text stands there exactly once."""
        text = (ROOT / self.file).read_text(encoding="utf-8")
        if text.count(self.old) != 1 or self.old == self.new:
            raise ValueError(f"{self.name}: its text stands {text.count(self.old)} times in {self.file}, not once")
        return text.replace(self.old, self.new)
