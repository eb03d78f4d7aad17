"""The connections that the page about deployment counts are those that a process opens."""

from __future__ import annotations

import inspect
import re

from dalsegno.adapters.postgres import PostgresStore
from dalsegno.adapters.postgres.transactions import MOST_OPEN
from tests.docs.pages import DOCS

LISTENING, BEATING = 1, 1


def test_page_counts_the_connections_of_a_process() -> None:
    page = re.sub(r"\s+", " ", (DOCS / "deploy.md").read_text(encoding="utf-8"))
    working: int = inspect.signature(PostgresStore.open).parameters["connections"].default
    plain = working + LISTENING + BEATING

    assert f"up to {working} connections for its work, one to listen on and one for heartbeats" in page
    assert f"heartbeats: count {plain}." in page
    assert f"has up to {MOST_OPEN} more for them: count {plain + MOST_OPEN}." in page
