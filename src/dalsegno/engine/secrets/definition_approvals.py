"""Approvals of definitions: which ones may use credentials that list workflows. Those are the ones that an admin
deployed or approved.

An approval belongs to a content hash, so a changed definition needs another one. Names that credentials list, or that
an admin protects, are protected: only an admin deploys under them, or below them with ``/``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

import msgspec
from msgspec import Struct

from dalsegno.engine.secrets.credentials import KIND as CREDENTIAL
from dalsegno.engine.secrets.credentials import Stored, read_stored
from dalsegno.errors import InvalidInput
from dalsegno.model.definition import PART_SIGN, Definition, is_part
from dalsegno.ports.archive import Archive
from dalsegno.ports.clock import Clock
from dalsegno.ports.records import Records

logger = logging.getLogger("dalsegno.credentials")

KIND = "definition-approval"
GRACE_KIND = "definition-approval-grace"
GRACE_ID = "1"
PROTECTED = "protected-name"
"""Kind of the records of names that an admin protects."""
LONGEST_PATTERN = 200
GRACE_SECONDS = 30 * 86_400.0
"""Period in which definitions older than approvals may use credentials older than approvals by name alone."""
STORE = "the store"
"""Approver of definitions that a process with access to the store has deployed."""
FRESH_FOR = 1.0
"""Seconds for which protected names are cached. The check at each use of a credential does not depend on them."""
PAGE = 500


class DefinitionApproval(Struct, frozen=True):
    """An approval. ``workflows``: the names it counts for. A script inside a graph counts under the graph's name."""

    workflows: tuple[str, ...]
    by: str
    at: float


class Grace(Struct, frozen=True):
    """The grace period of a store older than approvals: definitions older than ``since`` are accepted by name before
    ``until``.
    """

    since: float
    until: float


class ListedDefinition(Struct, frozen=True):
    """A deployed version whose name a credential lists."""

    workflow: str
    version: int
    hash: str
    credentials: tuple[str, ...]
    approval: DefinitionApproval | None = None


class ApprovedDefinition(Struct, frozen=True):
    """The result of approving a definition."""

    workflow: str
    version: int
    hash: str


class DefinitionList(Struct, frozen=True):
    """Current and aliased versions that credentials list by name."""

    items: tuple[ListedDefinition, ...]
    grace_until: float | None = None
    """Time until which definitions and credentials older than approvals work without one."""


class DefinitionApprovals:
    def __init__(self, records: Records, archive: Archive, clock: Clock) -> None:
        self.records = records
        self.archive = archive
        self.clock = clock
        self._warned: set[tuple[str, str]] = set()

    async def of(self, hash: str) -> DefinitionApproval | None:
        record = await self.records.get(KIND, hash)
        return _decode_approval(record.data) if record is not None else None

    async def approve(self, definition: Definition, parts: Sequence[str], by: str) -> bool:
        """Approve a definition and return True if that changed anything. ``parts``: content hashes of the scripts
        inside a graph.
        """
        changed = False
        for content in (*parts, definition.hash):
            changed |= await self._approve(content, definition.name, by)
        return changed

    async def _approve(self, hash: str, workflow: str, by: str) -> bool:
        while True:
            record = await self.records.get(KIND, hash)
            known = _decode_approval(record.data).workflows if record is not None else ()
            if workflow in known:
                return False
            data = msgspec.json.encode(DefinitionApproval((*known, workflow), by, self.clock.now()))
            version = record.version if record is not None else 0
            if await self.records.put(KIND, hash, data, version) is not None:
                return True

    async def withdraw(self, hash: str) -> bool:
        """Withdraw an approval. Return True if there was one."""
        return await self.records.remove(KIND, hash)

    async def listed(self) -> list[ListedDefinition]:
        """Return the current and aliased versions whose names a credential lists, with their approvals."""
        limited = await limited_credentials(self.records)
        found: list[ListedDefinition] = []
        after = ""
        while limited and (page := await self.archive.definitions(after, PAGE)):
            for current in page:
                names = tuple(name for name, stored in limited if stored.lists(current.name))
                if names and not is_part(current):
                    found += [await self._listed(each, names) for each in await self._in_use(current)]
            after = page[-1].name
        return found

    async def _listed(self, definition: Definition, credentials: tuple[str, ...]) -> ListedDefinition:
        approval = await self.of(definition.hash)
        return ListedDefinition(definition.name, definition.version, definition.hash, credentials, approval)

    async def _in_use(self, current: Definition) -> list[Definition]:
        named = set((await self.archive.aliases(current.name)).values()) - {current.version}
        older = await self.archive.versions(current.name) if named else []
        return [current, *(each for each in older if each.version in named)]

    # -- the grace period of older stores ----------------------------------------------------------------------

    async def grace(self) -> Grace | None:
        """Return the grace period; None if nothing has needed it so far."""
        record = await self.records.get(GRACE_KIND, GRACE_ID)
        return msgspec.json.decode(record.data, type=Grace) if record is not None else None

    async def end_grace(self) -> None:
        await self.records.put(GRACE_KIND, GRACE_ID, msgspec.json.encode(Grace(0.0, 0.0)))

    async def in_grace(self, credential: str, stored: Stored, definition: Definition) -> bool:
        """Return True if a definition without approval may use the credential: both are older than approvals, and the
        grace period is not over.
        """
        if stored.needs_approval:
            return False
        grace = await self.grace() or await self._begin_grace()
        if definition.created_at >= grace.since or self.clock.now() >= grace.until:
            return False
        if (credential, definition.hash) not in self._warned:
            self._warned.add((credential, definition.hash))
            logger.warning(
                "workflow '%s' version %d uses credential '%s' without an admin's approval; that ends in %.0f days: "
                "`dalsegno credentials approve %s@%d`",
                definition.name,
                definition.version,
                credential,
                (grace.until - self.clock.now()) / 86_400,
                definition.name,
                definition.version,
            )
        return True

    async def _begin_grace(self) -> Grace:
        now = self.clock.now()
        data = msgspec.json.encode(Grace(now, now + GRACE_SECONDS))
        await self.records.put(GRACE_KIND, GRACE_ID, data, 0)
        return await self.grace() or Grace(0.0, 0.0)


class ProtectedName(Struct, frozen=True):
    """A protected name. ``name``: a workflow's name, or a pattern such as ``billing-*``."""

    name: str
    credential: str | None = None
    """The credential that lists it; None if an admin protects it."""
    protected_by: str | None = None
    protected_at: float | None = None


class ProtectedNames:
    """Names under which only admins deploy: those that credentials list, because a definition under such a name would
    use credentials that are not its own, and those that an admin protects.
    """

    def __init__(self, records: Records, clock: Clock) -> None:
        self.records = records
        self.clock = clock
        self._known: list[ProtectedName] = []
        self._fresh_until = float("-inf")

    def forget(self) -> None:
        """Drop the cache after a change in this process."""
        self._fresh_until = float("-inf")

    async def protect(self, name: str, by: str) -> ProtectedName:
        """Protect a name. Idempotent."""
        if not 0 < len(name) <= LONGEST_PATTERN or not name.isprintable():
            raise InvalidInput(
                f"a protected name has 1 to {LONGEST_PATTERN} printable characters, such as 'billing' or 'billing-*'"
            )
        data = msgspec.json.encode(ProtectedName(name, None, by, self.clock.now()))
        await self.records.put(PROTECTED, name, data, 0)
        self.forget()
        return next(each for each in await self.set_by_admins() if each.name == name)

    async def unprotect(self, name: str) -> bool:
        """Remove an admin's protection. Return True if there was one. A name that a credential lists stays
        protected.
        """
        was_there = await self.records.remove(PROTECTED, name)
        self.forget()
        return was_there

    async def set_by_admins(self) -> list[ProtectedName]:
        found: list[ProtectedName] = []
        while page := await self.records.page(PROTECTED, found[-1].name if found else "", PAGE):
            found += [_decode_protected(record.data) for record in page]
        return found

    async def all(self) -> list[ProtectedName]:
        listed = [
            ProtectedName(pattern, name)
            for name, stored in await limited_credentials(self.records)
            for pattern in stored.workflows
        ]
        return [*await self.set_by_admins(), *listed]

    async def protecting(self, name: str) -> ProtectedName | None:
        """Return the protection of this name, or of a name above it; None if there is none."""
        names = list(_with_patterns(name))
        for protected in await self._fresh():
            if any(fnmatchcase(each, protected.name) for each in names):
                return protected
        return None

    async def _fresh(self) -> list[ProtectedName]:
        now = self.clock.now()
        if not self._fresh_until - FRESH_FOR <= now < self._fresh_until:
            self._known = await self.all()
            self._fresh_until = now + FRESH_FOR
        return self._known


async def limited_credentials(records: Records) -> list[tuple[str, Stored]]:
    """Return the credentials that list workflows, by name."""
    found: list[tuple[str, Stored]] = []
    after = ""
    while page := await records.page(CREDENTIAL, after, PAGE):
        read = ((record.id, read_stored(record)) for record in page)
        found += [(name, stored) for name, stored in read if not stored.is_for_any_workflow]
        after = page[-1].id
    return found


def _with_patterns(name: str) -> Iterator[str]:
    while name:
        yield name
        name = name.rpartition(PART_SIGN)[0]


_decode_approval = msgspec.json.Decoder(DefinitionApproval).decode
_decode_protected = msgspec.json.Decoder(ProtectedName).decode
