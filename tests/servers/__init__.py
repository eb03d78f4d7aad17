"""Private, throw-away PostgreSQL, PgBouncer, Redis and RabbitMQ servers for tests, made to be killed."""

from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import PostgresServer
from tests.servers.process import Server, ServerFailed
from tests.servers.rabbitmq import RabbitServer
from tests.servers.redis import RedisServer

__all__ = ["PgBouncer", "PostgresServer", "RabbitServer", "RedisServer", "Server", "ServerFailed"]
