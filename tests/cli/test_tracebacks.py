"""What a failing task raised, and where, on the command line; and what ``DALSEGNO_DEBUG`` adds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Invoke
from tests.cli.documents import HELLO, write
from tests.cli.programs import Programs

SHOP = """\
from dalsegno import App

app = App()


@app.task
def charge(card):
    if card == "expired":
        raise ValueError(f"the card {card} is not taken")


@app.workflow
async def pay(card: str):
    await charge(card)


@app.workflow
async def order(card: str):
    try:
        await charge(card)
    except ValueError as error:
        raise RuntimeError("nothing was ordered") from error
"""
LINE = 'raise ValueError(f"the card {card} is not taken")'


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the commands work on."""
    if request.param == "postgres":
        monkeypatch.setenv("DALSEGNO_STORE", request.getfixturevalue("empty_postgres")())


@pytest.fixture
def shop(folder: Path) -> Path:
    write(folder, shop_py=SHOP)
    return folder / "shop.py"


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("workflow", ["pay", "order"])
def test_run_and_show_print_where_a_task_raised(shop: Path, invoke: Invoke, workflow: str) -> None:
    ran = invoke("run", f"shop.py:{workflow}", "--input", '"expired"')
    shown = invoke("show", "last", "--app", "shop.py")

    assert ran.exit_code == 1
    for told in (ran.stdout, shown.stdout):
        assert f'File "{shop}", line 9, in charge' in told
        assert LINE in told
        assert "ValueError: the card expired is not taken" in told


def test_json_has_it_as_a_field_of_the_error(shop: Path, invoke: Invoke) -> None:
    ran = json.loads(invoke("run", "shop.py:pay", "--input", '"expired"', "--json").stdout)
    shown = json.loads(invoke("show", "last", "--app", "shop.py", "--json").stdout)

    for told in (ran, shown):
        assert LINE in told["error"]["traceback"]
        assert told["error"]["details"] is None
    (failed,) = [event for event in shown["events"] if event["kind"] == "TaskFailed"]
    assert LINE in failed["data"]["error"]["traceback"]


def test_debugging_shows_our_frames_in_it(shop: Path, programs: Programs) -> None:
    run = programs.begin("run", "shop.py:pay", "--input", '"expired"', "--json", DALSEGNO_DEBUG="1")

    told = json.loads(run.process.communicate(timeout=60)[0])["error"]["traceback"]

    assert "/dalsegno/engine/steps/tasks.py" in told
    assert LINE in told


@pytest.mark.parametrize(("value", "is_shown"), [("1", True), ("0", False)])
def test_debugging_shows_the_traceback_of_a_command_that_fails(
    folder: Path, programs: Programs, value: str, is_shown: bool
) -> None:
    write(folder, broken_py="from dalsegno import App\napp = App()\nprice = 1 / 0\n", hello_yaml=HELLO)
    run = programs.begin("run", "hello.yaml", "--app", "broken", DALSEGNO_DEBUG=value)

    err = run.process.communicate(timeout=60)[1]

    assert run.process.returncode == 2
    assert "importing 'broken' raised ZeroDivisionError" in err
    assert ("price = 1 / 0" in err) is is_shown
    assert ("/dalsegno/cli/modules.py" in err) is is_shown
