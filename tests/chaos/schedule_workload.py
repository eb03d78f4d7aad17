"""Schedules for a storm. Missed times are all made up for, so that what each of them has started can be counted."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass

from dalsegno import App
from dalsegno.core.schedules.step import iso
from tests.servers.postgres import PostgresServer

TICK = """
workflow tick(inputs) {
  return await Task.run("book", inputs.n)
}
"""
SECONDS_BETWEEN = {"often": 1, "seldom": 2, "jittery": 1}
MINUTELY = "minutely"
"""By a cron line, where the storm is long enough for one of its times."""
MARKS = {"often": -1, "seldom": -2, "jittery": -3, MINUTELY: -4}
"""What the executions of each schedule book: nobody else books numbers below zero."""
MOST = 10_000

STARTED = """
SELECT name.value, at.value FROM dalsegno.execution
JOIN dalsegno.execution_tag AS name ON name.execution = id AND name.name = 'schedule'
JOIN dalsegno.execution_tag AS at ON at.execution = id AND at.name = 'scheduled_at'
WHERE relation = 'schedule'
"""
ENDED = "SELECT convert_from(output, 'UTF8') FROM dalsegno.execution WHERE kind = 'schedule'"
BOOKED = "SELECT number, count(*) FROM public.booked WHERE number < 0 GROUP BY 1"


@dataclass(frozen=True, slots=True)
class ScheduleWorkload:
    """From ``start`` to ``end``, both included, in whole Unix seconds."""

    start: int
    end: int

    @classmethod
    def of_the_next(cls, seconds: float) -> ScheduleWorkload:
        start = int(time.time()) + 2
        return cls(start, start + int(seconds))

    def add_to(self, client: App) -> None:
        client.deploy_script(TICK)
        for name, times in self.times().items():
            client.schedules.add(
                name,
                "* * * * *" if name == MINUTELY else f"every {SECONDS_BETWEEN[name]}s",
                "tick",
                input={"n": MARKS[name]},
                missed="all",
                catch_up=MOST,
                jitter=0.8 if name == "jittery" else 0,
                start=float(self.start),
                end=float(self.end),
            )
            assert times, f"the schedule '{name}' has no time"

    def times(self) -> dict[str, list[int]]:
        """When each of them is to start something, reckoned without the engine's help."""
        between = {
            name: list(range(self.start, self.end + 1, step)) for name, step in SECONDS_BETWEEN.items()
        }
        minutes = [second for second in range(self.start, self.end + 1) if second % 60 == 0]
        return between | ({MINUTELY: minutes} if minutes else {})

    def executions(self) -> int:
        """The schedules themselves, and what they start."""
        return sum(1 + len(times) for times in self.times().values())

    def check(self, postgres: PostgresServer, database: str) -> int:
        """Every time has started one execution, which has had its effect once. Returns how many there were."""
        times = self.times()
        wanted = Counter((name, str(iso(at))) for name, all_of_it in times.items() for at in all_of_it)
        started = Counter(_pairs(postgres.psql(STARTED, database)))
        assert started == wanted, {"twice or unasked": started - wanted, "never": wanted - started}
        booked = dict(_pairs(postgres.psql(BOOKED, database)))
        assert booked == {str(MARKS[name]): str(len(all_of_it)) for name, all_of_it in times.items()}
        said = [json.loads(line) for line in postgres.psql(ENDED, database).splitlines()]
        counts = sorted((each["started"], each["passed"]) for each in said)
        assert counts == sorted((len(all_of_it), 0) for all_of_it in times.values())
        return wanted.total()


def _pairs(rows: str) -> list[tuple[str, str]]:
    return [(first, second) for first, _, second in (row.partition("|") for row in rows.splitlines())]
