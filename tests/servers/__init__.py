"""Private, throw-away PostgreSQL and Redis servers for tests, made to be killed."""

from tests.servers.postgres import PostgresServer
from tests.servers.process import Server, ServerFailed
from tests.servers.redis import RedisServer

__all__ = ["PostgresServer", "RedisServer", "Server", "ServerFailed"]
