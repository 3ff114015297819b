"""The head of a ledger, stored outside of it: whoever restores an older ledger must restore every newer head, too."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from coco_opt.errors import BudgetError
from coco_opt.privacy.bookkeeping import read_values, write_values
from coco_opt.privacy.private_files import FREE

_WAIT = 60.0  # seconds that a witness's command may take


@dataclass(frozen=True, slots=True)
class Head:
    """How many entries a ledger had, and the hash of the last."""

    entries: int
    head: str


class Witness(Protocol):
    """Remembers how far a ledger got."""

    def remember(self, head: Head) -> None:
        """Keep a head, durably; BudgetError where that cannot be done."""

    def contradicts(self, entries: int, hashes: Sequence[str]) -> str:
        """Return what speaks against a ledger of so many entries with these hashes, "" for nothing."""


@dataclass(frozen=True, slots=True)
class FileWitness:
    """Keeps the last head in a file; what it knows must be part of the ledger, which may have got further since."""

    path: Path

    def remember(self, head: Head) -> None:
        """Replace the head in the file, unless a later head is there."""
        stored = self._stored_head()
        if stored is None or stored.entries < head.entries:
            write_values(self.path, asdict(head), replace=True)

    def contradicts(self, entries: int, hashes: Sequence[str]) -> str:
        """Compare with the head in the file."""
        stored = self._stored_head()
        if stored is None or (stored.entries <= entries and hashes[stored.entries - 1] == stored.head):
            return ""
        if stored.entries > entries:
            return f"it has {entries} entries, and {self.path.name} remembers {stored.entries}"
        return f"its entry {stored.entries} is not the one that {self.path.name} remembers"

    def _stored_head(self) -> Head | None:
        return Head(**read_values(self.path)) if os.path.lexists(self.path) else None


@dataclass(frozen=True, slots=True)
class CommandWitness:
    """A command that is given {"event": "check" or "grown", "entries", "head"} as JSON on standard input.

    What it does with it is its own: append it to a log elsewhere, compare it with the last head. An exit code other
    than 0 refuses the ledger.
    """

    command: tuple[str, ...]

    def remember(self, head: Head) -> None:
        """Notify the command that the ledger has grown."""
        if problem := self._run_command("grown", head):
            raise BudgetError(f"{problem}. The ledger has its entry. {FREE}")

    def contradicts(self, entries: int, hashes: Sequence[str]) -> str:
        """Ask the command whether it refuses this head."""
        return self._run_command("check", Head(entries, hashes[-1] if hashes else ""))

    def _run_command(self, event: str, head: Head) -> str:
        text = json.dumps({"event": event, **asdict(head)}) + "\n"
        try:
            done = subprocess.run(self.command, input=text, text=True, timeout=_WAIT, check=False, capture_output=True)
        except (OSError, subprocess.SubprocessError) as error:
            return f"the witness {self.command[0]!r} cannot be run ({type(error).__name__})"
        return f"the witness {self.command[0]!r} refuses it (exit code {done.returncode})" if done.returncode else ""
