"""The demo: a workflow is killed half-way, resumes, and proves that nothing was lost or doubled.

Run it with `make demo`. It needs nothing but the base installation and takes about twenty seconds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
PHOTOS = 24
KILL_AFTER = 14
"""Photos whose development has begun when the process is killed: the last of them cannot have ended."""
PATIENCE = 60.0

console = Console(highlight=False)


@dataclass(frozen=True, slots=True)
class Stage:
    """Where one demo keeps its things."""

    folder: Path

    @property
    def store(self) -> str:
        return f"sqlite:///{self.folder / 'demo.db'}"

    @property
    def notes(self) -> Path:
        return self.folder / "runs.txt"

    def runs(self) -> list[tuple[str, str, int]]:
        """Every run that began: node, idempotency key, process."""
        if not self.notes.exists():
            return []
        lines = self.notes.read_text().splitlines()
        return [(node, key, int(process)) for node, key, process in (line.split() for line in lines)]

    def begin(self, *arguments: str, stdout: int | None = None) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "dalsegno", *arguments, "--store", self.store]
        environment = {**os.environ, "DEMO_RUNS": str(self.notes)}
        return subprocess.Popen(command, cwd=HERE, env=environment, stdout=stdout)

    def ask(self, *arguments: str) -> dict[str, object]:
        """The answer of a command as JSON."""
        with self.begin(*arguments, "--json", stdout=subprocess.PIPE) as process:
            answer, _ = process.communicate(timeout=PATIENCE)
        return dict(json.loads(answer))


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="dalsegno-demo-") as folder:
        stage = Stage(Path(folder))
        say("Dal Segno: a workflow that resumes where it was killed", style="bold")
        say(
            f"{PHOTOS} photos are developed, six at a time; the prints dry for three seconds; an album is bound.\n"
        )
        killed = run_and_kill(stage)
        explain_kill(stage, killed)
        execution = find_execution(stage)
        ended = resume(stage, execution)
        return prove(stage, execution, killed) if ended == 0 else 1


# -- acts -------------------------------------------------------------------------------------------------------


def run_and_kill(stage: Stage) -> int:
    say("$ dalsegno run demo.yaml --app demo_tasks:app", style="cyan")
    process = stage.begin("run", "demo.yaml", "--app", "demo_tasks:app")
    deadline = time.monotonic() + PATIENCE
    while sum(node == "develop" for node, _, _ in stage.runs()) < KILL_AFTER:
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            raise SystemExit("the demo's first run ended before it could be killed")
        time.sleep(0.02)
    process.kill()
    process.wait()
    if sys.stderr.isatty():
        sys.stderr.write("\x1b[?25h\n")  # a killed process does not tidy up: the cursor was hidden
        sys.stderr.flush()
    return process.pid


def find_execution(stage: Stage) -> str:
    listed = stage.ask("ls")["executions"]
    assert isinstance(listed, list)
    return str(listed[0]["id"])


def explain_kill(stage: Stage, killed: int) -> None:
    say(f"\n$ kill -9 {killed}", style="bold red")
    say(
        f"{len(stage.runs())} task runs had begun; some had not ended. "
        "Their work is lost, the state of the workflow is not.\n"
    )


def resume(stage: Stage, execution: str) -> int:
    say(f"$ dalsegno resume {execution} --app demo_tasks:app", style="cyan")
    return stage.begin("resume", execution, "--app", "demo_tasks:app").wait(timeout=PATIENCE)


def prove(stage: Stage, execution: str, killed: int) -> int:
    """Compares the history with what the tasks themselves wrote down."""
    shown = stage.ask("show", execution, "--events", "10000")
    events = [event for event in shown["events"] if event["kind"] == "NodeCompleted"]  # type: ignore[attr-defined]
    runs = stage.runs()
    tasks = {node for node, _, _ in runs}
    committed = Counter((event["node"], event["scope"] or "") for event in events if event["node"] in tasks)
    began = Counter((node, key) for node, key, _ in runs)
    print_table(committed, began)
    lost = len(runs) - len(committed)
    say(
        f"\n{len(runs)} task runs for {len(committed)} commits: {lost} of them were lost with the killed process and "
        "repeated; every result was recorded once.",
        style="bold",
    )
    problems = check(shown, committed, began, {key for _, key, process in runs if process == killed})
    for problem in problems:
        say(f"The proof failed: {problem}", style="bold red")
    return 1 if problems else 0


def check(
    shown: dict[str, object],
    committed: Counter[tuple[str, str]],
    began: Counter[tuple[str, str]],
    before: set[str],
) -> list[str]:
    expected = PHOTOS + 2
    claims = {
        "the execution did not complete": shown["state"] == "COMPLETED",
        "a result was recorded twice": all(count == 1 for count in committed.values()),
        f"{len(committed)} results were recorded instead of {expected}": len(committed) == expected,
        f"{len(began)} pieces of work were begun instead of {expected}": len(began) == expected,
        "no run was lost, so nothing was shown": any(count == 2 for count in began.values()),
        "something ran again that the killed process had not begun": all(
            count == 1 or key in before for (_, key), count in began.items()
        ),
        "the album lacks photos": isinstance(shown["output"], dict) and shown["output"]["photos"] == PHOTOS,
    }
    return [problem for problem, holds in claims.items() if not holds]


# -- telling ----------------------------------------------------------------------------------------------------


def print_table(committed: Counter[tuple[str, str]], began: Counter[tuple[str, str]]) -> None:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("task")
    for title in ("pieces of work", "task runs", "ran again", "committed"):
        table.add_column(title, justify="right")
    for node in dict.fromkeys(node for node, _ in began):
        pieces = [count for (name, _), count in began.items() if name == node]
        again = sum(count - 1 for count in pieces)
        recorded = sum(count for (name, _), count in committed.items() if name == node)
        table.add_row(node, str(len(pieces)), str(sum(pieces)), str(again), str(recorded))
    console.print()
    console.print(table)


def say(text: str, style: str = "") -> None:
    console.print(text, style=style, markup=False, soft_wrap=not console.is_terminal)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
