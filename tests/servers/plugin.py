"""Fixtures. One server of each kind per pytest process, started when a test first asks for it.

- ``postgres_url``: an empty database of the shared server, dropped afterwards;
- ``redis_url``: the shared Redis, emptied;
- ``rabbitmq_url``: an empty vhost of the shared RabbitMQ, deleted afterwards;
- ``private_postgres``, ``private_redis``, ``private_rabbitmq``: a running server for one test alone, to be killed at
  will;
- ``postgres_factory``, ``redis_factory``: the same with settings, as many as wanted;
- ``pgbouncer``: a pooler in transaction mode in front of ``private_postgres``;
- ``rabbitmq_factory``: RabbitMQ with lines of rabbitmq.conf;
- ``postgres_server``, ``redis_server``, ``rabbitmq_server``: the shared servers themselves.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.servers.certificates import Certificate, make_certificate
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import PostgresServer, make_template
from tests.servers.process import die_with_parent
from tests.servers.rabbitmq import RabbitServer
from tests.servers.redis import RedisServer, SentinelServer
from tests.servers.workspace import Workspace

_database_numbers = itertools.count(1)
_vhost_numbers = itertools.count(1)


def pytest_configure(config: pytest.Config) -> None:
    """A worker of xdist whose controller was killed goes on with the test it is in, and so do its servers."""
    if hasattr(config, "workerinput"):
        die_with_parent()


@pytest.fixture(scope="session")
def server_workspace() -> Iterator[Workspace]:
    workspace = Workspace()
    yield workspace
    workspace.remove()


@pytest.fixture(scope="session")
def postgres_template(server_workspace: Workspace) -> Path:
    return make_template(server_workspace.new_folder("initdb"))


@pytest.fixture(scope="session")
def postgres_server(server_workspace: Workspace, postgres_template: Path) -> Iterator[PostgresServer]:
    with PostgresServer(server_workspace.new_folder("pg"), postgres_template) as server:
        yield server


@pytest.fixture(scope="session")
def redis_server(server_workspace: Workspace) -> Iterator[RedisServer]:
    with RedisServer(server_workspace.new_folder("redis")) as server:
        yield server


@pytest.fixture(scope="session")
def rabbitmq_server(server_workspace: Workspace) -> Iterator[RabbitServer]:
    folder = server_workspace.new_folder("rabbit")
    with RabbitServer(folder, certificate=make_certificate(folder, "broker.example")) as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    postgres_server.start()  # a test before this one may have killed it
    name = f"test_{next(_database_numbers)}"
    yield postgres_server.create_database(name)
    if postgres_server.running:
        postgres_server.drop_database(name)


@pytest.fixture
def redis_url(redis_server: RedisServer) -> str:
    redis_server.start()
    redis_server.flush()
    return redis_server.url


@pytest.fixture
def rabbitmq_url(rabbitmq_server: RabbitServer) -> Iterator[str]:
    rabbitmq_server.start()  # a test before this one may have killed it
    name = f"test-{next(_vhost_numbers)}"
    yield rabbitmq_server.create_vhost(name)
    if rabbitmq_server.running:
        rabbitmq_server.delete_vhost(name)


@pytest.fixture
def postgres_factory(
    server_workspace: Workspace, postgres_template: Path
) -> Iterator[Callable[..., PostgresServer]]:
    """``postgres_factory(log_min_messages="debug1", …)``: settings of postgresql.conf."""
    with ExitStack() as servers:

        def make(**settings: str) -> PostgresServer:
            folder = server_workspace.new_folder("pg")
            return servers.enter_context(PostgresServer(folder, postgres_template, settings))

        yield make


@pytest.fixture
def redis_factory(server_workspace: Workspace) -> Iterator[Callable[..., RedisServer]]:
    """``redis_factory(appendonly=False, certificate=…, password=…, users=…, settings=…)``."""
    with ExitStack() as servers:

        def make(**settings: Any) -> RedisServer:
            folder = server_workspace.new_folder("redis")
            return servers.enter_context(RedisServer(folder, **settings))

        yield make


@pytest.fixture
def certificate(server_workspace: Workspace) -> Certificate:
    """Of a server on this machine, signed by an authority that exists for this test alone."""
    return make_certificate(server_workspace.new_folder("certificates"))


@pytest.fixture
def sentinel_factory(server_workspace: Workspace) -> Iterator[Callable[[RedisServer], SentinelServer]]:
    with ExitStack() as servers:

        def make(primary: RedisServer) -> SentinelServer:
            return servers.enter_context(SentinelServer(server_workspace.new_folder("sentinel"), primary))

        yield make


@pytest.fixture
def rabbitmq_factory(server_workspace: Workspace) -> Iterator[Callable[..., RabbitServer]]:
    """``rabbitmq_factory({"heartbeat": "1"})``."""
    with ExitStack() as servers:

        def make(settings: Mapping[str, str] | None = None) -> RabbitServer:
            folder = server_workspace.new_folder("rabbit")
            return servers.enter_context(RabbitServer(folder, settings))

        yield make


@pytest.fixture
def private_postgres(postgres_factory: Callable[..., PostgresServer]) -> PostgresServer:
    return postgres_factory()


@pytest.fixture
def private_redis(redis_factory: Callable[..., RedisServer]) -> RedisServer:
    return redis_factory()


@pytest.fixture
def private_rabbitmq(rabbitmq_factory: Callable[..., RabbitServer]) -> RabbitServer:
    return rabbitmq_factory()


@pytest.fixture
def pgbouncer(server_workspace: Workspace, private_postgres: PostgresServer) -> Iterator[PgBouncer]:
    with PgBouncer(server_workspace.new_folder("pgbouncer"), private_postgres) as pooler:
        yield pooler
