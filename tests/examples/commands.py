"""The examples as data: which files there are, and the commands that their first lines tell the reader to type."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
TYPE_CACHE = ROOT / ".mypy_cache" / "users"
"""Of the type checker with the options of users, kept between runs."""
NEEDS_NETWORK = {"fetch.yaml"}
DEMO = {"demo.py", "demo.yaml", "demo_tasks.py", "resizer.py", "redis_worker.py", "rabbitmq_worker.py"}
"""What has tests of its own: `make demo`, and the workers of other programs."""

_COMMAND = re.compile(r"^(?:#|//)?\s*(?:[^`]*  )?(dalsegno (?:run|signal|deploy|schedule|worker) .*)$")


@dataclass(frozen=True)
class Example:
    file: Path
    commands: tuple[tuple[str, ...], ...]
    """In order, without the program's name."""

    @property
    def name(self) -> str:
        return str(self.file.relative_to(EXAMPLES))

    def runs(self) -> list[tuple[str, ...]]:
        return [command for command in self.commands if command[0] == "run"]


def examples() -> list[Example]:
    files = [path for path in sorted(EXAMPLES.rglob("*")) if path.suffix in (".py", ".flow", ".yaml")]
    return [
        Example(path, _commands(path)) for path in files if path.name not in DEMO and not _has_readme(path)
    ]


def _has_readme(path: Path) -> bool:
    """Part of a program of several files, whose README says how it is run."""
    return path.parent != EXAMPLES and (path.parent / "README.md").exists()


def example(name: str) -> Example:
    return next(each for each in examples() if each.name == name)


def _commands(path: Path) -> tuple[tuple[str, ...], ...]:
    text = re.sub(r"\\\n\s*", "", path.read_text(encoding="utf-8"))
    found = [_COMMAND.match(line) for line in text.splitlines()]
    return tuple(tuple(shlex.split(match.group(1)))[1:] for match in found if match is not None)
