"""Stacks of failed scripts: a recursion is told once, with how often, and every caller is counted."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from rich.console import Console

from dalsegno.cli.views.source import print_stack
from tests.cli.conftest import Invoke
from tests.cli.documents import write


def printed(*stack: str) -> list[str]:
    error: dict[str, Any] = {"stack": list(stack)}
    console = Console(file=io.StringIO(), width=80)
    print_stack(console, error, None)
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


def test_equal_frames_are_one_with_a_count() -> None:
    assert printed("g (flow:3)", "f (flow:1)", "f (flow:1)", "main (flow:2)") == [
        "  at g  flow:3",
        "  at f  flow:1",
        "       … 2 times",
        "  at main  flow:2",
    ]


def test_callers_that_are_not_shown_are_counted() -> None:
    frames = [f"f{number} (flow:{number})" for number in range(1, 15)]
    assert printed(*frames)[-2:] == ["  at f12  flow:12", "  and 2 more callers"]
    assert printed(*frames, "… and 470 more")[-1] == "  and 472 more callers"
    assert printed("f (flow:1)", "… and 1 more")[-1] == "  and 1 more caller"
    assert printed() == []


def test_endless_recursion_tells_how_deep_it_was(invoke: Invoke, folder: Path) -> None:
    write(folder, rec_flow="function f(n) { return 1 + f(n + 1) }\nreturn f(0)\n")
    failed = invoke("run", "rec.flow").stdout
    assert failed.count("  at ") == 1
    assert "… 30 times" in failed
    assert "and 470 more callers" in failed
    assert "The same would fail again" in failed


ENDLESS = """
from dalsegno import App

app = App()


@app.workflow
async def endless():
    async def deeper(n):
        return await deeper(n + 1)

    return await deeper(0)
"""


def test_endless_recursion_of_a_python_workflow_is_a_limit_too(invoke: Invoke, folder: Path) -> None:
    write(folder, endless_py=ENDLESS)
    failed = invoke("run", "endless.py").stdout
    assert "LimitExceeded" in failed
    assert "more than 500 calls of async functions inside each other" in failed
    assert "and 470 more callers" in failed
    assert "The same would fail again" in failed
