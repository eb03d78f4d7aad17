"""Pictures of the architecture page: the layers, the walk of a token through one step, and the states of a token."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scripts.pages import state_diagram
from scripts.pages.svg import Drawing

PROJECT = Path(__file__).parents[2] / "pyproject.toml"

# -- layers -----------------------------------------------------------------------------------------------------------

FILL = {
    "shell": ("cli", "testing", "bench", "server", "client", "remote_worker", "app", "schedules", "starts", "handle",
              "event_loop_host", "wiring", "step_process", "job_process", "admin", "adapters", "engine", "nodes"),
    "port": ("ports",),
    "pure": ("core", "graph", "lang", "model"),
    "plain": ("errors", "error_causes", "version"),
}  # fmt: skip
BOXES: tuple[tuple[tuple[str, str], ...], ...] = (
    (("cli", "commands, live views"), ("bench", "measurements"), ("testing", "kit, contract, simulator")),
    (("server", "HTTP"), ("client", "HTTP, from Python"), ("remote_worker", "tasks over HTTP")),
    (
        ("app", "public interface"), ("schedules", "app.schedules"), ("starts", "app.start"),
        ("handle", "one execution"), ("event_loop_host", "thread or own loop"), ("wiring", "URL → adapters"),
    ),
    (("step_process", "heavy steps"), ("job_process", "checks, large bodies"), ("admin", "keys, webhooks, alerts")),
    (("adapters", "memory, SQLite, PostgreSQL"), ("engine", "workers, committer, timers"), ("nodes", "node library")),
    (("core", "decisions → transitions"), ("ports", "protocols, guarantees")),
    (("graph", "documents → plans"),),
    (("lang", "expressions, scripts, Python workflows → machines"),),
    (("model", "frozen values: tokens, effects, transitions, events"),),
    (("errors", "all errors"), ("version", ""), ("error_causes", "causes and cures")),
)  # fmt: skip
"""Rows from top to bottom. A row may hold several layers of the contract, in their order."""
RIGHT = frozenset(
    (
        "cli",
        "app",
        "schedules",
        "starts",
        "handle",
        "event_loop_host",
        "step_process",
        "job_process",
        "errors",
    )
)
"""Boxes that may import the one to their right."""
TO_THE_LEFT = frozenset(("testing", "error_causes"))
"""Boxes that may import the one to their left."""

WIDTH, LEFT, TOP = 900.0, 24.0, 24.0
ROW, SPACE = 52.0, 14.0


def layers() -> str:
    """The layers as import-linter enforces them; raises ValueError where the picture says something else."""
    _check_layers()
    drawing = Drawing(
        WIDTH, TOP + len(BOXES) * (ROW + SPACE) + 46, "Layers: each imports only those below it"
    )
    fills = {name: fill for fill, names in FILL.items() for name in names}
    for number, row in enumerate(BOXES):
        y = TOP + number * (ROW + SPACE)
        gap = 26.0
        each = (WIDTH - 2 * LEFT - (len(row) - 1) * gap) / len(row)
        for place, (name, caption) in enumerate(row):
            x = LEFT + place * (each + gap)
            lines = [name, caption] if caption else [name]
            drawing.labelled(x, y, each, ROW, fills[name], lines)
            if name in RIGHT:
                drawing.arrow([(x + each, y + ROW / 2), (x + each + gap, y + ROW / 2)])
            if name in TO_THE_LEFT:
                drawing.arrow([(x, y + ROW / 2), (x - gap, y + ROW / 2)])
        if number:
            drawing.arrow([(LEFT + 72, y - SPACE), (LEFT + 72, y)])
            drawing.arrow([(WIDTH - LEFT - 72, y - SPACE), (WIDTH - LEFT - 72, y)])
    _legend(drawing, TOP + len(BOXES) * (ROW + SPACE) + 8)
    return drawing.svg()


def _legend(drawing: Drawing, y: float) -> None:
    entries = (
        ("shell", "shell: I/O, clocks, threads"),
        ("pure", "functional core: none of these"),
        ("port", "protocols"),
        ("plain", "shared by all"),
    )
    x = LEFT
    for fill, words in entries:
        drawing.box(x, y, 16, 16, fill, corner=3)
        drawing.text(x + 24, y + 12.5, words, anchor="start")
        x += 24 + len(words) * 7 + 26
    drawing.arrow([(x, y + 8), (x + 26, y + 8)])
    drawing.text(x + 34, y + 12.5, "may import", anchor="start")


def _check_layers() -> None:
    """Every layer of the contract stands in a row, and none above one that may import it."""
    rows = {name: number for number, row in enumerate(BOXES) for name, _ in row}
    before = 0
    for layer in _contract():
        for name in layer:
            if name not in rows:
                raise ValueError(f"the picture of the layers lacks {name!r}, which pyproject.toml lists")
            if rows[name] < before:
                raise ValueError(f"the picture of the layers shows {name!r} too high")
        before = max(rows[name] for name in layer)
    unknown = rows.keys() - {name for layer in _contract() for name in layer}
    if unknown:
        raise ValueError(
            f"the picture of the layers shows {sorted(unknown)}, which pyproject.toml does not list"
        )


def _contract() -> list[list[str]]:
    """The layers of the first contract, from top to bottom; `__main__` is the command line."""
    with PROJECT.open("rb") as file:
        project: dict[str, Any] = tomllib.load(file)
    [found] = [
        contract["layers"]
        for contract in project["tool"]["importlinter"]["contracts"]
        if "containers" in contract
    ]
    layers = [[name.strip(" ()") for name in layer.split("|")] for layer in found]
    return [layer for layer in layers if layer != ["__main__"]]


# -- one step ---------------------------------------------------------------------------------------------------------

LANES = (
    ("worker", "engine/worker"),
    ("steps", "engine/steps"),
    ("core", "core/graph"),
    ("committer", "engine/committer.py"),
    ("store", "adapters/*"),
)
WORKER, STEPS, CORE, COMMITTER, STORE = range(len(LANES))
LANE, FIRST_LANE, STEP = 190.0, 80.0, 44.0

MESSAGES: tuple[tuple[int, int, str], ...] = (
    (WORKER, STORE, "1. claim ready tokens"),
    (STORE, WORKER, "2. leases: token, data, fence"),
    (WORKER, STEPS, "3. step(lease)"),
    (STEPS, STORE, "4. read the outputs that the parameters mention"),
    (STEPS, STEPS, "5. render the parameters, run the node"),
    (STEPS, CORE, "6. what the node returned"),
    (CORE, WORKER, "7. transition: effects and events"),
    (WORKER, COMMITTER, "8. commit, keep tokens"),
    (COMMITTER, STORE, "9. one batch"),
    (STORE, STORE, "10. settle, write, commit"),
    (STORE, COMMITTER, "11. Applied"),
    (COMMITTER, WORKER, "12. kept tokens: repeat from 3"),
    (COMMITTER, STORE, "13. announce other tokens"),
)


def one_step() -> str:
    """The messages of one step, from claim to commit."""
    bottom = 96 + len(MESSAGES) * STEP + 6
    drawing = Drawing(FIRST_LANE * 2 + LANE * (len(LANES) - 1) + 10, bottom + 20, "One step of a graph")
    centres = [FIRST_LANE + LANE * number for number in range(len(LANES))]
    for number, (name, folder) in enumerate(LANES):
        fill = "pure" if number == CORE else "shell"
        drawing.line((centres[number], 72), (centres[number], bottom))
        drawing.labelled(centres[number] - 70, 20, 140, 52, fill, [name, folder])
    for number, (sender, receiver, words) in enumerate(MESSAGES):
        y = 96 + STEP * number + 20
        start, end = centres[sender], centres[receiver]
        if sender == receiver:
            drawing.arrow([(start, y - 10), (start + 28, y - 10), (start + 28, y + 8), (start, y + 8)])
            drawing.note(start + (-90 if sender == STORE else 36 + len(words) * 3.2), y + 3, words)
        else:
            drawing.arrow([(start, y), (end, y)])
            drawing.note((start + end) / 2, y - 7, words)
    return drawing.svg()


# -- states of a token ------------------------------------------------------------------------------------------------

TOKEN_MOVES: dict[str, Sequence[str]] = {
    "held": ("ready", "cancelled"),
    "ready": ("held", "leased", "cancelled"),
    "leased": ("ready", "parked", "consumed", "cancelled"),
    "parked": ("ready", "held", "cancelled"),
    "consumed": (),
    "cancelled": (),
}
LABELS = {
    ("held", "ready"): "resume",
    ("ready", "held"): "paused",
    ("ready", "leased"): "claim",
    ("leased", "ready"): "given back,\nor worker died",
    ("leased", "parked"): "wait, retry",
    ("parked", "ready"): "due, signal, all slots resolved",
    ("parked", "held"): "the same, while paused",
}


def token_states() -> str:
    return state_diagram.draw("States of a token", TOKEN_MOVES, "ready", LABELS)
