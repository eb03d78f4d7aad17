"""Which broker and Redis a command uses, what is refused, and that a broker that is away stops nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dalsegno import App
from dalsegno.adapters.urls import shown_url
from dalsegno.cli.target.target import make_app
from dalsegno.errors import BadConfiguration
from dalsegno.wiring import choose_servers
from tests.cli.conftest import Invoke
from tests.cli.documents import HELLO, write
from tests.servers.redis import RedisServer

PROGRAM = """\
from dalsegno import App

app = App("sqlite:///shop.db", broker="redis://code/1", redis="redis://code/2")
"""
SETTINGS = 'store = "sqlite:///file.db"\nbroker = "redis://file/1"\nredis = "redis://file/2"\n'


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DALSEGNO_BROKER", "DALSEGNO_REDIS", "DALSEGNO_CONFIG"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("store", "broker", "redis", "why"),
    [
        ("sqlite:///a.db", "", None, "is empty; unset DALSEGNO_BROKER"),
        ("sqlite:///a.db", None, "", "is empty; unset DALSEGNO_REDIS"),
        ("sqlite:///a.db", "kafka://me:sekret@host", None, "the scheme 'kafka'"),
        ("sqlite:///a.db", None, "amqp://me:sekret@host", "the scheme 'amqp'"),
        ("postgresql://host/db", "postgresql://me:sekret@host/db", None, "the store is its own broker"),
        ("memory:", "redis://:sekret@host", None, "belongs to this process alone"),
        ("memory:", None, "redis://:sekret@host", "belongs to this process alone"),
    ],
)
def test_refused_with_a_sentence(store: str, broker: str | None, redis: str | None, why: str) -> None:
    with pytest.raises(BadConfiguration) as refusal:
        choose_servers(store, broker, redis)
    assert why in str(refusal.value)
    assert "sekret" not in str(refusal.value)


def test_redis_is_the_broker_if_that_is_redis() -> None:
    assert choose_servers("sqlite:///a.db", "redis://a", None).redis == "redis://a"
    assert choose_servers("sqlite:///a.db", "redis://a", "redis://b").redis == "redis://b"
    assert choose_servers("sqlite:///a.db", None, None).redis is None


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://:sekret@host/0", "redis://:***@host/0"),
        ("amqps://me:s/e@k:ret@host/v", "amqps://me:***@host/v"),
        (
            "redis+sentinel://a,b/x?sentinel_password=sekret&db=1",
            "redis+sentinel://a,b/x?sentinel_password=***&db=1",
        ),
    ],
)
def test_shown_url_has_no_password(url: str, shown: str) -> None:
    assert shown_url(url) == shown


def test_code_then_file_then_environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder, shop_py=PROGRAM)
    made = make_app(name="shop:app")
    assert (made.broker, made.redis) == ("redis://code/1", "redis://code/2")

    (folder / "dalsegno.toml").write_text(SETTINGS)
    made = make_app(name="shop:app")
    assert (made.url, made.broker, made.redis) == ("sqlite:///file.db", "redis://file/1", "redis://file/2")
    assert App().broker == "redis://file/1"
    assert App(broker="redis://code/3").broker == "redis://code/3"

    monkeypatch.setenv("DALSEGNO_BROKER", "redis://environment")
    made = make_app(name="shop:app")
    assert (made.broker, made.redis) == ("redis://environment", "redis://file/2")


def test_settings_file_may_be_elsewhere(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "other.toml").write_text(SETTINGS)
    monkeypatch.setenv("DALSEGNO_CONFIG", str(folder / "other.toml"))
    assert App().url == "sqlite:///file.db"


@pytest.mark.parametrize(
    ("text", "why"),
    [("broker = 1", "'broker'"), ('brocker = "redis://a"', "'brocker'"), ("broker =", "not valid TOML")],
)
def test_settings_file_with_a_mistake_is_refused(invoke: Invoke, folder: Path, text: str, why: str) -> None:
    (folder / "dalsegno.toml").write_text(text)
    result = invoke("ls")
    assert result.exit_code == 2
    assert why in result.stderr


def test_settings_file_that_is_named_must_be_there(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DALSEGNO_CONFIG", "nowhere.toml")
    result = invoke("ls")
    assert result.exit_code == 2
    assert "nowhere.toml" in result.stderr


def test_option_wins_and_ends_with_its_command(
    invoke: Invoke, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, hello_yaml=HELLO)
    monkeypatch.setenv("DALSEGNO_BROKER", "nonsense")
    assert "nonsense" in invoke("run", "hello.yaml").stderr
    refused = invoke("run", "hello.yaml", "--broker", "kafka://me:sekret@host")
    assert refused.exit_code == 2
    assert "kafka" in refused.stderr
    assert "sekret" not in refused.output
    assert "nonsense" in invoke("run", "hello.yaml").stderr


def test_workflow_runs_and_doctor_names_redis_also_when_it_is_away(
    invoke: Invoke, folder: Path, private_redis: RedisServer
) -> None:
    write(folder, hello_yaml=HELLO)
    assert invoke("run", "hello.yaml", "--broker", private_redis.url).exit_code == 0
    assert redis_check(invoke, private_redis.url) == ("ok", f"connected to {private_redis.url}")

    private_redis.stop()

    assert invoke("run", "hello.yaml", "--broker", private_redis.url).exit_code == 0
    status, detail = redis_check(invoke, private_redis.url)
    assert status == "warn"
    assert "cannot be reached" in detail


def test_doctor_names_a_broker_that_refuses_the_login_and_looks_at_the_rest(
    invoke: Invoke, folder: Path, redis_factory: Callable[..., RedisServer]
) -> None:
    write(folder, hello_yaml=HELLO)
    assert invoke("run", "hello.yaml").exit_code == 0
    server = redis_factory(password="right")
    found = invoke("doctor", "--json", "--broker", server.url_of(":sekret"))
    checks = {check["name"]: check for check in json.loads(found.stdout)["checks"]}
    assert checks["broker"]["status"] == "fail"
    assert "refuses this user" in checks["broker"]["detail"]
    assert "--broker" in checks["broker"]["cure"]
    assert checks["schema"]["status"] == checks["executions"]["status"] == "ok"
    assert "sekret" not in found.output


def redis_check(invoke: Invoke, url: str) -> tuple[str, str]:
    told = json.loads(invoke("doctor", "--json", "--redis", url).stdout)
    found = next(check for check in told["checks"] if check["name"] == "Redis")
    return found["status"], found["detail"]


@pytest.mark.parametrize("command", ["ls", "show", "why", "task ls", "schedule show", "keys ls", "validate"])
def test_commands_that_only_read_the_store_take_no_broker(invoke: Invoke, command: str) -> None:
    for option in ("--broker", "--redis"):
        refused = invoke(*command.split(), option, "redis://localhost")
        assert (refused.exit_code, f"No such option: {option}" in refused.stderr) == (2, True)


@pytest.mark.parametrize("command", ["signal", "dead ls", "approve", "schedule trigger", "task complete"])
def test_commands_that_bring_work_to_workers_take_a_broker(invoke: Invoke, command: str) -> None:
    assert "--broker" in invoke(*command.split(), "--help").stdout
