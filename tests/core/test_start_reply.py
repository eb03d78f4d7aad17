"""How an execution stands after its first commit: said only where it is plain."""

from __future__ import annotations

from msgspec.structs import replace

from dalsegno.core.graph.start import StartReply, begun
from dalsegno.core.pending import submit
from dalsegno.core.scripts.ending import fail_at_start
from dalsegno.core.scripts.step import start_script
from dalsegno.lang.runtime.effects import ErrorValue
from dalsegno.model.barrier import BarrierSpec
from dalsegno.model.effect import ResolveSlot
from dalsegno.model.execution import NewExecution
from dalsegno.model.token import NewToken
from dalsegno.model.transition import Applied

NEW = NewExecution("e" * 32, "greet", 1, "hash", b"{}", 100.0, kind="script")


def test_a_start_runs_and_has_one_event() -> None:
    assert begun(start_script(NEW, 100.0, timeout=5.0), Applied()) == StartReply(NEW, "RUNNING", 1)


def test_a_submission_is_pending() -> None:
    assert begun(submit(NEW, 100.0, due=160.0), Applied()) == StartReply(NEW, "PENDING", 1)


def test_what_ended_at_once_is_looked_up() -> None:
    failed = fail_at_start(NEW, ErrorValue("X", "no"), 100.0)
    assert begun(failed, Applied(ended="FAILED")) is None
    assert begun(start_script(NEW, 100.0, None), Applied(ended="COMPLETED")) is None


def test_an_arrival_at_a_barrier_leaves_events_of_its_own() -> None:
    join = NewToken("j" * 32, "", "node", "merge", b"", "default")
    arrival = ResolveSlot(BarrierSpec("b", "", "merge", 2, join), 0, live=True)
    first = start_script(NEW, 100.0, None)
    assert begun(replace(first, effects=(*first.effects, arrival)), Applied()) is None
