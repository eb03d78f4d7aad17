"""The vault: credentials in the store, sealed field by field."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from dalsegno.engine.secrets.credentials import (
    KIND,
    CredentialInfo,
    NewCredential,
    Stored,
    check_name,
    read_stored,
)
from dalsegno.engine.secrets.definition_approvals import DefinitionApprovals, ProtectedNames
from dalsegno.engine.secrets.keys import Keyring, KeySource, SecretKey
from dalsegno.errors import (
    CredentialNotFound,
    CredentialRefused,
    DalSegnoError,
    DefinitionNotApproved,
    InvalidInput,
    SecretUnreadable,
)
from dalsegno.model.definition import PART_SIGN, Definition, is_adopted, is_part
from dalsegno.ports.archive import Archive
from dalsegno.ports.clock import Clock
from dalsegno.ports.records import Record, Records
from dalsegno.ports.secrets import Credential

PAGE = 100
NODE_PREFIX = "node:"
"""Prefix of the task name of a library node that a script runs."""

_encode = msgspec.json.encode


@dataclass(slots=True)
class Rotation:
    """Report of a rotation, which can be interrupted at any time and run again."""

    rotated: list[str] = field(default_factory=list)
    current: int = 0
    """Number of credentials that the first key had already sealed."""
    unreadable: dict[str, str] = field(default_factory=dict)
    """Reasons by name of credentials that could not be opened and were left unchanged."""


class Vault:
    """The implementation of ports.secrets.Secrets, and the management of credentials."""

    def __init__(self, records: Records, archive: Archive, keys: KeySource, clock: Clock) -> None:
        self.records = records
        self.archive = archive
        self.keys = keys
        self.approvals = DefinitionApprovals(records, archive, clock)
        self.protected_names = ProtectedNames(records, clock)
        self.loop: asyncio.AbstractEventLoop | None = None
        """The engine's loop, for tasks that request credentials from their threads."""

    async def put(self, new: NewCredential) -> tuple[CredentialInfo, bool]:
        """Create or change a credential. Return it, and True if it is new. Raises InvalidInput or NoSecretKey."""
        new.check()
        while True:
            before = await self.records.get(KIND, new.name)
            values = new.fields if new.fields is not None else self._kept(new, before)
            key = (await self._keyring_to_write()).first
            data = _encode(_sealed(new, values, key))
            stored = await self.records.put(KIND, new.name, data, before.version if before is not None else 0)
            if stored is not None:
                self.protected_names.forget()
                return _info(stored), before is None

    def _kept(self, new: NewCredential, before: Record | None) -> Mapping[str, str]:
        if before is None:
            raise InvalidInput(f"there is no credential '{new.name}' yet; give its 'fields'")
        stored = read_stored(before)
        if stored.type != new.type:
            raise InvalidInput(f"'type' changes from '{stored.type}' to '{new.type}'; give the new 'fields'")
        return self._opened(new.name, stored)

    async def _keyring_to_write(self) -> Keyring:
        is_first = not await self.records.page(KIND, limit=1)
        # Off the loop: it may read a file, or derive a key from a passphrase.
        return await asyncio.to_thread(self.keys.keyring_or_new, is_first=is_first)

    async def require_key(self) -> None:
        """Raise NoSecretKey if nothing can be sealed; if permitted, a first key is created."""
        await self._keyring_to_write()

    async def info(self, name: str) -> CredentialInfo:
        return _info(await self._record(name))

    async def page(self, after: str = "", limit: int = PAGE) -> list[CredentialInfo]:
        return [_info(record) for record in await self.records.page(KIND, after, limit)]

    async def remove(self, name: str) -> None:
        check_name(name)
        if not await self.records.remove(KIND, name):
            raise CredentialNotFound(_unknown(name))
        self.protected_names.forget()

    async def resolve(self, name: str, workflow: str, definition: str | None = None) -> Credential:
        """Return a credential for a workflow. ``definition``: content hash of the requesting definition, "" for a
        task that runs on its own. None is reserved for readers in the server, such as webhooks, whose names no
        definition can have.
        """
        stored = read_stored(await self._record(name))
        if definition is None:
            is_permitted = stored.lists(workflow)
        else:
            is_permitted = await self._permits(name, stored, workflow, definition)
        if not is_permitted:
            raise CredentialRefused(
                f"credential '{name}' may not be used by workflow '{workflow}'; an admin can add the workflow to its "
                "list"
            )
        return await self._credential(name, stored)

    async def _permits(self, name: str, stored: Stored, workflow: str, definition: str) -> bool:
        """Return True if a definition may use the credential. Its name alone does not suffice: its content must be
        approved. Raises DefinitionNotApproved.
        """
        if is_adopted(definition):
            return stored.adoptable
        if stored.is_for_any_workflow:
            return True
        if not definition:
            # A single task is code that the operator gave to this worker; a library node is not.
            return stored.lists(workflow) and not workflow.startswith(NODE_PREFIX)
        approval = await self.approvals.of(definition)
        if approval is not None and stored.lists(*approval.workflows):
            return True
        found = await self.archive.definition_by_hash(definition)
        if found is None or not stored.lists(_owner(found)):
            return False
        if await self.approvals.in_grace(name, stored, found):
            return True
        raise DefinitionNotApproved(
            f"credential '{name}' lists workflow '{_owner(found)}', but no admin has approved this definition of it "
            f"({found.name} version {found.version}, {definition[:12]}…). An admin approves it by deploying it, or "
            f"with `dalsegno credentials approve {_owner(found)}`"
        )

    async def open(self, name: str) -> Credential:
        """Return a credential for the server itself, such as for the signatures of webhooks. A credential with an
        empty list of workflows is reserved for this use.
        """
        return await self._credential(name, read_stored(await self._record(name)))

    async def _credential(self, name: str, stored: Stored) -> Credential:
        if not self.keys.is_read:
            await asyncio.to_thread(self.keys.keyring)  # a passphrase takes time
        return Credential(name, stored.type, self._opened(name, stored), stored.hosts, stored.sent_as)

    async def workflow_of(self, definition: str) -> str | None:
        """Return the name of the workflow with this content hash; None for a task outside workflows."""
        found = await self.archive.definition_by_hash(definition) if definition else None
        return found.name if found is not None else None

    async def rotate(self) -> Rotation:
        """Seal all values again with the first key, one whole credential at a time; concurrent changes are kept."""
        done, after = Rotation(), ""
        key = self.keys.keyring(again=True).first
        while page := await self.records.page(KIND, after, PAGE):
            for record in page:
                await self._rotate(record, key, done)
            after = page[-1].id
        return done

    async def _rotate(self, record: Record | None, key: SecretKey, done: Rotation) -> None:
        while record is not None:
            stored = read_stored(record)
            if all(sealed.key == key.id for sealed in stored.fields.values()):
                done.current += 1
                return
            try:
                values = self._opened(record.id, stored)
            except DalSegnoError as error:
                done.unreadable[record.id] = str(error)
                return
            fields = {
                name: key.seal(value, stored.bound_to(record.id, name)) for name, value in values.items()
            }
            data = _encode(msgspec.structs.replace(stored, fields=fields))
            if await self.records.put(KIND, record.id, data, record.version) is not None:
                done.rotated.append(record.id)
                return
            record = await self.records.get(KIND, record.id)  # changed concurrently: read it again

    async def _record(self, name: str) -> Record:
        check_name(name)
        record = await self.records.get(KIND, name)
        if record is None:
            raise CredentialNotFound(_unknown(name))
        return record

    def _opened(self, name: str, stored: Stored) -> dict[str, str]:
        return {
            field: self._key(name, sealed.key).open(sealed, stored.bound_to(name, field))
            for field, sealed in stored.fields.items()
        }

    def _key(self, name: str, id: str) -> SecretKey:
        """Return a key by its id. Keys are read again if it is missing: a file may have received a new key while this
        process ran.
        """
        key = self.keys.keyring().find(id) or self.keys.keyring(again=True).find(id)
        if key is None:
            known = ", ".join(self.keys.keyring().ids())
            raise SecretUnreadable(
                f"credential '{name}' is sealed with key {id}, and this process has {known}; give it that key too "
                "(several are separated by commas or lines), or set the credential again"
            )
        return key


def _sealed(new: NewCredential, values: Mapping[str, str], key: SecretKey) -> Stored:
    hosts, workflows = tuple(map(str.lower, new.hosts)), tuple(new.workflows)
    empty = Stored(
        new.type,
        {},
        hosts,
        workflows,
        new.sent_as,
        new.description,
        needs_approval=True,
        adoptable=new.adoptable,
    )
    fields = {field: key.seal(value, empty.bound_to(new.name, field)) for field, value in values.items()}
    return msgspec.structs.replace(empty, fields=fields)


def _info(record: Record) -> CredentialInfo:
    stored = read_stored(record)
    return CredentialInfo(
        name=record.id,
        type=stored.type,
        fields=tuple(stored.fields),
        hosts=stored.hosts,
        workflows=stored.workflows,
        sent_as=stored.sent_as,
        description=stored.description,
        keys=tuple(sorted({sealed.key for sealed in stored.fields.values()})),
        version=record.version,
        created_at=record.created_at,
        changed_at=record.changed_at,
        adoptable=stored.adoptable,
    )


def _owner(definition: Definition) -> str:
    """Return the workflow of a definition. A script inside a graph counts as the graph."""
    return definition.name.rpartition(PART_SIGN)[0] if is_part(definition) else definition.name


def _unknown(name: str) -> str:
    return f"there is no credential '{name}' in this store; `dalsegno credentials ls` lists them"
