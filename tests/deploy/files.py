"""The files under ``deploy/`` as data: documents, command lines, environment variables."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE = DEPLOY / "compose.yaml"
ADDITIONS = sorted(DEPLOY.glob("compose.*.yaml"))
"""Given after the compose file; each adds a broker."""
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
MANIFESTS = sorted((DEPLOY / "kubernetes").rglob("*.yaml"))
PAGE = ROOT / "docs" / "deploy.md"
PROGRAM = "/opt/dalsegno/bin/dalsegno"


class CommandLine(NamedTuple):
    place: str
    words: tuple[str, ...]
    """What follows ``dalsegno``."""


class Variable(NamedTuple):
    place: str
    name: str


def documents(path: Path) -> list[Any]:
    return [
        document
        for document in yaml.load_all(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
        if document
    ]


def objects() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every Kubernetes object; a configuration for another program is none."""
    for path in MANIFESTS:
        for document in documents(path):
            if "kind" in document:
                yield f"{path.name}:{document['kind']}", document


def containers() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Where it stands, the pod's specification, the container."""
    for place, document in objects():
        pod = document.get("spec", {}).get("template", {}).get("spec", {})
        for container in pod.get("containers", ()):
            yield place, pod, container


def command_lines() -> list[CommandLine]:
    return [
        *_lines_of_compose(),
        *_lines_of_units(),
        *_lines_of_pods(),
        *_lines_in_prose(),
        *_lines_of_the_page(),
    ]


def _lines_of_compose() -> Iterator[CommandLine]:
    for name, service in documents(COMPOSE)[0]["services"].items():
        for key, words in (("command", service.get("command")), ("healthcheck", _probe(service))):
            if words and "dalsegno" in words:
                yield _line(f"compose.yaml:{name}.{key}", words)


def _probe(service: dict[str, Any]) -> list[str]:
    test: list[str] = service.get("healthcheck", {}).get("test", [])
    return test


def _lines_of_units() -> Iterator[CommandLine]:
    for path in UNITS:
        for value in settings(path)["ExecStart"]:
            words = _expanded(value, unit_variables(path))
            assert words[0] == PROGRAM, f"{path.name} runs {words[0]}"
            yield CommandLine(path.name, tuple(words[1:]))


def _lines_of_pods() -> Iterator[CommandLine]:
    for place, _, container in containers():
        yield _line(place, container["command"])
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            words = container.get(probe, {}).get("exec", {}).get("command")
            if words:
                yield _line(f"{place}.{probe}", words)


def _lines_in_prose() -> Iterator[CommandLine]:
    """Comments name commands in backticks; the image has one of its own."""
    for path in sorted(DEPLOY.rglob("*")):
        if path.is_file():
            text = path.read_text(encoding="utf-8")
            for words in re.findall(r"`(dalsegno [^`]+)`", text):
                yield _line(path.name, shlex.split(words))
            for words in re.findall(r"^CMD (\[.*\])$", text, re.MULTILINE):
                yield _line(path.name, json.loads(words))


def _lines_of_the_page() -> Iterator[CommandLine]:
    """Commands at the prompt, also those that run inside a container."""
    for number, line in enumerate(PAGE.read_text(encoding="utf-8").splitlines(), start=1):
        if found := re.match(r"\$ (?:.* (?:--|with-secrets) )?(dalsegno .*)", line):
            yield _line(f"deploy.md:{number}", shlex.split(found[1].partition(" > ")[0]))


def _line(place: str, words: list[str]) -> CommandLine:
    return CommandLine(place, tuple(words[words.index("dalsegno") + 1 :]))


# -- units ------------------------------------------------------------------------------------------------------


def settings(path: Path) -> dict[str, list[str]]:
    """All values of each setting; systemd allows several."""
    found: dict[str, list[str]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        name, separator, value = line.partition("=")
        if separator and not line.startswith("#"):
            found.setdefault(name, []).append(value)
    return found


def unit_variables(path: Path) -> dict[str, str]:
    words = [word for value in settings(path).get("Environment", ()) for word in shlex.split(value)]
    return dict(word.split("=", 1) for word in words)


def _expanded(line: str, variables: dict[str, str]) -> list[str]:
    """As systemd does: ``${A}`` is one word, ``$A`` as many as it has."""
    words: list[str] = []
    for word in line.split():
        if re.fullmatch(r"\$\w+", word):
            words += variables[word[1:]].split()
        else:
            words.append(re.sub(r"\$\{(\w+)\}", lambda match: variables[match[1]], word))
    return words


# -- environment ------------------------------------------------------------------------------------------------


def variables() -> list[Variable]:
    return [*_variables_of_compose(), *_variables_of_units(), *_variables_of_pods()]


def _variables_of_compose() -> Iterator[Variable]:
    for name, service in documents(COMPOSE)[0]["services"].items():
        yield from (Variable(f"compose.yaml:{name}", key) for key in service.get("environment", {}))
    for key in re.findall(r"\$\{(\w+)", COMPOSE.read_text(encoding="utf-8")):
        yield Variable("compose.yaml", key)


def _variables_of_units() -> Iterator[Variable]:
    for path in UNITS:
        yield from (Variable(path.name, key) for key in unit_variables(path))
    file = DEPLOY / "systemd" / "dalsegno.env"
    for key in re.findall(r"^#?([A-Z_]+)=", file.read_text(encoding="utf-8"), re.MULTILINE):
        yield Variable(file.name, key)


def _variables_of_pods() -> Iterator[Variable]:
    for place, _, container in containers():
        yield from (Variable(place, entry["name"]) for entry in container.get("env", ()))
    for place, document in objects():
        if document["kind"] == "ConfigMap":
            yield from (Variable(place, key) for key in document["data"])
