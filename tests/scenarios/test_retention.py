"""Retention and what is still owed: an ending is told before the execution it is about may go."""

from __future__ import annotations

import time

from dalsegno import App
from dalsegno.ports.ledger import OutboxEntry
from tests.scenarios.stage import PATIENCE


def _owed(app: App, topic: str) -> OutboxEntry:
    """The only entry of the outbox, once it is there."""
    end = time.monotonic() + PATIENCE
    while not (found := app.host.call(app.client.stack.ledger.outbox())):
        assert time.monotonic() < end, f"nobody wrote an outbox entry '{topic}'"
        time.sleep(0.002)
    [entry] = found
    assert entry.topic == topic
    return entry


def test_a_child_that_ended_stays_until_its_parent_was_told(store_url: str) -> None:
    """Nothing delivers while only the worker runs; retention of no time at all must wait for it."""
    app = App(store_url)
    with app.running(scheduler=False):
        app.deploy_script('await Signal.next("go")\nreturn inputs.n * 2', "child")
        app.deploy_script('return await Workflow.run("child", {n: 21})', "parent")
        parent = app.start("parent")
        child = app.handle(_owed(app, "start").id.removesuffix("/start"))
        app.host.call(app.engine.outbox.drain())
        child.signal("go")
        child.wait(PATIENCE)
        _owed(app, "ended")
        archive, late = app.client.stack.archive, app.client.stack.ledger.now() + 60

        assert app.host.call(archive.remove_ended(late)) == 0
        app.host.call(app.engine.outbox.drain())
        assert parent.result(PATIENCE) == 42
        assert app.host.call(archive.remove_ended(late)) == 2
