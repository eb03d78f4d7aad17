"""The stores of a run: started when the first contender asks for them, removed with everything in them at the end."""

from __future__ import annotations

import itertools
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.servers.postgres import PostgresServer, make_template
from tests.servers.rabbitmq import RabbitServer
from tests.servers.redis import RedisServer
from tests.servers.workspace import Workspace


class Servers:
    """Every contender gets an empty database of its own for each workload."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._numbers = itertools.count(1)
        self._postgres: PostgresServer | None = None
        self._redis: RedisServer | None = None
        self._rabbitmq: RabbitServer | None = None

    def __enter__(self) -> Self:
        self._workspace = Workspace()
        self._stack.callback(self._workspace.remove)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def sqlite(self) -> str:
        return f"sqlite:///{self._folder('sqlite') / 'bench.db'}"

    def postgres(self) -> str:
        if self._postgres is None:
            template = make_template(self._folder("initdb"))
            self._postgres = self._stack.enter_context(PostgresServer(self._folder("pg"), template))
        return self._postgres.create_database(f"bench_{next(self._numbers)}")

    def redis(self) -> str:
        if self._redis is None:
            server = RedisServer(self._folder("redis"), appendfsync="everysec")
            self._redis = self._stack.enter_context(server)
        self._redis.flush()
        return self._redis.url

    def rabbitmq(self) -> str:
        if self._rabbitmq is None:
            self._rabbitmq = self._stack.enter_context(RabbitServer(self._folder("rabbitmq")))
        return self._rabbitmq.create_vhost(f"bench_{next(self._numbers)}")

    def _folder(self, kind: str) -> Path:
        return self._workspace.new_folder(kind)
