"""The live view of a graph: its nodes as a tree, with states, bars, countdowns and durations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from dalsegno.cli.live.graph_progress import Activity, Snapshot, activity_texts
from dalsegno.cli.live.published_view import MOST_ROWS, published_rows
from dalsegno.cli.next_command import Command, countdown
from dalsegno.cli.output import STYLES, Signs, signs_for, span
from dalsegno.cli.views.approvals import next_steps
from dalsegno.core.states import NodeSummary
from dalsegno.graph.plan import Node, Plan
from dalsegno.model.execution import ENDED, ExecutionView

BAR = 16
BRIEF = 0.001
"""Seconds; shorter runs show no duration."""
ACTIVE_STATES = ("RUNNING", "QUEUED", "WAITING", "FAILED", "CANCELLED")
"""States that are shown first if there is no room for all nodes."""


@dataclass(frozen=True, slots=True)
class Row:
    """A node and the tree lines before it."""

    node: Node
    guides: str


def rows_of(plan: Plan, signs: Signs) -> list[Row]:
    """Return the rows in topological order. Nodes that run for each item are placed below their split."""
    return _branch(plan, [name for name in plan.topological if plan.nodes[name].split is None], "", signs)


def _branch(plan: Plan, names: Sequence[str], guides: str, signs: Signs) -> list[Row]:
    rows: list[Row] = []
    for name in names:
        is_last = name == names[-1]
        rows.append(Row(plan.nodes[name], guides + (signs.last if is_last else signs.branch)))
        inside = plan.members.get(name, ())
        if inside:
            rows += _branch(plan, inside, guides + ("   " if is_last else signs.through), signs)
    return rows


class TreeView:
    """Draws snapshots of one execution on one console."""

    def __init__(self, plan: Plan, console: Console, command: Command | None = None) -> None:
        """``command``: show below the tree the commands that a user can run to move the execution on."""
        self.plan = plan
        self.console = console
        self.command = command
        self.signs = signs_for(console)
        self.rows = rows_of(plan, self.signs)

    def draw(self, snapshot: Snapshot) -> Group:
        grid = Table.grid(padding=(0, 2))
        grid.add_column(no_wrap=True, overflow="ellipsis", max_width=max(self.console.width // 2, 20))
        grid.add_column(no_wrap=True, overflow="ellipsis", min_width=BAR + 8)
        grid.add_column(no_wrap=True, justify="right", style="dim")
        for row in self._fitting(snapshot):
            if isinstance(row, str):
                grid.add_row(Text(row, "dim"), "", "")
            else:
                grid.add_row(
                    self._name(row, snapshot), self._doing(row.node, snapshot), self._time(row.node, snapshot)
                )
        return Group(
            head_line(snapshot.execution, snapshot.now, self.signs),
            grid,
            *published_rows(snapshot.published, self.signs, self.console.width),
            *self._next_steps(snapshot),
        )

    def _next_steps(self, snapshot: Snapshot) -> list[Text]:
        execution = snapshot.execution
        if self.command is None or execution.state in ENDED:
            return []
        steps = next_steps(snapshot.activities, self.command, execution.id)
        return [Text.assemble((f"  {intro} ", "dim"), line, overflow="fold") for intro, line in steps]

    # -- parts ------------------------------------------------------------------------------------------------

    def _name(self, row: Row, snapshot: Snapshot) -> Text:
        state = self._state(row.node, snapshot)
        quiet = state in ("PENDING", "SKIPPED")
        return Text.assemble(
            (row.guides, "dim"),
            (self.signs.states[state], STYLES[state]),
            " ",
            (row.node.id, "dim" if quiet else ""),
        )

    def _state(self, node: Node, snapshot: Snapshot) -> str:
        """Return the state to show. A split is running until its last item has ended."""
        arrived, expected = snapshot.counts.get(node.id, (0, 0))
        if node.control == "split" and arrived < expected and snapshot.execution.state not in ENDED:
            return "RUNNING"
        return snapshot.summaries[node.id].state

    def _doing(self, node: Node, snapshot: Snapshot) -> Text:
        summary = snapshot.summaries[node.id]
        if node.control == "split" and node.id in snapshot.counts:
            return self._bar(*snapshot.counts[node.id], failed=self._failed_inside(node, snapshot))
        if summary.state in ("SKIPPED", "CANCELLED", "FAILED") and not summary.waiting:
            return _counted(summary, STYLES[summary.state])
        activity = snapshot.activities.get(node.id)
        if activity is not None and snapshot.execution.state not in ENDED:
            return self._activity(node, activity, snapshot)
        if summary.runs > 1:
            return Text(failed_runs(summary) or f"{summary.runs:,} runs", "dim")
        return Text(node.type if summary.state == "PENDING" else "", "dim")

    def _activity(self, node: Node, activity: Activity, snapshot: Snapshot) -> Text:
        """Describe what the node's tokens do now, without repetition."""
        parts = activity_texts(activity, paused=snapshot.execution.state == "PAUSED")
        if activity.sleeping:
            parts.append(self._sleeping(node, activity, snapshot))
        summary = snapshot.summaries[node.id]
        if summary.runs > summary.failed:
            parts.append(f"{summary.runs - summary.failed:,} done")
        if summary.failed:
            parts.append(f"{summary.failed:,} failed")
        return Text(f" {self.signs.dot} ".join(parts), STYLES[summary.state])

    def _sleeping(self, node: Node, activity: Activity, snapshot: Snapshot) -> str:
        count = f"{activity.sleeping:,} " if activity.sleeping > 1 else ""
        left = f" in {countdown(activity.due - snapshot.now)}" if activity.due is not None else ""
        if activity.retrying:
            return f"{count}attempt {activity.retrying}{left}"
        if activity.awaits:
            return f"{count}waiting for {activity.awaits}" + (f", gives up{left}" if left else "")
        if node.id in snapshot.counts:
            arrived, expected = snapshot.counts[node.id]
            limit = f", gives up{left}" if left else ""
            return f"{arrived:,} of {expected:,} arrived{limit}"
        return f"{count}wakes{left}" if left else f"{count}waiting"

    def _bar(self, arrived: int, expected: int, failed: int) -> Text:
        done = int(BAR * arrived / expected) if expected else BAR
        full, edge, rest = self.signs.bar
        text = Text(full * done, "green")
        if done < BAR:
            text.append(edge if arrived else rest, "green" if arrived else "dim")
            text.append(rest * (BAR - done - 1), "dim")
        text.append(f" {arrived:,}/{expected:,}")
        if failed:
            text.append(f" {failed:,} failed", STYLES["FAILED"])
        return text

    def _failed_inside(self, node: Node, snapshot: Snapshot) -> int:
        return sum(snapshot.summaries[name].failed for name in self.plan.members.get(node.id, ()))

    def _time(self, node: Node, snapshot: Snapshot) -> str:
        """Return how long the node has run, or ran; of a split, until all its items have ended."""
        began, state = snapshot.began.get(node.id), self._state(node, snapshot)
        if began is None or state in ("SKIPPED", "PENDING"):
            return ""
        if state in ("RUNNING", "WAITING", "QUEUED"):
            return span(snapshot.now - began) if snapshot.execution.state not in ENDED else ""
        ended = snapshot.ended.get(node.aggregator or node.id)
        return span(ended - began) if ended is not None and ended - began >= BRIEF else ""

    # -- room -------------------------------------------------------------------------------------------------

    def _fitting(self, snapshot: Snapshot) -> list[Row | str]:
        """Return all rows, or as many as fit: important states first, the others counted where they were omitted."""
        below = min(len(snapshot.published), MOST_ROWS + 1)
        room = max(self.console.height - 3 - below, 5)
        if len(self.rows) <= room:
            return list(self.rows)
        kept = self._kept(snapshot, room // 2 + 1)
        shown: list[Row | str] = []
        left_out = 0
        for row in self.rows:
            if row.node.id in kept:
                shown += [self._left_out(left_out)] if left_out else []
                shown.append(row)
                left_out = 0
            else:
                left_out += 1
        return shown + ([self._left_out(left_out)] if left_out else [])

    def _kept(self, snapshot: Snapshot, room: int) -> set[str]:
        active = [row.node.id for row in self.rows if snapshot.summaries[row.node.id].state in ACTIVE_STATES]
        quiet = [
            row.node.id for row in self.rows if snapshot.summaries[row.node.id].state not in ACTIVE_STATES
        ]
        return {*active[:room], *quiet[: max(room - len(active), 0)]}

    def _left_out(self, count: int) -> str:
        return f"{self.signs.through}{self.signs.ellipsis} {count:,} more"


def head_line(execution: ExecutionView, now: float, signs: Signs) -> Text:
    ended = execution.ended_at if execution.state in ENDED else None
    dot = f" {signs.dot} "
    return Text.assemble(
        (signs.states.get(execution.state, " "), STYLES.get(execution.state, "")),
        " ",
        (execution.workflow, "bold"),
        (f" v{execution.version}" if execution.version else "", "dim"),
        (dot, "dim"),
        (execution.id, "dim"),
        (dot, "dim"),
        (execution.state.lower(), STYLES.get(execution.state, "")),
        (dot, "dim"),
        (span((ended or now) - execution.created_at), "dim"),
        overflow="ellipsis",
        no_wrap=True,
    )


def failed_runs(summary: NodeSummary) -> str:
    """Describe the failed runs of a node that ran several times; empty if no run failed."""
    return f"{summary.failed:,} of {summary.runs:,} runs failed" if summary.failed else ""


def _counted(summary: NodeSummary, style: str) -> Text:
    word = summary.state.lower()
    if summary.runs <= 1:
        return Text(word, style)
    return Text(failed_runs(summary) or f"{word} ({summary.runs:,} runs)", style)
