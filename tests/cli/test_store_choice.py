"""Which store a command opens, and that its password is shown to nobody."""

from __future__ import annotations

import shlex
import signal
from pathlib import Path

import pytest

from dalsegno.adapters.urls import shown_url
from dalsegno.cli.next_command import Command
from dalsegno.cli.target.target import make_app, unused_store_of
from tests.cli.conftest import Invoke
from tests.cli.documents import HELLO, LONG_WAIT, write
from tests.cli.programs import Program, Programs

SHOP = """\
from dalsegno import App

app = App("sqlite:///shop.db")

@app.workflow
async def hello() -> str:
    return "hello"
"""

SECRET = "postgresql://me:sekret@host/db"


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DALSEGNO_STORE", "sqlite:///environment.db")


def test_program_s_own_url_is_taken_where_nothing_else_is_said(invoke: Invoke, folder: Path) -> None:
    write(folder, shop_py=SHOP)
    assert make_app(name="shop:app").url == "sqlite:///shop.db"
    assert invoke("run", "shop.py").exit_code == 0
    assert (folder / "shop.db").exists()


@pytest.mark.usefixtures("environment")
def test_environment_wins_over_the_program_s_own_url(invoke: Invoke, folder: Path) -> None:
    write(folder, shop_py=SHOP)
    assert make_app(name="shop:app").url == "sqlite:///environment.db"
    assert invoke("run", "shop.py").exit_code == 0
    assert "hello" in invoke("ls").stdout
    assert not (folder / "shop.db").exists()


@pytest.mark.usefixtures("environment")
def test_option_wins_over_the_environment(folder: Path) -> None:
    write(folder, shop_py=SHOP)
    assert make_app("sqlite:///option.db", "shop:app").url == "sqlite:///option.db"


@pytest.mark.parametrize("command", ["worker", "scheduler"])
def test_process_says_that_the_program_s_own_store_is_not_used(
    programs: Programs, folder: Path, command: str
) -> None:
    write(folder, shop_py=SHOP, plain_py=SHOP.replace('"sqlite:///shop.db"', ""))
    for name, environment, told in (
        ("shop", {"DALSEGNO_STORE": "sqlite:///environment.db"}, True),
        ("shop", {}, False),
        ("plain", {"DALSEGNO_STORE": "sqlite:///environment.db"}, False),
    ):
        err = log_of(programs.begin(command, "--app", name, **environment))
        assert err.count("the program's own store sqlite:///shop.db is not used") == told
        assert err.count("is not used") == told


def test_program_without_a_store_of_its_own_has_none_that_is_not_used(folder: Path) -> None:
    write(folder, plain_py=SHOP.replace('"sqlite:///shop.db"', ""))
    assert unused_store_of(make_app("sqlite:///option.db", "plain:app")) is None


def test_worker_says_which_workflows_it_knows(programs: Programs, folder: Path) -> None:
    write(folder, shop_py=SHOP)
    assert "Python workflows: hello" in log_of(programs.begin("worker", "--app", "shop"))


def log_of(program: Program) -> str:
    """Of a process that is stopped as soon as it has begun."""
    begun = program.logged_up_to("serves", "scheduler:")
    program.send(signal.SIGTERM)
    return begun + program.finish()[2]


def test_environment_that_lost_its_setting_is_not_replaced_by_a_file(
    invoke: Invoke, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, shop_py=SHOP)
    monkeypatch.setenv("DALSEGNO_STORE", "")
    assert invoke("run", "shop.py").exit_code == 2
    assert not list(folder.glob("*.db"))


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (SECRET, "postgresql://me:***@host/db"),
        ("postgresql://me:p@ss/w:o?rd#@host:5432/db", "postgresql://me:***@host:5432/db"),
        ("postgresql://:sekret@host/db", "postgresql://:***@host/db"),
        ("postgresql://host/db?user=me&password=sekret&x=1", "postgresql://host/db?user=me&password=***&x=1"),
        ("me:sekret@host/db", "me:***@host/db"),
        ("postgresql://me@host:5432/db", "postgresql://me@host:5432/db"),
        ("sqlite:///a:b@c.db", "sqlite:///a:b@c.db"),
    ],
)
def test_shown_url_has_no_password(url: str, shown: str) -> None:
    assert shown_url(url) == shown


def test_hint_does_not_repeat_what_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DALSEGNO_STORE", SECRET)
    assert Command(SECRET, "shop:app").line("resume", "x") == "dalsegno resume x --app shop:app"
    assert Command(SECRET).short("show", "x") == "dalsegno show x"


def test_hint_has_no_password() -> None:
    for line in (Command(SECRET).line("resume", "x"), Command(SECRET).signal("x", "go")):
        assert shlex.split(line)[-2:] == ["--store", "postgresql://me:***@host/db"]


def test_commands_on_a_server_print_no_password(
    invoke: Invoke, folder: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, sleeper_yaml=LONG_WAIT, hello_yaml=HELLO)
    url = postgres_url.replace("@", ":sekret@", 1)
    told = [invoke("run", "sleeper.yaml", "--timeout", "1s", "--store", url)]
    assert "dalsegno resume" in told[0].stderr
    assert "dalsegno:***@" in told[0].stderr
    monkeypatch.setenv("DALSEGNO_STORE", url)
    told += [invoke("run", "sleeper.yaml", "--timeout", "1s"), invoke("run", "hello.yaml"), invoke("ls")]
    told += [invoke("show", "last"), invoke("why", "last"), invoke("doctor"), invoke("migrate")]
    told += [
        invoke("ls", "--store", url.replace("dalsegno", "nobody", 1)),
        invoke("ls", "--store", f"{url}x"),
    ]
    for each in told:
        assert "sekret" not in each.output
        assert "--store" not in each.output or each is told[0]
