"""Every key name, and nothing else knows one.

With a partition every name carries its tag, so that a Redis Cluster keeps state, queues and timers of one execution
in one slot. Without one the names are those that other programs know.
"""

from __future__ import annotations

import msgspec

SUFFIXES = {
    "state": ":state",
    "done": ":done",
    "about": ":about",
    "scopes": ":scopes",
    "barriers": ":barriers",
    "gates": ":gates",
    "outputs": ":outputs",
    "slots": ":slots:",
    "left": ":left:",
}
"""After ``exec:<id>``, all HASHes. state: ``flight`` (state and counters), unfinished tokens and their payloads ·
done: digests of finished tokens · about: what it is and how it ended · slots:<barrier>, left:<scope>."""

FIELDS = {"token_field": "t:", "data_field": "d:"}
"""Before a token's id in ``state``: its row, its payload."""


class Keys:
    """Names of one partition."""

    def __init__(self, partition: str | None = None) -> None:
        tag = f"{{{partition}}}:" if partition is not None else ""
        self.executions = f"exec:{tag}"
        self.ready = f"ready:{tag}"
        """ZSET per queue: ready tokens by priority and age."""
        self.timers = f"scheduler:{tag}timers"
        self.events = f"wf:{tag}events"
        self.turn = f"wf:{tag}turn"
        self.outbox = f"wf:{tag}outbox"
        self.outbox_entries = f"wf:{tag}outbox:entries"
        self.outbox_about = f"wf:{tag}outbox:about"
        self.shared: tuple[str, ...] = (
            self.timers,
            self.events,
            self.turn,
            self.outbox,
            self.outbox_entries,
            self.outbox_about,
        )
        """What every script gets as its first KEYS."""
        self.names: tuple[str | bytes, ...] = (
            self.executions,
            self.ready,
            msgspec.msgpack.encode(SUFFIXES | FIELDS),
        )
        """What every script gets as ARGV after the time."""

    def base(self, execution: str) -> str:
        return f"{self.executions}{execution}"

    def of(self, execution: str, what: str, which: str = "") -> str:
        """A key of one execution; ``which`` names the barrier of slots, or the scope of what was left."""
        return f"{self.executions}{execution}{SUFFIXES[what]}{which}"
