"""Credentials and the seals of snapshots on a terminal: the sources of their values, what is shown of them, and the
survey of snapshots.
"""

from __future__ import annotations

import datetime as dt
import getpass
import json
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from dalsegno.cli.errors import Refusal
from dalsegno.cli.output import fields_of, iso, print_table, stderr, stdout
from dalsegno.engine.client import Client
from dalsegno.engine.executions import all_executions
from dalsegno.engine.secrets import CredentialInfo, Rotation, Vault
from dalsegno.engine.secrets.credentials import TYPES
from dalsegno.engine.secrets.definition_approvals import ListedDefinition, ProtectedName
from dalsegno.engine.secrets.keys import FILE_VARIABLE, KEY_VARIABLE
from dalsegno.engine.secrets.snapshot_seals import Sealing, SnapshotSeals, is_sealed, key_of
from dalsegno.errors import InvalidInput, NoSecretKey
from dalsegno.lang.python.program import stored_program
from dalsegno.model.execution import UNDER_WAY, ExecutionView
from dalsegno.ports.archive import ExecutionFilter
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
        **fields_of(info, "name", "type", "fields", "hosts", "workflows"),
        "sent_as": info.sent_as or None,
        **fields_of(info, "description", "adoptable", "keys", "changed_at"),
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
        **fields_of(found, "workflow", "version", "hash", "credentials"),
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
    return fields_of(found, "name", "credential", "protected_by", "protected_at")


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


# -- seals of Python workflows' snapshots: survey, sealing and the acceptance date ---------------------------

PAGE = 200
DAY = 86400.0


@dataclass(slots=True)
class Survey:
    """The seals of unfinished Python executions: sealed snapshots by key, and those without a seal."""

    sealing: Sealing | None
    sealed: Counter[str] = field(default_factory=Counter)
    """Number of snapshots by the id of the key."""
    unsealed: list[str] = field(default_factory=list)
    """Executions whose snapshot has no seal."""
    by_hand: int = 0
    has_more: bool = False


async def survey(client: Client, seals: SnapshotSeals, most: int | None = None) -> Survey:
    """Count the seals. At most ``most`` executions are examined."""
    await seals.read_keys()
    found = Survey(await seals.sealing())
    looked = 0
    async for view in _unfinished(client):
        if most is not None and looked >= most:
            found.has_more = True
            break
        looked += 1
        machine = await client.stack.ledger.machine(view.id)
        if machine is None or not machine.snapshot:
            continue
        if is_sealed(machine.snapshot):
            found.sealed[key_of(machine.snapshot)] += 1
        elif await seals.has_manual_seal(view.id):
            found.by_hand += 1
        else:
            found.unsealed.append(view.id)
    return found


async def seal_all(client: Client, seals: SnapshotSeals) -> tuple[int, int]:
    """Seal the snapshots of unfinished executions, and the code of their versions. Return the number of each.

    Unsealed content is sealed as it is. What an older key sealed is sealed with the first key if the old seal is valid;
    else raise `SnapshotRefused`.
    """
    if not seals.keys.is_configured:
        raise NoSecretKey(
            "there is no key to seal snapshots with: set DALSEGNO_SECRET_KEY or DALSEGNO_SECRET_KEY_FILE for this "
            "command and for every worker; `dalsegno credentials new-key` makes one"
        )
    await seals.prepare()
    await seals.accept_until((await seals.begin()).accept_until)  # the date is sealed with the first key, too
    first = seals.key_ids[0]
    snapshots, definitions = 0, set()
    for execution in await seals.sealed_manually():
        await seals.forget_manual_seal(execution)
    async for view in _unfinished(client):
        definitions.add(view.definition)
        machine = await client.stack.ledger.machine(view.id)
        if machine is None or not machine.snapshot or key_of(machine.snapshot) == first:
            continue
        snapshot = machine.snapshot
        if is_sealed(snapshot):
            snapshot = await seals.opened(snapshot, view.id, view.definition)
        await seals.seal_manually(snapshot, view.id, view.definition)
        snapshots += 1
    programs = 0
    for content_hash in sorted(definitions):
        definition = await client.stack.archive.definition_by_hash(content_hash)
        if definition is not None:
            await seals.seal_program(content_hash, stored_program(definition.source))
            programs += 1
    return snapshots, programs


def _unfinished(client: Client) -> AsyncIterator[ExecutionView]:
    where = ExecutionFilter(states=UNDER_WAY, kinds=("python",))
    return all_executions(client.stack.archive, where, at_once=PAGE)


def moment_of(text: str, now: float) -> float:
    """Parse ``now``, a number of days (``30d``), or a date such as 2027-03-31 (UTC, start of the day)."""
    if text == "now":
        return now
    if text.endswith("d") and text[:-1].isdigit():
        return now + int(text[:-1]) * DAY
    try:
        found = dt.datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(f"{text!r} is not a date; write 2027-03-31, 30d or now") from None
    return (found if found.tzinfo is not None else found.replace(tzinfo=dt.UTC)).timestamp()


def date_of(moment: float) -> str:
    return dt.datetime.fromtimestamp(moment, dt.UTC).strftime("%Y-%m-%d %H:%M UTC")


def sentence(found: Survey, now: float) -> str:
    """Return one line about the seals of a store."""
    count = f"at least {len(found.unsealed)}" if found.has_more else str(len(found.unsealed))
    if found.sealing is None:
        return f"not sealed: no process with a secret key has run Python workflows here; {count} unsealed"
    until = found.sealing.accept_until
    accepted = "are accepted until" if now < until else "are refused since"
    return f"sealed since {date_of(found.sealing.since)}; unsealed ones {accepted} {date_of(until)}: {count} left"
