"""A primary with a standby that has all it has confirmed, and the change from one to the other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.servers.postgres import PostgresServer, run_tool
from tests.servers.process import HOST, wait_until


class Pair:
    """``url_of`` names both; what the primary has confirmed is on both."""

    def __init__(self, primary: PostgresServer, standby: PostgresServer) -> None:
        self.primary = primary
        self.standby = standby
        primary.psql("ALTER SYSTEM SET synchronous_standby_names = '*'")
        primary.psql("SELECT pg_reload_conf()")
        wait_until(self._is_synchronous, seconds=30, what="the standby to follow")

    def url_of(self, database: str, attributes: str = "read-write") -> str:
        user = self.primary.url.partition("://")[2].partition("@")[0]
        servers = ",".join(f"{HOST}:{server.port}" for server in (self.primary, self.standby))
        return f"postgresql://{user}@{servers}/{database}?target_session_attrs={attributes}"

    def create_database(self, name: str) -> str:
        self.primary.create_database(name)
        return self.url_of(name)

    def fail_over(self) -> None:
        """The primary dies without a word; then the standby is promoted."""
        self.primary.kill()
        self.promote()

    def promote(self) -> None:
        self.standby.psql("SELECT pg_promote()")

    def _is_synchronous(self) -> bool:
        return self.primary.psql("SELECT sync_state FROM pg_stat_replication") == "sync"


def copy_of(primary: PostgresServer, folder: Path) -> Path:
    """What a standby begins with."""
    options = ("-d", primary.url, "-R", "-c", "fast", "--no-sync")
    run_tool("pg_basebackup", folder, "-D", str(folder / "copy"), *options)
    return folder / "copy"


def make_pair(primary: PostgresServer, new_folder: Callable[[str], Path]) -> Pair:
    standby = PostgresServer(new_folder("standby"), copy_of(primary, new_folder("copy")))
    standby.start()
    return Pair(primary, standby)
