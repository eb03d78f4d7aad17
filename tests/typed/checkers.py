"""The type checkers of users, each run once over a set of files, and what they find by file and line."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

Findings = Mapping[str, Mapping[int, frozenset[str]]]
"""By the file's name and line: the codes of a checker's errors."""

_MYPY = re.compile(r"^(?P<file>[^:]+):(?P<line>\d+): error: .*\[(?P<code>[\w-]+)\]$")


class CheckerFailed(Exception):
    """A checker said something else than findings."""


def mypy(files: Iterable[Path]) -> Findings:
    """Return what mypy finds, with the options of ``mypy --strict``."""
    options = ["--strict", "--no-pretty", "--hide-error-context", "--no-error-summary"]
    said = _run([sys.executable, "-m", "mypy", *options, *map(str, files)])
    found = [_MYPY.match(line) for line in said.splitlines() if ": note: " not in line]
    if None in found:
        raise CheckerFailed(said)
    return _by_line((match["file"], int(match["line"]), match["code"]) for match in found if match)


def pyright(files: Iterable[Path]) -> Findings:
    """Return what pyright finds, with the settings beside this module."""
    settings = json.loads((HERE / "pyrightconfig.json").read_text(encoding="utf-8"))
    assert sorted(settings["include"]) == sorted(file.name for file in files)
    options = ["--project", str(HERE), "--pythonpath", sys.executable, "--outputjson"]
    said = json.loads(_run([sys.executable, "-m", "pyright", *options]))
    if said["summary"]["filesAnalyzed"] != len(settings["include"]):
        raise CheckerFailed(str(said))
    errors = [each for each in said["generalDiagnostics"] if each["severity"] == "error"]
    return _by_line(
        (each["file"], each["range"]["start"]["line"] + 1, each["rule"].removeprefix("report"))
        for each in errors
    )


def _run(command: list[str]) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode not in (0, 1):
        raise CheckerFailed(done.stdout + done.stderr)
    return done.stdout


def _by_line(found: Iterable[tuple[str, int, str]]) -> Findings:
    by_file: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for file, line, code in found:
        by_file[Path(file).name][line].add(code)
    return {
        file: {line: frozenset(codes) for line, codes in lines.items()} for file, lines in by_file.items()
    }
