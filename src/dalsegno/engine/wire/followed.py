"""An execution whose statuses this process makes: its folded history, and how far the broker has confirmed it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from dalsegno.core.wire.statuses import Names, Status, Statuses
from dalsegno.model.event import Event


@dataclass(slots=True)
class Sent:
    """Statuses that were published together, straight from a commit."""

    statuses: Sequence[Status]
    seq: int
    """Number of the last event that they were made from."""
    confirmed: int | None = None
    """How many of them, from the first on, the broker has confirmed; None while it has not answered."""


@dataclass(slots=True)
class Followed:
    execution: str
    statuses: Statuses
    names: Names
    priority: int
    traceparent: str
    unsent: list[Status] = field(default_factory=list)
    """Made and neither confirmed nor on their way, in order."""
    confirmed: int = 0
    """Number of the last event of which every status is confirmed."""
    claimed_until: float = 0.0
    """Time until which no other process publishes this execution, so that its commits are published without a round."""
    changed_at: float = 0.0
    """When the last commit was published that way."""
    round_at: float = 0.0
    """When the last round with messages of it ended."""
    on_their_way: deque[Sent] = field(default_factory=deque)

    def goes_on_with(self, events: Sequence[Event]) -> bool:
        """Return True if these are the next events, and nothing before them waits for a round."""
        return bool(events) and not self.unsent and events[0].seq == self.statuses.seq + 1

    def add(self, events: Iterable[Event]) -> None:
        """Fold events; the statuses of those that are not confirmed yet are to be sent."""
        for event in events:
            made = self.statuses.add(event)
            if event.seq > self.confirmed:
                self.unsent += made
        if (workflow := self.statuses.workflow_id) and workflow != self.names.workflow_id:
            self.names = Names(workflow, self.execution)

    def may_be_sent(self) -> bool:
        """Return True if the statuses at hand contain everything their messages need: no output is stored apart."""
        return all(status.output_ref is None for status in self.unsent)

    def send(self) -> Sent:
        """Take the statuses that are not sent."""
        sent = Sent(self.unsent, self.statuses.seq)
        self.unsent = []
        self.on_their_way.append(sent)
        return sent

    def answered(self, sent: Sent, confirmed: int) -> bool:
        """Note the broker's answer. Return False if it is the last one and something was not confirmed: that is unsent
        again.
        """
        sent.confirmed = confirmed
        waiting = self.on_their_way
        while waiting and waiting[0].confirmed == len(waiting[0].statuses):
            self.confirmed = waiting.popleft().seq
        if not waiting or any(each.confirmed is None for each in waiting):
            return True
        lost = [status for each in waiting for status in each.statuses[each.confirmed :]]
        waiting.clear()
        self.unsent = lost + self.unsent
        return False

    def continue_from(self, mark: int) -> None:
        """Pass over what is published up to this event, by whichever process."""
        self.confirmed = max(self.confirmed, mark)
        self.unsent = [status for status in self.unsent if status.number > self.confirmed]

    def drop(self, statuses: Sequence[Status], count: int) -> None:
        """Drop the first of the unsent statuses: so many of these are confirmed."""
        self.unsent = self.unsent[count:]
        if count < len(statuses):
            self.confirmed = max(self.confirmed, statuses[count].number - 1)
        elif self.unsent:
            self.confirmed = self.unsent[0].number - 1
        else:
            self.confirmed = self.statuses.seq
