"""The part of the workspace that is about limits: who holds slots, and whose lines may move again."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable

from dalsegno.adapters.sqlite.machines import MachineWorkspace
from dalsegno.adapters.sqlite.statements import SQL
from dalsegno.model.transition import ReadyToken


class LimitWorkspace(MachineWorkspace):
    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(connection)
        self.limits_matter: bool | None = None
        """Whether anything here has a limit key; None: to be looked at. Without one, limits cost nothing."""

    def has_limits(self) -> bool:
        if self.limits_matter is None:
            self.limits_matter = self.connection.execute(SQL["limits.any"]).fetchone() is not None
        return self.limits_matter

    def free_slot(self, key: str) -> Iterable[ReadyToken]:
        if not self.has_limits():
            return ()
        self.connection.execute(SQL["limits.open"], (key,))
        return self.first_in_lines(key)

    def first_in_lines(self, key: str) -> list[ReadyToken]:
        found = self.connection.execute(SQL["limits.lines_of"], (key,))
        return [ReadyToken(token, execution, queue, priority) for queue, token, execution, priority in found]

    def let_go(self, execution: str) -> Collection[str]:
        if not self.has_limits():
            return ()
        number = self._flights[execution].number
        keys = [key for (key,) in self.connection.execute(SQL["limits.used_by"], {"execution": number})]
        if keys:
            self.connection.execute(SQL["limits.unhold"], (number,))
        return keys

    def hold_slot(self, execution: str, key: str) -> None:
        self.connection.execute(SQL["limits.hold"], (key, self._flights[execution].number))
        self.limits_matter = True
