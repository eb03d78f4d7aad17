"""Stores that run graphs only say so, instead of dropping half of what a script asks for."""

from __future__ import annotations

import pytest

from dalsegno.adapters.flat import Flattener, UnsupportedTransition
from dalsegno.model.effect import DropTokens, FinishExecution, WakeMachine
from dalsegno.model.transition import Park, Transition
from dalsegno.testing.contract.build import command, event, last, new_execution, start, token
from dalsegno.testing.contract.ledger_pending import submit, trigger
from dalsegno.testing.contract.scripts import ask_to_end, done, save, signal, start_script

FLATTENER = Flattener(lambda data: data)
UNSUPPORTED = {
    "script": start_script(),
    "task": start(new_execution(kind="task"), token("a")),
    "child": start(new_execution(notify=b"{}"), token("a")),
    "save": command("run", save(0)),
    "completion": command("run", done(1)),
    "signal": signal(),
    "request": ask_to_end(),
    "drop": command("run", DropTokens(("a",))),
    "wake": command("run", WakeMachine()),
    "hand over": command("run", FinishExecution("COMPLETED", event("ExecutionCompleted"), hand_over=True)),
    "submission": submit(),
    "begin": trigger(),
    "wait": Transition("run", (), token="a", park=Park(None, b"", 1, "signal:x")),
}


@pytest.mark.parametrize("transition", UNSUPPORTED.values(), ids=UNSUPPORTED)
def test_what_scripts_need_is_refused_in_words(transition: Transition) -> None:
    with pytest.raises(UnsupportedTransition, match=r"this store cannot hold .* yet: use a SQLite"):
        FLATTENER.transition(transition)


def test_graph_is_not_refused() -> None:
    flat = FLATTENER.transition(start("run", token("a"), last()))

    assert flat[0] == "run"
    assert [effect[0] for effect in flat[-1]] == ["CreateExecution", "SpawnToken", "EndIfLast"]
