"""Credentials as people define them: their types, the checks before one is stored, and the parts that may be
shown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import NamedTuple, TypedDict

import msgspec
from msgspec import Struct

from dalsegno.engine.secrets.keys import Sealed
from dalsegno.errors import InvalidInput
from dalsegno.ports.records import Record
from dalsegno.ports.secrets import EVERYTHING, HostEntry, is_connection_header

KIND = "credential"
"""Kind of the records."""

TYPES: dict[str, tuple[str, ...] | None] = {
    "bearer": ("token",),
    "basic": ("username", "password"),
    "header": ("value",),
    "query": ("value",),
    "custom": None,
}
"""Fields of each type; a ``custom`` credential has any fields, for tasks."""
CARRIED = ("header", "query")
"""Types that need the name of a header or query parameter."""
AUTHORISING = frozenset(("token", "password", "value"))

SHORTEST = 6
"""Least number of characters of a value that is searched for in outputs: shorter ones would match by chance."""
LONGEST_VALUE = 8192
MOST_FIELDS = 50
MOST_PATTERNS = 100

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,99}")
_CARRIER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}")
_HOST = re.compile(r"\*|\[[0-9a-f:.]+\]|(?:\*\.)?[a-z0-9_-]+(?:\.[a-z0-9_-]+)*")


@dataclass(frozen=True, slots=True)
class NewCredential:
    """A credential to store. ``fields``: None keeps the stored values."""

    name: str
    type: str
    fields: Mapping[str, str] | None = field(repr=False)
    hosts: Sequence[str] = ()
    workflows: Sequence[str] = ()
    sent_as: str = ""
    description: str = ""
    adoptable: bool = False
    """Definitions that messages of other programs carry may use it."""

    def check(self) -> None:
        """Raise InvalidInput, which names the place and never a value."""
        check_name(self.name)
        if self.type not in TYPES:
            listed = ", ".join(f"'{each}'" for each in TYPES)
            raise InvalidInput(f"'type' must be one of {listed}, not {self.type[:50]!r}")
        self._check_carrier()
        self._check_lists()
        if self.fields is not None:
            _check_fields(self.type, self.fields)

    def _check_carrier(self) -> None:
        if self.type in CARRIED and not _CARRIER.fullmatch(self.sent_as):
            what = "header" if self.type == "header" else "query parameter"
            raise InvalidInput(f"a credential of type '{self.type}' needs 'sent_as': the name of the {what}")
        if self.type == "header" and is_connection_header(self.sent_as):
            raise InvalidInput(
                f"'sent_as': the header '{self.sent_as}' belongs to the connection and carries no credential"
            )
        if self.type not in CARRIED and self.sent_as:
            raise InvalidInput(f"'sent_as' does not apply to a credential of type '{self.type}'")

    def _check_lists(self) -> None:
        if len(self.hosts) > MOST_PATTERNS or len(self.workflows) > MOST_PATTERNS:
            raise InvalidInput(f"'hosts' and 'workflows' take at most {MOST_PATTERNS} entries")
        if not self.workflows:
            raise InvalidInput(
                f"credential '{self.name}' needs 'workflows': the names of those that may use it, such as 'billing' or "
                "'billing-*'. '*' means every definition that anyone deploys, without an approval"
            )
        for index, host in enumerate(self.hosts):
            _check_host(host, f"hosts/{index}")
        for index, pattern in enumerate(self.workflows):
            if not 0 < len(pattern) <= 200:
                raise InvalidInput(f"'workflows/{index}' must be 1 to 200 characters, such as 'billing-*'")
        if self.type != "custom" and not self.hosts:
            raise InvalidInput(
                f"a credential of type '{self.type}' needs 'hosts': where it may be sent, such as 'api.example.com' or "
                "'*.example.com' ('*' means anywhere)"
            )


class Stored(Struct, frozen=True):
    """The data of a record."""

    type: str
    fields: dict[str, Sealed]
    hosts: tuple[str, ...] = ()
    workflows: tuple[str, ...] = (EVERYTHING,)
    sent_as: str = ""
    description: str = ""
    needs_approval: bool = False
    """False in records older than approvals, which have a grace period."""
    adoptable: bool = False

    def bound_to(self, name: str, field: str) -> bytes:
        """Return the context that a sealed value is bound to. A change of any part of it in the store makes the value
        unreadable.
        """
        parts = ["dalsegno/credential/1", name, field, self.type, self.hosts, self.workflows, self.sent_as]
        return msgspec.json.encode([*parts, "adoptable"] if self.adoptable else parts)

    @property
    def is_for_any_workflow(self) -> bool:
        return any(set(pattern) == {EVERYTHING} for pattern in self.workflows)

    def lists(self, *names: str) -> bool:
        return any(fnmatchcase(name, pattern) for name in names for pattern in self.workflows)


read_stored_data = msgspec.json.Decoder(Stored).decode


def read_stored(record: Record) -> Stored:
    return read_stored_data(record.data)


@dataclass(frozen=True, slots=True)
class CredentialInfo:
    """The parts of a credential that may be shown: everything but the values."""

    name: str
    type: str
    fields: tuple[str, ...]
    hosts: tuple[str, ...]
    workflows: tuple[str, ...]
    sent_as: str
    description: str
    keys: tuple[str, ...]
    """Ids of the keys that its values are sealed with."""
    version: int
    created_at: float
    changed_at: float
    adoptable: bool = False


class CredentialOptions(TypedDict):
    """What a new credential has besides its name, type and values."""

    workflows: Sequence[str]
    hosts: Sequence[str]
    sent_as: str
    description: str
    adoptable: bool


class SavedCredential(NamedTuple):
    """The result of storing a credential."""

    credential: CredentialInfo
    is_new: bool


def check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            f"{name[:100]!r} cannot be a credential's name: use up to 100 letters, digits, '_', '-' and '.', and begin "
            "with a letter or a digit"
        )


def _check_host(host: str, where: str) -> None:
    try:
        name = HostEntry.parse(host).host
    except ValueError:
        name = ""
    if len(host) > 260 or not _HOST.fullmatch(name):
        raise InvalidInput(
            f"'{where}': {host[:100]!r} is not a host; write it like 'api.example.com' (https on port 443), "
            "'api.example.com:8443', '*.example.com' or '[::1]', without a path; 'http://localhost:9000' allows plain "
            "http there"
        )


def _check_fields(type: str, fields: Mapping[str, str]) -> None:
    known = TYPES[type]
    if known is not None and set(fields) != set(known):
        needed = " and ".join(f"'{name}'" for name in known)
        raise InvalidInput(f"a credential of type '{type}' has the fields {needed}, and no other")
    if not fields or len(fields) > MOST_FIELDS:
        raise InvalidInput(f"a credential has 1 to {MOST_FIELDS} fields")
    for name, value in fields.items():
        if not _FIELD.fullmatch(name):
            raise InvalidInput(f"'fields': {name[:100]!r} cannot be a field's name: use letters, digits, '_'")
        _check_value(type, name, value)


def _check_value(type: str, name: str, value: str) -> None:
    if len(value) > LONGEST_VALUE:
        raise InvalidInput(f"'fields/{name}' is longer than {LONGEST_VALUE} characters")
    if any("\ud800" <= sign <= "\udfff" for sign in value):
        raise InvalidInput(f"'fields/{name}' contains half of a surrogate pair, which is not valid text")
    if type == "custom":
        return
    if any(sign < " " or sign == "\x7f" for sign in value):
        raise InvalidInput(f"'fields/{name}' contains a control character (a line break at its end?)")
    left_empty = name == "password" and not value  # some services expect their key as the user name
    if name in AUTHORISING and len(value) < SHORTEST and not left_empty:
        raise InvalidInput(
            f"'fields/{name}' is shorter than {SHORTEST} characters: too short for a secret, and to be found in outputs"
        )
