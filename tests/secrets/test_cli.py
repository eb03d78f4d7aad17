"""``dalsegno credentials``."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from dalsegno.app import App
from dalsegno.cli.main import app
from dalsegno.engine.secrets.keys import FILE_VARIABLE, KEY_VARIABLE

Invoke = Callable[..., Result]
TOKEN = "t0ken-of-the-crm"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("DALSEGNO_STORE", "DALSEGNO_DEBUG", "FORCE_COLOR", "DALSEGNO_SERVER"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def invoke() -> Invoke:
    def run(*arguments: str, stdin: str | None = None) -> Result:
        result = CliRunner().invoke(app, ["credentials", *arguments], input=stdin)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        assert TOKEN not in result.output
        return result

    return run


def listed(invoke: Invoke) -> list[str]:
    return [each["name"] for each in json.loads(invoke("ls", "--json").stdout)["credentials"]]


def test_add_list_remove(invoke: Invoke, folder: Path) -> None:
    added = invoke("add", "crm", "-w", "*", "--host", "api.example.com", "--stdin", stdin=f"{TOKEN}\n")
    assert added.exit_code == 0, added.output
    assert "added credential 'crm'" in added.stdout
    assert "dalsegno.db.key" in added.stderr
    assert (folder / "dalsegno.db.key").stat().st_mode & 0o777 == 0o600
    table = invoke("ls").stdout
    assert "crm" in table
    assert "api.example.com" in table
    again = invoke("add", "crm", "--host", "b.example.com", "--keep", "--workflow", "w", "--json")
    assert (json.loads(again.stdout)["hosts"], again.stderr) == (["b.example.com"], "")
    assert invoke("rm", "crm").stdout == "removed credential 'crm'\n"
    assert listed(invoke) == []
    assert "no credentials" in invoke("ls").stdout
    missing = invoke("rm", "crm")
    assert (missing.exit_code, "no credential 'crm'" in missing.stderr) == (2, True)


def test_values_from_the_environment_and_from_json(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRM_TOKEN", TOKEN)
    assert invoke("add", "one", "-w", "*", "--host", "*", "--env", "token=CRM_TOKEN").exit_code == 0
    basic = json.dumps({"username": "ann", "password": TOKEN})
    assert (
        invoke("add", "two", "-w", "*", "-t", "basic", "--host", "*", "--stdin", stdin=basic).exit_code == 0
    )
    header = (
        "add",
        "three",
        "-w",
        "*",
        "-t",
        "header",
        "--sent-as",
        "X-Key",
        "--host",
        "*",
        "--env",
        "value=CRM_TOKEN",
    )
    assert invoke(*header).exit_code == 0
    custom = ("add", "four", "-w", "*", "-t", "custom", "--env", "a=CRM_TOKEN", "--stdin")
    assert invoke(*custom, stdin='{"b": "25"}').exit_code == 0
    assert listed(invoke) == ["four", "one", "three", "two"]


def test_a_value_on_the_command_line_is_warned_about(invoke: Invoke) -> None:
    found = invoke("add", "crm", "-w", "*", "--host", "*", "--field", f"token={TOKEN}")
    assert found.exit_code == 0
    assert "warning: values on the command line" in found.stderr.replace("\n", " ")


@pytest.mark.parametrize(
    ("arguments", "stdin", "said"),
    [
        (("--host", "*"), None, "no value for the field 'token'"),
        (("--host", "*", "--env", "token=NOT_SET"), None, "NOT_SET"),
        (("--host", "*", "--env", "token"), None, "--env needs FIELD="),
        (("--stdin",), TOKEN, "needs 'hosts'"),
        (("--host", "*", "-t", "basic", "--stdin"), "no json", "no JSON object"),
        (("--host", "*", "-t", "magic", "--stdin"), '{"a": "b"}', "'type' must be one of"),
    ],
)
def test_what_cannot_be_added_is_told(
    invoke: Invoke, arguments: tuple[str, ...], stdin: str | None, said: str
) -> None:
    found = invoke("add", "crm", "-w", "*", *arguments, stdin=stdin)
    assert found.exit_code == 2
    assert said in found.stderr.replace("\n", " ")


def test_rotation_from_a_passphrase_to_a_file(
    invoke: Invoke, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, "a passphrase of last year")
    for name in ("a", "b"):
        assert invoke("add", name, "-w", "*", "--host", "*", "--stdin", stdin=TOKEN).exit_code == 0
    assert not (folder / "dalsegno.db.key").exists()
    monkeypatch.delenv(KEY_VARIABLE)
    lost = invoke("rotate")
    assert (lost.exit_code, "new-key" in lost.stderr) == (2, True)
    (folder / "keys").write_text("a passphrase of last year\n")
    made = invoke("new-key", "--file", "keys")
    assert (made.stdout, "DALSEGNO_SECRET_KEY_FILE" in made.stderr.replace("\n", "")) == ("", True)
    assert len((folder / "keys").read_text().splitlines()) == 2
    monkeypatch.setenv(FILE_VARIABLE, "keys")
    assert invoke("rotate").stdout == "2 sealed again, 0 were sealed with this key already\n"
    (folder / "keys").write_text((folder / "keys").read_text().splitlines()[0])
    assert json.loads(invoke("rotate", "--json").stdout) == {"rotated": [], "current": 2, "unreadable": {}}


def test_a_rotation_that_cannot_read_everything_says_so(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, "a passphrase that is lost")
    assert invoke("add", "a", "-w", "*", "--host", "*", "--stdin", stdin=TOKEN).exit_code == 0
    monkeypatch.setenv(KEY_VARIABLE, "another passphrase")
    found = invoke("rotate")
    assert (found.exit_code, "'a' was left as it is" in found.stderr) == (1, True)


def test_no_key_file_is_made_beside_a_store_that_has_credentials(
    invoke: Invoke, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody forgot the variable: a second key would only hide that."""
    monkeypatch.setenv(KEY_VARIABLE, "a passphrase of the server")
    invoke("add", "a", "-w", "*", "--host", "*", "--stdin", stdin=TOKEN)
    monkeypatch.delenv(KEY_VARIABLE)
    found = invoke("add", "b", "-w", "*", "--host", "*", "--stdin", stdin=TOKEN)
    assert (found.exit_code, "there is no key for credentials" in found.stderr) == (2, True)
    assert not (folder / "dalsegno.db.key").exists()


def test_a_new_key_is_printed_alone(invoke: Invoke) -> None:
    made = [invoke("new-key") for _ in range(2)]
    assert [len(each.stdout.strip()) for each in made] == [43, 43]
    assert made[0].stdout != made[1].stdout
    assert "DALSEGNO_SECRET_KEY" in made[0].stderr
    assert list(json.loads(invoke("new-key", "--json").stdout)) == ["key"]


def test_what_no_admin_approved_is_named_and_can_be_approved(invoke: Invoke, folder: Path) -> None:
    asyncio.run(_plant(f"sqlite:///{folder / 'dalsegno.db'}"))
    added = invoke("add", "crm", "--host", "a.example", "-w", "billing", "--stdin", stdin=TOKEN)
    listed = invoke("ls")
    for found in (added, listed):
        assert "not approved: billing@1 gets nothing from crm" in found.stderr.replace("\n", " ")
    examined = CliRunner().invoke(app, ["doctor", "--json"])
    found = {each["name"]: each for each in json.loads(examined.stdout)["checks"]}["credentials"]
    assert (found["status"], "billing@1" in found["detail"]) == ("warn", True)
    assert invoke("approve", "billing@1").stdout == "approved billing@1\n"
    shown = json.loads(invoke("ls", "--json").stdout)["definitions"]
    assert [(each["workflow"], each["approved"], each["approved_by"]) for each in shown] == [
        ("billing", True, "the store")
    ]
    assert invoke("ls").stderr == ""
    assert invoke("withdraw", "billing").stdout == "withdrew the approval of billing\n"
    assert invoke("withdraw", "billing").exit_code == 2
    assert invoke("approve", "--all").stdout == "approved billing@1\n"
    assert "everything that a credential lists is approved" in invoke("approve", "--all").stdout
    assert "no workflow 'other'" in invoke("approve", "other").stderr
    assert invoke("approve").exit_code == 2


async def _plant(url: str) -> None:
    """As somebody without the scope ``admin`` deploys."""
    planter = App(url)
    await planter.host_here()
    nodes = [{"id": "n", "type": "script", "parameters": {"source": "return 1"}}]
    await planter.client.deploy({"name": "billing", "nodes": nodes}, approved_by=None)
    await planter.aclose()


def test_a_credential_for_any_workflow_is_named(invoke: Invoke) -> None:
    invoke("add", "crm", "-w", "*", "--host", "a.example", "--stdin", stdin=TOKEN)
    assert "any workflow may use crm: every key with the scope run" in invoke("ls").stderr.replace("\n", " ")


@pytest.mark.parametrize("options", [(), ("--keep",)])
def test_a_credential_for_no_workflow_is_refused_before_its_value_is_asked_for(
    invoke: Invoke, options: tuple[str, ...]
) -> None:
    refused = invoke("add", "crm", "--host", "a.example", *options)
    assert refused.exit_code == 2
    said = " ".join(refused.stderr.split())
    assert "--workflow NAME" in said
    assert "--workflow '*'" in said
