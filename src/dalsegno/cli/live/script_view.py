"""The live view of a script: its current line, its tasks, and what it waits for."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from dalsegno.cli.live.graph_progress import Activity, activity_texts
from dalsegno.cli.live.graph_view import ACTIVE_STATES, BRIEF, head_line
from dalsegno.cli.live.published_view import MOST_ROWS, published_rows
from dalsegno.cli.live.script_progress import BLOCK, Pending, ScriptMoment
from dalsegno.cli.next_command import Command, countdown
from dalsegno.cli.output import STYLES, signs_for, span
from dalsegno.cli.views.approvals import next_program_steps
from dalsegno.cli.views.source import excerpt
from dalsegno.core.scripts.source_text import SourceText
from dalsegno.core.states import NodeSummary
from dalsegno.lang.runtime.effects import display_name
from dalsegno.model.execution import ENDED

FEWEST_ROWS = 4


class ScriptView:
    """Draws moments of one execution on one console."""

    def __init__(self, source: SourceText | None, console: Console, command: Command) -> None:
        self.source = source
        self.console = console
        self.command = command
        self.signs = signs_for(console)

    def draw(self, moment: ScriptMoment) -> Group:
        parts: list[RenderableType] = [head_line(moment.execution, moment.now, self.signs)]
        lines = self._lines(moment)
        if lines:
            parts += [Text(), *lines, Text()]
        signals = [each for each in moment.pending if each.kind == "signal" and not each.received]
        asked = next_program_steps(moment.activities, self.command, moment.execution.id)
        below = min(len(moment.published), MOST_ROWS + 1)
        room = self.console.height - len(parts) - len(signals) - len(asked) - below - 2
        parts.append(self._rows(moment, max(room, FEWEST_ROWS)))
        parts += published_rows(moment.published, self.signs, self.console.width)
        parts += [self._how_to_signal(moment, each) for each in signals]
        parts += [Text.assemble((f"  {intro} ", "dim"), line, overflow="fold") for intro, line in asked]
        return Group(*parts)

    def _lines(self, moment: ScriptMoment) -> list[Text]:
        if self.source is None or not moment.line:
            return []
        return excerpt(self.source, moment.line, self.signs)

    # -- rows -------------------------------------------------------------------------------------------------

    def _rows(self, moment: ScriptMoment, room: int) -> Table:
        grid = Table.grid(padding=(0, 2))
        grid.add_column(no_wrap=True, overflow="ellipsis", max_width=max(self.console.width // 2, 20))
        grid.add_column(no_wrap=True, overflow="ellipsis")
        grid.add_column(no_wrap=True, justify="right", style="dim")
        rows = [*self._program(moment), *self._waits(moment), *self._tasks(moment)]
        for row in rows if len(rows) <= room else rows[: room - 1]:
            grid.add_row(*row)
        if len(rows) > room:
            grid.add_row(Text(f"  {self.signs.ellipsis} {len(rows) - room + 1:,} more", "dim"), "", "")
        return grid

    def _program(self, moment: ScriptMoment) -> Iterator[tuple[Text, Text, str]]:
        """Return a row for the program while it has a step to run, and for its cancellation."""
        if moment.turning == "running":
            yield self._row(self.signs.spin(moment.now), "RUNNING", "the program", "is running")
        elif moment.turning == "queued":
            held = moment.execution.state == "PAUSED"
            doing = "held: the execution is paused" if held else "waits for a worker"
            yield self._row(self.signs.states["QUEUED"], "QUEUED", "the program", doing)
        elif moment.turning == "put off":
            doing = "waits for a worker that has its code"
            yield self._row(self.signs.states["QUEUED"], "QUEUED", "the program", doing)
        elif moment.turning == "gone":
            yield self._row(self.signs.states["FAILED"], "FAILED", "the program", "lost its process")
        if moment.cleanup:
            yield self._row(self.signs.states["CANCELLED"], "CANCELLED", "clean-up", moment.cleanup)

    def _waits(self, moment: ScriptMoment) -> Iterator[tuple[Text, Text, str]]:
        sign = self.signs.states["WAITING"]
        for each in moment.pending:
            left = countdown(each.due - moment.now) if each.due is not None else ""
            if each.kind == "timer":
                more = f" {self.signs.dot} {each.count - 1:,} more later" if each.count > 1 else ""
                yield self._row(sign, "WAITING", "timer", f"fires in {left}{more}")
            elif each.received:
                yield self._row(
                    sign, "WAITING", f"{each.kind} {each.name}", "has arrived, and is not taken yet"
                )
            elif each.kind in ("signal", "request"):
                doing = f"has not arrived {self.signs.dot} gives up in {left}" if left else "has not arrived"
                yield self._row(sign, "WAITING", f"{each.kind} {each.name}", doing)
            elif each.kind == "child":
                spin = self.signs.spin(moment.now)
                yield self._row(spin, "RUNNING", f"workflow {each.name}", f"execution {each.execution}")
            else:
                yield self._row(sign, "WAITING", _limit(each), f"in {left}" if left else "")

    def _tasks(self, moment: ScriptMoment) -> Iterator[tuple[Text, Text, str]]:
        """Return rows of tasks: those that run or wait first, then those that failed, then those that are done."""
        order = {state: place for place, state in enumerate(ACTIVE_STATES)}
        for name in sorted(moment.tasks, key=lambda name: order.get(moment.tasks[name].state, len(order))):
            summary = moment.tasks[name]
            live = moment.execution.state not in ENDED
            activity = moment.activities.get(name) if live else None
            busy = activity is not None and activity.running > 0
            sign = self.signs.spin(moment.now) if busy else self.signs.states[summary.state]
            shown, words, _ = self._row(
                sign, summary.state, display_name(name), self._doing(summary, activity, moment)
            )
            yield shown, words, self._time(name, moment, busy=busy)

    def _row(self, sign: str, state: str, name: str, doing: str) -> tuple[Text, Text, str]:
        quiet = state in ("PENDING", "SKIPPED", "COMPLETED")
        return (
            Text.assemble("  ", (sign, STYLES[state]), " ", name),
            Text(doing, "dim" if quiet else STYLES[state]),
            "",
        )

    def _doing(self, summary: NodeSummary, activity: Activity | None, moment: ScriptMoment) -> str:
        words = []
        if activity is not None:
            words = activity_texts(activity, paused=moment.execution.state == "PAUSED")
            if activity.running and activity.attempt > 1:
                words[0] += f" (attempt {activity.attempt})"
            words += _sleeping(activity, moment.now)
        done = summary.runs - summary.failed
        if done:
            words.append(f"{done:,} done" if done > 1 or words or summary.failed else "done")
        if summary.failed:
            words.append(f"{summary.failed:,} failed" if summary.failed > 1 or words else "failed")
        return f" {self.signs.dot} ".join(words) or summary.state.lower()

    def _time(self, name: str, moment: ScriptMoment, *, busy: bool) -> str:
        began, ended = moment.began.get(name), moment.ended.get(name)
        if busy:
            return span(moment.now - began) if began is not None and (ended or 0) < began else ""
        summary = moment.tasks[name]
        if began is None or ended is None or summary.runs != 1 or ended - began < BRIEF:
            return ""
        return span(ended - began)

    def _how_to_signal(self, moment: ScriptMoment, pending: Pending) -> Text:
        line = self.command.signal(moment.execution.id, pending.name)
        return Text.assemble(("  send it: ", "dim"), line, overflow="fold")


def _sleeping(activity: Activity, now: float) -> list[str]:
    if not activity.sleeping:
        return []
    count = f"{activity.sleeping:,} " if activity.sleeping > 1 else ""
    left = f" in {countdown(activity.due - now)}" if activity.due is not None else ""
    if activity.asks:
        gives_up = f", gives up{left}" if left else ""
        return [f"{count}wait{'' if activity.sleeping > 1 else 's'} for a decision{gives_up}"]
    if activity.retrying:
        return [f"{count}attempt {activity.retrying}{left}"]
    return [f"{count}begin{'' if activity.sleeping > 1 else 's'}{left}"]


def _limit(pending: Pending) -> str:
    names = {"grace": "ends, cleaned up or not,", BLOCK: "gives up when the timeout() around it expires"}
    return names.get(pending.name, "its own timeout")
