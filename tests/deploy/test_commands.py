"""What the files run exists: every command line parses, every variable is read, every metric is told."""

from __future__ import annotations

import re
from functools import cache

import pytest
import typer

from dalsegno.cli.main import app
from tests.deploy.files import (
    COMPOSE,
    DEPLOY,
    PAGE,
    ROOT,
    UNITS,
    CommandLine,
    Variable,
    command_lines,
    containers,
    documents,
    settings,
    unit_variables,
    variables,
)

PROGRAM = typer.main.get_command(app)

OF_OTHERS = {
    "PGPASSWORD_FILE": "deploy/with-secrets",
    "POSTGRES_USER": "the image of PostgreSQL",
    "POSTGRES_DB": "the image of PostgreSQL",
    "POSTGRES_PASSWORD_FILE": "the image of PostgreSQL",
    "FORWARDED_ALLOW_IPS": "uvicorn; docs/security.md",
}
"""Variables that are not ours, and who reads them."""


@cache
def sources() -> str:
    return "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))


@pytest.mark.parametrize("line", command_lines(), ids=lambda line: f"{line.place}: {' '.join(line.words)}")
def test_command_line_is_one_the_program_takes(line: CommandLine) -> None:
    command, words = PROGRAM, list(line.words)
    context = None
    while hasattr(command, "commands") and words:
        assert words[0] in command.commands, f"{line.place}: there is no command {words[0]!r}"
        context = typer.Context(command, info_name=command.name, parent=context)
        command, words = command.commands[words[0]], words[1:]
    command.make_context(command.name, words, parent=context)


def test_command_lines_are_found_everywhere() -> None:
    places = {re.split(r"[:.]", line.place)[0] for line in command_lines()}
    assert places >= {
        "Dockerfile", "compose", "server", "scheduler", "worker", "migrate", "deploy", "dalsegno", "secret",
        "dalsegno-server", "dalsegno-scheduler", "dalsegno-worker@", "dalsegno-migrate",
    }  # fmt: skip


def test_a_wrong_option_would_be_found() -> None:
    with pytest.raises(Exception, match="--no-wroker"):
        test_command_line_is_one_the_program_takes(CommandLine("here", ("server", "--no-wroker")))


@pytest.mark.parametrize(
    "variable", sorted(set(variables())), ids=lambda variable: f"{variable.place}: {variable.name}"
)
def test_variable_is_read_and_documented(variable: Variable) -> None:
    if variable.name in OF_OTHERS:
        return
    own = [path for path in UNITS if path.name == variable.place]
    if own and variable.name in unit_variables(own[0]):
        lines = " ".join(settings(own[0])["ExecStart"])
        assert f"${{{variable.name}}}" in lines or f"${variable.name}" in lines, "set and never used"
        return
    assert f'"{variable.name}"' in sources(), f"{variable.place}: nothing reads {variable.name}"
    pages = [path for path in (ROOT / "docs").rglob("*.md") if path != PAGE]
    assert any(f"{variable.name}" in path.read_text(encoding="utf-8") for path in pages), "not documented"


def test_variables_of_others_are_read_by_them() -> None:
    assert "PGPASSWORD_FILE" in (DEPLOY / "with-secrets").read_text(encoding="utf-8")
    assert "FORWARDED_ALLOW_IPS" in (ROOT / "docs" / "security.md").read_text(encoding="utf-8")


# -- who stops gets the time it was promised --------------------------------------------------------------------


def grace(words: tuple[str, ...] | list[str]) -> float:
    """Of a command line; schedulers have nothing to finish."""
    text = " ".join(words)
    found = re.search(r"--grace[= ](\d+)", text)
    return float(found[1]) if found else 0.0


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_unit_waits_longer_than_the_grace(path: object) -> None:
    found = settings(path)  # type: ignore[arg-type]
    if found["Type"] == ["oneshot"]:
        return
    assert float(found["TimeoutStopSec"][0]) >= grace(found["ExecStart"]) + 10
    assert found["KillSignal"] == ["SIGTERM"]
    assert found["KillMode"] == ["mixed"], "the signal is for the main process, which then ends its own"


def test_pods_wait_longer_than_the_grace() -> None:
    for place, pod, container in containers():
        if place.endswith(":Job"):
            continue
        before = container.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", ["", "0"])
        needed = grace(container["command"]) + float(before[1])
        assert pod["terminationGracePeriodSeconds"] >= needed + 10, place


def test_containers_wait_longer_than_the_grace() -> None:
    for name, service in documents(COMPOSE)[0]["services"].items():
        promised = grace(service.get("command", []))
        if promised:
            assert float(service["stop_grace_period"].removesuffix("s")) >= promised + 10, name
