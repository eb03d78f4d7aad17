"""A thread beside the event loop tells of an outage, too: neither gets in between what the other one says."""

from __future__ import annotations

import logging
import threading

import pytest

from dalsegno import App
from dalsegno.engine.committer import Outage
from dalsegno.errors import Unavailable

AWAY = Unavailable("nobody answers")


class Interrupted:
    """A clock. When it is read for the first time another thread comes, fails, goes on, and is waited for a little: if
    it can get in between, it does."""

    def __init__(self) -> None:
        self.outage = Outage(self)
        self.other = threading.Thread(target=self._fail_and_go_on)

    def __call__(self) -> float:
        if self.other.ident is None:
            self.other.start()
            self.other.join(0.3)
        return 1000.0

    def _fail_and_go_on(self) -> None:
        self.outage.failed("the heartbeat", "the heartbeat waits for the store", AWAY)
        self.outage.answered("the heartbeat")


def test_outage_is_not_over_for_a_thread_that_comes_while_another_one_fails(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "dalsegno.outage")
    interrupted = Interrupted()

    interrupted.outage.failed("timers", "timers wait for the store", AWAY)
    interrupted.other.join()

    assert [record.getMessage() for record in caplog.records] == ["timers wait for the store: nobody answers"]
    interrupted.outage.answered("timers")
    assert caplog.records[-1].getMessage().startswith("the store answers again")


def test_heartbeat_and_engine_tell_of_the_same_outage(url: str) -> None:
    with App(url).running() as app:
        assert app.engine._heartbeat is not None
        assert app.engine._heartbeat.outage is app.engine.outage
