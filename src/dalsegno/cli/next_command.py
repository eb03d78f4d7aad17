"""Follow-up commands as the user would type them, and countdowns as they are printed."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from math import ceil
from os.path import relpath
from pathlib import Path

from dalsegno.adapters.urls import shown_url
from dalsegno.cli.output import span
from dalsegno.wiring import default_store, store_of_environment


def short_path(file: str) -> str:
    return min(relpath(file), file, key=len)


@dataclass(frozen=True, slots=True)
class Command:
    """The store, server and application of this command, from which follow-up commands are built."""

    store: str
    app: str | None = None
    server: str | None = None
    """If set, it replaces the store."""

    @property
    def is_lasting(self) -> bool:
        """True if another process could continue the execution."""
        return self.server is not None or not self.store.startswith("memory:")

    def line(self, verb: str, execution: str) -> str:
        words = ["dalsegno", *verb.split(), execution, *self._place()]
        if self.app is not None:
            words += ["--app", self.app]
        return shlex.join(words)

    def signal(self, execution: str, name: str) -> str:
        """Return the command that sends a signal; it needs no ``--app``."""
        return self.short("signal", execution, name)

    def short(self, verb: str, *words: str) -> str:
        """Return a command without the options that are the default: it is shown in a live view."""
        words = ("dalsegno", verb, *words)
        return shlex.join(words if self._is_usual() else (*words, *self._place()))

    def completed(self, line: str) -> str:
        """Complete a command that the engine suggests with the options of this call."""
        _, verb, *words = shlex.split(line)
        first = next((place for place, word in enumerate(words) if word.startswith("--")), len(words))
        names, options = words[:first], words[first:]
        if "--app" in options:
            at = options.index("--app") + 1
            options[at] = short_path(options[at]) if Path(options[at]).is_absolute() else options[at]
        elif verb == "resume" and self.app is not None:
            options += ["--app", self.app]
        is_placed = verb == "resume" or (verb != "worker" and not self._is_usual())
        return shlex.join(["dalsegno", verb, *names, *(self._place() if is_placed else ()), *options])

    def _is_usual(self) -> bool:
        """Return whether commands find the store or server without options."""
        if self.server is not None:
            return self.server == os.environ.get("DALSEGNO_SERVER")
        return self.store == default_store()

    def _place(self) -> tuple[str, ...]:
        if self.server is not None:
            return ("--server", self.server)
        if self.store == store_of_environment():
            return ()
        return ("--store", shown_url(self.store))  # a password is not printed


def countdown(seconds: float) -> str:
    """Format ``3 s``, ``1:05``, ``2:00:09``: a countdown that does not jump between units."""
    if seconds < 60:
        return f"{max(ceil(seconds), 0)} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= 24:
        return span(seconds)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
