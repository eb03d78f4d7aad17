"""The connection to Redis: TLS, users, Sentinel, what is refused, and what happens while Redis is away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dalsegno.adapters.redis import RedisConnection
from dalsegno.adapters.redis import connection as module
from dalsegno.adapters.redis.address import read_address
from dalsegno.errors import BadConfiguration
from tests.servers.certificates import Certificate, make_certificate
from tests.servers.redis import RedisServer, SentinelServer

MakeRedis = Callable[..., RedisServer]


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[RedisConnection]:
    connection = RedisConnection(url)
    await connection.open()
    try:
        yield connection
    finally:
        await connection.close()
        if url.startswith("rediss:"):
            await asyncio.sleep(0.05)  # an encrypted connection is closed when the server has answered


async def becomes(connection: RedisConnection, working: bool) -> None:
    changed = asyncio.Event()
    connection.on_connect.append(changed.set)
    connection.on_disconnect.append(changed.set)
    async with asyncio.timeout(30):
        while connection.working is not working:
            changed.clear()
            await changed.wait()


async def test_messages_reach_other_processes(redis_url: str) -> None:
    async with opened(redis_url) as one, opened(redis_url) as other:
        received: asyncio.Queue[bytes] = asyncio.Queue()
        other.on_message.append(received.put_nowait)
        one.publish(b"a")
        one.publish(b"b")
        async with asyncio.timeout(30):
            assert [await received.get(), await received.get()] == [b"a", b"b"]


async def test_server_that_is_killed_and_started_again_is_connected_again(private_redis: RedisServer) -> None:
    async with opened(private_redis.url) as connection:
        assert connection.connected()
        assert connection.problem() == ""
        private_redis.kill()
        await becomes(connection, working=False)
        assert "cannot be reached" in connection.problem()
        private_redis.start()
        await becomes(connection, working=True)
        assert connection.problem() == ""


async def test_server_that_is_suspended_counts_as_away(
    private_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LONGEST_SILENCE", 0.2)
    monkeypatch.setattr(module, "ANSWER_SECONDS", 0.2)
    async with opened(private_redis.url) as connection:
        private_redis.suspend()
        try:
            await becomes(connection, working=False)
        finally:
            private_redis.resume()
        await becomes(connection, working=True)


async def test_server_that_is_away_is_no_obstacle_to_opening(
    private_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    private_redis.stop()
    async with opened(private_redis.url) as connection:
        assert not connection.connected()
        assert private_redis.url in connection.problem()
        private_redis.start()
        await becomes(connection, working=True)


async def test_encrypted_connection_needs_the_authority_that_signed_and_the_right_name(
    redis_factory: MakeRedis, tmp_path: Path
) -> None:
    server = redis_factory(certificate=make_certificate(tmp_path, "redis.example"))
    async with opened(server.url) as connection:
        assert connection.connected()
    bare = server.url.partition("?")[0]
    for url, why in (
        (bare, "name the file of the authority that signed it: ?ssl_ca_certs=FILE"),
        (server.url.replace("127.0.0.1", "localhost"), "connect by a name that the certificate holds"),
    ):
        async with opened(url) as connection:
            assert not connection.connected()
            assert why in connection.problem()
    async with opened(f"{bare}?ssl_cert_reqs=none") as connection:
        assert connection.connected()


async def test_server_may_ask_for_a_certificate_of_the_client(
    redis_factory: MakeRedis, certificate: Certificate
) -> None:
    server = redis_factory(certificate=certificate, settings={"tls-auth-clients": "yes"})
    async with opened(
        f"{server.url}&ssl_certfile={certificate.certificate}&ssl_keyfile={certificate.key}"
    ) as shown:
        assert shown.connected()
    async with opened(server.url) as connection:
        assert not connection.connected()


@pytest.mark.parametrize(
    ("url", "risk"),
    [
        ("redis://127.0.0.1/0", ""),
        ("redis://redis.example/0", "not encrypted"),
        ("rediss://redis.example/0?ssl_cert_reqs=none", "not verified"),
        ("rediss://redis.example/0", ""),
        ("redis+sentinel://redis.example/main", "not encrypted"),
        ("rediss+sentinel://redis.example/main", ""),
    ],
)
def test_risk_of_a_connection_over_a_network(url: str, risk: str) -> None:
    found = read_address(url).risk()
    assert (risk in found) if risk else found == ""


async def test_user_with_a_wrong_password_is_refused_without_showing_it(redis_factory: MakeRedis) -> None:
    server = redis_factory(users={"flows": "on >sekret ~* &* +@all"}, password="other")
    async with opened(server.url_of("flows:sekret")) as connection:
        assert connection.connected()
        assert "sekret" not in connection.url
    with pytest.raises(BadConfiguration, match="refuses this user") as refusal:
        await RedisConnection(server.url_of("flows:sekrets")).open()
    assert "sekret" not in str(refusal.value)


async def test_cluster_is_refused(redis_factory: MakeRedis) -> None:
    server = redis_factory(settings={"cluster-enabled": "yes"})
    with pytest.raises(BadConfiguration, match="part of a Cluster"):
        await RedisConnection(server.url).open()


async def test_sentinel_names_the_primary_also_after_a_failover(
    redis_factory: MakeRedis, sentinel_factory: Callable[[RedisServer], SentinelServer]
) -> None:
    primary = redis_factory()
    replica = redis_factory(settings={"replicaof": f"127.0.0.1 {primary.port}"})
    sentinel = sentinel_factory(primary)
    with pytest.raises(BadConfiguration, match="it is a Sentinel"):
        await RedisConnection(f"redis://127.0.0.1:{sentinel.port}").open()
    async with asyncio.timeout(30):
        while not sentinel.ask(f"SENTINEL replicas {sentinel.service}").startswith("*1"):  # noqa: ASYNC110 - it asks the primary every few seconds
            await asyncio.sleep(0.1)
    async with opened(sentinel.url) as connection:
        await connection.client.set("who", "primary")
        primary.kill()
        await becomes(connection, working=False)
        await becomes(connection, working=True)
        await connection.client.set("who", "replica")
        assert replica.ask("GET who") == "$7"


async def test_doctor_learns_what_a_server_would_forget(redis_factory: MakeRedis) -> None:
    server = redis_factory(
        appendonly=False, settings={"maxmemory": "100mb", "maxmemory-policy": "allkeys-lru"}
    )
    async with opened(server.url) as connection:
        found = " ".join(await connection.examine())
    assert "allkeys-lru" in found
    assert "appendonly" in found


@pytest.mark.parametrize(
    "url",
    [
        "redis://:sek/ret@host:6379/0",
        "redis://host:sekret",
        "redis+sentinel://:sekret@host",
        "redis://:sekret@host/0?nothing=1",
    ],
)
def test_malformed_url_is_refused_without_showing_its_password(url: str) -> None:
    with pytest.raises(BadConfiguration, match="is not valid") as refusal:
        read_address(url)
    assert "sekret" not in str(refusal.value).replace("host:sekret", "")


def test_url_of_sentinels_names_all_and_the_primary() -> None:
    address = read_address(
        "rediss+sentinel://me:pw@a:1,b,[::1]:3/main/2?sentinel_password=other&ssl_ca_certs=/x"
    )
    assert address.sentinels == (("a", 1), ("b", 26379), ("::1", 3))
    assert (address.service, address.database) == ("main", 2)
    tls = {"ssl": True, "ssl_ca_certs": "/x", "ssl_check_hostname": True}
    assert address.options == {"username": "me", "password": "pw", "db": 2, **tls}
    assert address.sentinel_options == {"password": "other", **tls}
    assert "pw" not in repr(address)
    assert "other" not in repr(address)
