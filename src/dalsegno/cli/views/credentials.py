"""Credentials on a terminal: the sources of their values, and what is shown of them."""

from __future__ import annotations

import getpass
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from dalsegno.cli.errors import Refusal
from dalsegno.cli.output import iso, print_table, stderr, stdout
from dalsegno.engine.secrets import CredentialInfo, Rotation, Vault
from dalsegno.engine.secrets.credentials import TYPES
from dalsegno.engine.secrets.definition_approvals import ListedDefinition, ProtectedName
from dalsegno.engine.secrets.keys import FILE_VARIABLE, KEY_VARIABLE
from dalsegno.ports.secrets import EVERYTHING

if TYPE_CHECKING:
    from dalsegno.engine.secrets.definition_approvals import DefinitionList


def workflows_for(given: Sequence[str] | None) -> Sequence[str]:
    """Return the workflows that may use a credential. Omitting them is refused."""
    if not given:
        raise Refusal(
            "the workflows that may use the credential are missing",
            "Add --workflow NAME, a name or a pattern such as 'billing-*', several times; or --workflow '*' for every "
            "workflow that anyone deploys, without an approval.",
        )
    return given


def values_for(
    type: str, variables: Sequence[str], written: Sequence[str], *, from_stdin: bool
) -> dict[str, str]:
    """Return the values of the fields: from the environment, the command line, stdin, and prompts for the rest."""
    wanted = TYPES.get(type)
    values = {name: _from_environment(name, variable) for name, variable in _pairs(variables, "--env")}
    given = dict(_pairs(written, "--field"))
    if given:
        stderr().print(
            "warning: values on the command line are visible to everyone who lists the processes, and stay in the "
            "shell's history; use --env, --stdin, or the prompt",
            style="yellow",
            soft_wrap=True,
        )
    values |= given
    missing = [name for name in wanted or () if name not in values]
    if from_stdin:
        return values | _from_stdin(missing)
    return values | {name: _asked(name) for name in missing}


def _pairs(entries: Sequence[str], option: str) -> list[tuple[str, str]]:
    pairs = []
    for entry in entries:
        name, sign, value = entry.partition("=")
        if not sign or not name:
            raise Refusal(f"{option} needs FIELD=…", f"Write it like {option} token=CRM_TOKEN.")
        pairs.append((name, value))
    return pairs


def _from_environment(name: str, variable: str) -> str:
    value = os.environ.get(variable)
    if value is None:
        raise Refusal(f"the variable {variable} for the field '{name}' is not set", "Export it first.")
    return value


def _from_stdin(missing: Sequence[str]) -> dict[str, str]:
    """Read a JSON object of texts; if one field is missing, read its text itself, without the final line break."""
    text = sys.stdin.read()
    if len(missing) == 1 and not text.lstrip().startswith("{"):
        return {missing[0]: text.rstrip("\r\n")}
    try:
        found = json.loads(text)
    except json.JSONDecodeError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        example = json.dumps(dict.fromkeys(missing or ("token",), "…"), ensure_ascii=False)
        raise Refusal("stdin contains no JSON object of texts", f"Write it like {example}.")
    return found


def _asked(name: str) -> str:
    if not sys.stdin.isatty():
        raise Refusal(
            f"no value for the field '{name}'", "Give it with --env or --stdin, or run this on a terminal."
        )
    return getpass.getpass(f"{name}: ")


def as_object(info: CredentialInfo) -> Mapping[str, Any]:
    return {
        "name": info.name,
        "type": info.type,
        "fields": list(info.fields),
        "hosts": list(info.hosts),
        "workflows": list(info.workflows),
        "sent_as": info.sent_as or None,
        "description": info.description,
        "adoptable": info.adoptable,
        "keys": list(info.keys),
        "changed_at": iso(info.changed_at),
    }


def print_credentials(found: Sequence[CredentialInfo]) -> None:
    console = stdout()
    if not found:
        console.print("no credentials; `dalsegno credentials add NAME` adds one", style="dim", markup=False)
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("name", "type", "hosts", "workflows", "description"):
        table.add_column(title)
    for each in found:
        kind = f"{each.type} {each.sent_as}".rstrip()
        table.add_row(
            each.name, kind, ", ".join(each.hosts) or "-", ", ".join(each.workflows) or "-", each.description
        )
    print_table(console, table)
    open_to_all = [each.name for each in found if EVERYTHING in each.workflows]
    if open_to_all:
        text = f"any workflow may use {', '.join(open_to_all)}: every key with the scope run can send it to its hosts"
        stderr().print(text, style="dim", markup=False, soft_wrap=True)


def listed_object(found: ListedDefinition) -> dict[str, Any]:
    approval = found.approval
    return {
        "workflow": found.workflow,
        "version": found.version,
        "hash": found.hash,
        "credentials": list(found.credentials),
        "approved": approval is not None,
        "approved_by": (approval.by or None) if approval is not None else None,
        "approved_at": iso(approval.at) if approval is not None else None,
    }


def print_unapproved(listing: DefinitionList, credential: str | None = None) -> None:
    """Print the definitions that lack an approval. ``credential``: only those that this credential lists."""
    unapproved = [
        each
        for each in listing.items
        if each.approval is None and (credential is None or credential in each.credentials)
    ]
    for each in unapproved:
        text = (
            f"not approved: {each.workflow}@{each.version} gets nothing from {', '.join(each.credentials)}; if it "
            f"should, run `dalsegno credentials approve {each.workflow}@{each.version}`"
        )
        stderr().print(text, style="yellow", markup=False, soft_wrap=True)
    if unapproved and listing.grace_until is not None:
        text = f"until {iso(listing.grace_until)} definitions and credentials from before approvals work without one"
        stderr().print(text, style="yellow", markup=False, soft_wrap=True)


def protected_object(found: ProtectedName) -> Mapping[str, Any]:
    return {
        "name": found.name,
        "credential": found.credential,
        "protected_by": found.protected_by,
        "protected_at": iso(found.protected_at),
    }


def print_protected(found: Sequence[ProtectedName]) -> None:
    console = stdout()
    if not found:
        console.print("no protected names; `dalsegno protect NAME` protects one", style="dim", markup=False)
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("name", "protected by"):
        table.add_column(title)
    for each in found:
        table.add_row(
            each.name, f"credential {each.credential}" if each.credential else (each.protected_by or "-")
        )
    print_table(console, table)


def print_rotation(done: Rotation) -> None:
    print(f"{len(done.rotated)} sealed again, {done.current} were sealed with this key already")
    for name, reason in done.unreadable.items():
        stderr().print(f"'{name}' was left as it is: {reason}", style="red", markup=False, soft_wrap=True)


def print_key_file(vault: Vault) -> None:
    """Report that a key file was created next to the store, because both must be kept together."""
    if vault.keys.made is not None:
        text = f"made the key file {vault.keys.made}; keep it: without it no credential can be read again"
        stderr().print(text, style="dim", markup=False, soft_wrap=True)


def advise(file: Path | None) -> None:
    if file is None:
        text = (
            f"Give it to every server and worker as {KEY_VARIABLE}; of several (with commas) the first seals."
        )
    else:
        text = (
            f"Put first into {file}. Give the file to every server and worker as {FILE_VARIABLE}, then run "
            "`dalsegno credentials rotate`, then remove the old keys."
        )
    stderr().print(text, style="dim", markup=False, soft_wrap=True)
