"""A PostgreSQL database for tests that start an application each: one per pytest process, emptied before every test.

Its server writes nothing to disk in a hurry; whoever wants to kill one takes ``private_postgres``. An application here
plans its statements when it needs them, not for each new connection: a test lasts no longer than that takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.servers.postgres import PostgresServer, Session
from tests.servers.workspace import Workspace

HASTY = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
DATABASE = "emptied"
EMPTY = """
DO $$
DECLARE name text;
BEGIN
    FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'dalsegno' AND tablename <> 'installed' LOOP
        EXECUTE format('DELETE FROM dalsegno.%I', name);
    END LOOP;
END $$
"""


@pytest.fixture(scope="session")
def hasty_postgres(server_workspace: Workspace, postgres_template: Path) -> Iterator[PostgresServer]:
    with PostgresServer(server_workspace.new_folder("pg"), postgres_template, HASTY) as server:
        server.create_database(DATABASE)
        yield server


@pytest.fixture(scope="session")
def emptying(hasty_postgres: PostgresServer) -> Iterator[Session]:
    """A session that stays: to begin one takes longer than to empty the tables."""
    with Session(hasty_postgres.url_of(DATABASE)) as session:
        yield session


@pytest.fixture
def empty_postgres(hasty_postgres: PostgresServer, emptying: Session) -> Callable[[], str]:
    """Empties the database and tells its URL."""

    def empty() -> str:
        emptying.run(EMPTY)
        return hasty_postgres.url_of(DATABASE)

    return empty
