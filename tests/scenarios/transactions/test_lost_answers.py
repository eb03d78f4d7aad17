"""Steps in transactions whose answer is lost after they were committed: the execution goes on."""

from __future__ import annotations

from typing import Any

import pytest

from dalsegno.errors import Unavailable
from dalsegno.model.transition import Outcome, Transition
from tests.scenarios.documents import graph, task
from tests.scenarios.transactions.own_table import OwnTable
from tests.waiting import until

GRAPH = graph("a > b", {"a": task("pay", "{{ $trigger }}"), "b": task("echo", "{{ $a }}")})
SCRIPT = """workflow paying(inputs) {
  let paid = await Task.run("pay", inputs)
  return await Task.run("echo", paid)
}
"""


@pytest.mark.parametrize("kind", ["graph", "script"])
def test_what_a_committed_step_spawned_is_run_though_its_answer_is_lost(
    own_table: OwnTable, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = own_table.stage.app.engine
    committer, worker = engine.committer, engine.worker
    assert worker is not None
    commit_within = committer.commit_within
    lost: list[Outcome] = []

    async def lose_the_first_answer(transaction: Any, transition: Transition) -> Outcome:
        if lost:
            return await commit_within(transaction, transition)
        lost.append(await transaction.commit(transition))
        raise Unavailable("the answer is lost")

    monkeypatch.setattr(committer, "commit_within", lose_the_first_answer)
    inputs = {"name": "a", "amount": 5}
    ended = (
        own_table.stage.run(GRAPH, inputs) if kind == "graph" else own_table.stage.run_script(SCRIPT, inputs)
    )

    assert (ended.state, ended.output) == ("COMPLETED", "paid a"), ended.error
    assert (len(lost), own_table.runs, own_table.paid()) == (1, 1, [("a", 5)])
    until(lambda: not worker.running, "what broke is handed back")
