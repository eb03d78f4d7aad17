"""Definitions: immutable, versioned programs.

This module owns the names of versions (``name@3``, ``name@stable``) and the rules and error messages for removing
a definition, which are the same in every store.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Literal

from msgspec import Struct

from dalsegno.errors import Conflict, InvalidInput, NotFound

LATEST = "latest"
"""Always the current version; reserved."""
VERSION_SIGN = "@"
"""Separates a workflow's name from its version: names cannot contain it."""

PART_SIGN = "/"
"""Separates a workflow's name from a script that is part of it."""
PART_KIND = "script"

Version = int | str | None
"""A version of a workflow: its number, an alias (or a number as text), or None for the current one."""

LONGEST_NAME = 200

ADOPTED = "adopted-"
"""Prefix of the content hashes of definitions that messages of other programs carried."""

_ALIAS = re.compile(r"[a-z][a-z0-9-]{0,62}")
_LONGEST_NUMBER = 9
_EXAMPLES = "write it like 'checkout', 'checkout@3' or 'checkout@stable'"


TriggerStatus = Literal["added", "changed", "unchanged", "removed"]


class DeployedTrigger(Struct, frozen=True, omit_defaults=True):
    """The schedule or webhook of a trigger node in a deployed graph."""

    kind: Literal["schedule", "webhook"]
    name: str
    """The schedule's name, or the webhook's id."""
    status: TriggerStatus
    about: str = ""
    """When it fires, or the address for deliveries."""
    node: str | None = None
    """None if the node has been removed."""
    secret: str | None = None
    """The key that signs deliveries, if one was created: it is shown only this once."""


class Definition(Struct, frozen=True):
    """One version of a definition.

    ``source`` is the canonical form of the document or program; ``hash`` names its content, so equal programs are
    one version.
    """

    name: str
    version: int
    hash: str
    kind: str
    source: bytes
    created_at: float = 0.0
    triggers: tuple[DeployedTrigger, ...] = ()
    """Set by a deploy: what its trigger nodes have created. Not stored."""


def name_problems(name: str) -> list[str]:
    """Return why a text cannot be the name of a workflow of any kind, in sentences."""
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
    """Return why a text cannot be the name of a script: a name with ``/`` denotes a part of a graph."""
    if PART_SIGN not in name:
        return name_problems(name)
    message = f"'name' must not hold '{PART_SIGN}': it stands between a graph and a script inside it."
    return [*name_problems(name), message]


def parse_target(text: str) -> tuple[str, Version]:
    """Parse ``name``, ``name@3`` or ``name@stable`` into workflow and version; raises InvalidInput."""
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
    """Return a number, an alias, or None for the current version; raises InvalidInput."""
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
    """Return the name of a script inside a graph, stored as a definition that was not deployed by itself."""
    return f"{workflow}{PART_SIGN}{node}"


def part_hash(name: str, source: str) -> str:
    """Return such a script's content hash. It includes the name: equal scripts of two nodes are two definitions."""
    digest = sha256(f"{name}\x1f{source}".encode()).hexdigest()
    return ADOPTED + digest if is_adopted_name(name) else digest


def adopted_name(name: str) -> str:
    """Return the name under which a definition of another program's message is stored: no deployed one can have it."""
    return VERSION_SIGN + name


def is_adopted_name(name: str) -> bool:
    return name.startswith(VERSION_SIGN)


def is_adopted(hash: str) -> bool:
    """Return True for the content hash of a definition that a message of another program carried."""
    return hash.startswith(ADOPTED)


def is_part(definition: Definition) -> bool:
    """Return True if a definition is part of another one and is not listed among the deployed ones."""
    return definition.kind == PART_KIND and PART_SIGN in definition.name


def check_alias(alias: str) -> None:
    """Raise InvalidInput for an invalid alias."""
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
    """Return the error message for a missing version."""
    if isinstance(version, str):
        return f"workflow '{name}' has no alias '{version}'"
    return f"workflow '{name}' has no version {version}"


class Needs(Struct, frozen=True):
    """Users of a definition, which keep it from being removed."""

    unfinished: tuple[str, ...] = ()
    """Some of the unfinished executions."""
    aliases: tuple[str, ...] = ()
    current: bool = False
    """It is the version that a start without a version uses."""


def unknown(name: str, version: int | None) -> NotFound:
    if version is not None:
        return NotFound(no_such_version(name, version))
    return NotFound(f"there is no workflow '{name}' in this store")


def refuse_needed(name: str, version: int | None, needs: Needs) -> None:
    """Raise a Conflict that says what needs it and what to do."""
    what = f"'{name}'" if version is None else f"version {version} of '{name}'"
    if needs.unfinished:
        named = ", ".join(needs.unfinished)
        raise Conflict(f"{what} is needed by unfinished executions ({named} …); let them end or cancel them")
    if needs.aliases:
        named = ", ".join(f"'{alias}'" for alias in needs.aliases)
        raise Conflict(
            f"{what} is what the alias {named} means; remove the alias or set it to another version"
        )
    if needs.current:
        raise Conflict(
            f"{what} is the current one; deploy another version first, or remove the workflow with all its versions"
        )
