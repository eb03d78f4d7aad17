"""Definitions: immutable, versioned programs, and how one of their versions is named."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Literal

from msgspec import Struct

from dalsegno.errors import InvalidInput

LATEST = "latest"
"""Always the current version; nobody sets it."""
VERSION_SIGN = "@"
"""Between a workflow's name and the version that is meant: names cannot contain it."""

PART_SIGN = "/"
"""Between a workflow and a script that is part of it."""
PART_KIND = "script"

Version = int | str | None
"""Which version of a workflow: its number, an alias (or a number as text), or None for the current one."""

LONGEST_NAME = 200

_ALIAS = re.compile(r"[a-z][a-z0-9-]{0,62}")
_LONGEST_NUMBER = 9
_EXAMPLES = "write it like 'checkout', 'checkout@3' or 'checkout@stable'"


TriggerStatus = Literal["added", "changed", "unchanged", "removed"]


class DeployedTrigger(Struct, frozen=True, omit_defaults=True):
    """A schedule or webhook that a node of a deployed graph stands for."""

    kind: Literal["schedule", "webhook"]
    name: str
    """The schedule's name, or the webhook's id."""
    status: TriggerStatus
    about: str = ""
    """When it fires, or where deliveries go."""
    node: str | None = None
    """None where the node is gone."""
    secret: str | None = None
    """With which deliveries are signed, where one was made: it is told this once."""


class Definition(Struct, frozen=True):
    """``source`` is the canonical form of the document or program; ``hash`` names its content, so equal programs are
    one version."""

    name: str
    version: int
    hash: str
    kind: str
    source: bytes
    created_at: float = 0.0
    triggers: tuple[DeployedTrigger, ...] = ()
    """Of a deploy: what its trigger nodes have made. Stores do not know it."""


def name_problems(name: str) -> list[str]:
    """What keeps a text from being the name of a workflow, in sentences; the same for all kinds."""
    found = []
    if not name.strip() or len(name) > LONGEST_NAME or not name.isprintable():
        found.append(f"'name' must hold 1 to {LONGEST_NAME} printable characters, not only spaces.")
    if name in (".", ".."):
        found.append(f"'name' must not be '{name}': in the path of a URL that means another place.")
    if VERSION_SIGN in name:
        found.append(
            f"'name' must not hold '{VERSION_SIGN}': it stands between a name and a version, as in 'checkout@3'."
        )
    return found


def script_name_problems(name: str) -> list[str]:
    """The same of a script, which would be taken for a part of a graph if it had the name of one."""
    if PART_SIGN not in name:
        return name_problems(name)
    message = f"'name' must not hold '{PART_SIGN}': it stands between a graph and a script inside it."
    return [*name_problems(name), message]


def parse_target(text: str) -> tuple[str, Version]:
    """The workflow and version that ``name``, ``name@3`` or ``name@stable`` means; raises InvalidInput."""
    name, sign, version = text.rpartition(VERSION_SIGN)
    if not sign:
        name, version = text, ""
    if not name.strip():
        raise InvalidInput(f"{text[:200]!r} names no workflow; {_EXAMPLES}")
    if VERSION_SIGN in name:
        raise InvalidInput(f"{text[:200]!r} has more than one '{VERSION_SIGN}'; {_EXAMPLES}")
    return (name, read_version(version)) if sign else (name, None)


def format_target(name: str, version: Version) -> str:
    """The inverse of :func:`parse_target`."""
    return name if version is None else f"{name}{VERSION_SIGN}{version}"


def read_version(version: Version) -> Version:
    """A number where one is meant, None for the current version, else an alias; raises InvalidInput."""
    if version is None or version == LATEST:
        return None
    text = str(version)
    if text.isascii() and text.isdigit():
        digits = text.lstrip("0")
        return int(digits or 0) if len(digits) <= _LONGEST_NUMBER else 0  # no workflow has that many versions
    if isinstance(version, str) and _ALIAS.fullmatch(version):
        return version
    raise InvalidInput(f"{text[:100]!r} is neither a version's number nor an alias such as 'stable'")


def part_name(workflow: str, node: str) -> str:
    """The name under which a script inside a graph is stored: a definition of its own that nobody deployed."""
    return f"{workflow}{PART_SIGN}{node}"


def part_hash(name: str, source: str) -> str:
    """Content hash of such a script. The name is part of it: equal scripts of two nodes are two definitions."""
    return sha256(f"{name}\x1f{source}".encode()).hexdigest()


def is_part(definition: Definition) -> bool:
    """Whether a definition belongs to another one and is not shown among those that users deployed."""
    return definition.kind == PART_KIND and PART_SIGN in definition.name


def check_alias(alias: str) -> None:
    """Raises InvalidInput for what cannot be the name of an alias."""
    if alias == LATEST:
        raise InvalidInput(
            f"'{LATEST}' always means the current version and cannot be set; deploy the version again to make it"
            " current, or choose another alias, such as 'stable'"
        )
    if not _ALIAS.fullmatch(alias):
        raise InvalidInput(
            f"{alias[:100]!r} cannot be an alias: write 1 to 63 small letters, digits and '-', beginning with a"
            " letter, such as 'stable'"
        )


def no_such_version(name: str, version: Version) -> str:
    """The sentence of an error."""
    if isinstance(version, str):
        return f"workflow '{name}' has no alias '{version}'"
    return f"workflow '{name}' has no version {version}"
