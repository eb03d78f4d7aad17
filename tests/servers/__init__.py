"""Private, throw-away PostgreSQL, PgBouncer and Redis servers for tests, made to be killed."""

from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import PostgresServer
from tests.servers.process import Server, ServerFailed
from tests.servers.redis import RedisServer

__all__ = ["PgBouncer", "PostgresServer", "RedisServer", "Server", "ServerFailed"]
