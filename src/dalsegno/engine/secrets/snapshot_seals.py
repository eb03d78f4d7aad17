"""Seals of Python workflows' snapshots and of their stored code: HMAC-SHA256 under keys derived from the secret key.
Scripts are not sealed: their snapshots can name only functions of the language.

* A snapshot is prefixed with its seal: ``$1:<key id>:<mac>`` and a line break. The seal covers the snapshot, the
  execution and the definition. Blobs are covered by their names, which are hashes of their content.
* Stored code is sealed in a separate record, by a process that has the same code in its own program. That code is
  what runs; only earlier versions run from the store.
* Unsealed data are accepted until a date that is set when sealing begins in a store. An operator may seal them as
  they are: a record holds that seal until the execution's next turn.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import hmac
import logging
import os
from collections.abc import Sequence
from hashlib import sha256

import msgspec
from msgspec import Struct

from dalsegno.engine.secrets.keys import Keyring, KeySource
from dalsegno.errors import BadConfiguration, SnapshotRefused
from dalsegno.lang.python.program import StoredProgram, content_of, stored_program
from dalsegno.model.definition import Definition
from dalsegno.ports.clock import Clock
from dalsegno.ports.records import Records

logger = logging.getLogger("dalsegno.secrets")

SEALING = "snapshot-sealing"
"""Kind of the single record with the date on which sealing began in the store."""
STORE_RECORD = "store"
MANUAL = "snapshot-seal"
"""Kind of the records of seals set by an operator, by execution."""
PROGRAMS = "program-seal"
"""Kind of the records of seals of stored code, by its hash."""
LOOK_EVERY = 30.0
"""Seconds after which the keys and the date for unsealed snapshots are read again."""
MOST_SEALS = 8
"""Seals per version of a program: other releases of Dal Segno may compile the same source to other fragments."""

UNSEALED_VARIABLE = "DALSEGNO_UNSEALED_SNAPSHOTS"
"""With the value ``refuse``, a process with a key accepts nothing unsealed, regardless of the date in the store.
With a date such as 2027-03-31, it accepts unsealed snapshots until then at the latest.
"""
NO_KEY = (
    "snapshots in this store must be sealed, and this process has no secret key; set DALSEGNO_SECRET_KEY or "
    "DALSEGNO_SECRET_KEY_FILE for every worker"
)

BEGINS = "snapshots of Python workflows are sealed in this store from now on"
WRITTEN_BACK = (
    "the record of when the sealing of snapshots began was deleted from the store, and is written back"
)
IS_OVER = (
    "the record of when the sealing of snapshots began is missing, although there are seals in this store: snapshots "
    "without a seal are refused from now on; `dalsegno snapshots accept-until` sets another date"
)

_PREFIX = b"$1:"
_HEAD = len(_PREFIX) + 12 + 1 + 64 + 1
_SNAPSHOT_LABEL = b"dalsegno snapshot seal, version 1"
_PROGRAM_LABEL = b"dalsegno program seal, version 1"
_DATE_LABEL = b"dalsegno sealing date, version 1"


class Seal(Struct, frozen=True):
    key: str
    mac: str


class Sealing(Struct, frozen=True):
    """The date on which sealing began in a store, and the date until which unsealed data are accepted. Both are
    sealed, so that write access to the store does not suffice to extend them.
    """

    since: float
    accept_until: float
    seal: Seal | None = None

    def message(self) -> bytes:
        return f"{self.since!r} {self.accept_until!r}".encode()


class KeyMissing(SnapshotRefused):
    """The seal was made with a key that this process lacks; ``id`` is empty if it needs a key and has none."""

    def __init__(self, message: str, id: str) -> None:
        super().__init__(message)
        self.id = id


_decode_sealing = msgspec.json.Decoder(Sealing).decode
_decode_seal = msgspec.json.Decoder(Seal).decode
_decode_seals = msgspec.json.Decoder(tuple[Seal, ...]).decode
_encode = msgspec.json.encode


def is_sealed(snapshot: bytes) -> bool:
    return snapshot.startswith(_PREFIX)


def key_of(snapshot: bytes) -> str:
    """Return the id of the key that sealed the snapshot; empty if it is unsealed."""
    return (
        snapshot[len(_PREFIX) : len(_PREFIX) + 12].decode("ascii", "replace") if is_sealed(snapshot) else ""
    )


def content(snapshot: bytes) -> bytes:
    """Return a snapshot without its seal and without verification: for inspection only, never to run."""
    return snapshot[_HEAD:] if is_sealed(snapshot) else snapshot


class SnapshotSeals:
    def __init__(self, keys: KeySource, records: Records, clock: Clock, unsealed_seconds: float) -> None:
        self.keys = keys
        self._records = records
        self._clock = clock
        self._unsealed_seconds = unsealed_seconds
        self._latest = _latest(os.environ.get(UNSEALED_VARIABLE, "").strip())
        self._keyring: Keyring | None = None
        self._derived: dict[tuple[str, bytes], bytes] = {}
        self._sealing: Sealing | None = None
        self._stored: Sealing | None = None
        """The stored record when its seal was last verified."""
        self._look_at = float("-inf")
        self._known_programs: set[tuple[str, int]] = set()

    @property
    def key_ids(self) -> Sequence[str]:
        """Ids of the keys that this process has read and can verify seals with."""
        return self._keyring.ids() if self._keyring is not None else ()

    # -- the record of the store ----------------------------------------------------------------------------------

    async def prepare(self) -> None:
        """Read the keys and the store's sealing record, at most every `LOOK_EVERY` seconds. If there is a key and the
        store is not sealed yet, sealing begins.
        """
        now = self._clock.now()
        if now < self._look_at or not self.keys.may_be_configured:
            return
        await self.read_keys()
        found = await (self.begin() if self._keyring is not None else self.sealing())
        self._sealing = found or self._sealing  # a deleted record is still remembered
        self._look_at = now + LOOK_EVERY

    async def read_keys(self) -> None:
        # In a thread: it may read a file, and a passphrase takes a tenth of a second.
        found = None
        if self.keys.is_configured:
            found = await asyncio.to_thread(self.keys.keyring, again=True)
        if found is not self._keyring:
            self._keyring, self._derived = found, {}

    async def sealing(self) -> Sealing | None:
        record = await self._records.get(SEALING, STORE_RECORD)
        found = _decode_sealing(record.data) if record is not None else None
        if found is None or self._keyring is None:
            return found
        if found.seal is None or not self._fits(found.seal, _DATE_LABEL, found.message()):
            return msgspec.structs.replace(found, accept_until=found.since)
        self._stored = found
        until = max(found.since, min(found.accept_until, self._latest))
        return msgspec.structs.replace(found, accept_until=until)

    async def begin(self) -> Sealing:
        """Set the dates unless that was done before. Deleting the record does not restart the period: a process that
        has read the record writes it back, and if there are seals the period is over.
        """
        found = await self.sealing()
        while found is None:
            now = self._clock.now()
            new, message = Sealing(now, now + self._unsealed_seconds), BEGINS
            if self._stored is not None:
                new, message = self._stored, WRITTEN_BACK
            elif await self.has_seals():
                new, message = Sealing(now, now), IS_OVER
            if await self._records.put(SEALING, STORE_RECORD, _encode(self._with_seal(new)), 0) is not None:
                logger.log(logging.INFO if message is BEGINS else logging.WARNING, message)
            found = await self.sealing()
        return found

    async def has_seals(self) -> bool:
        """Return True if the store has records of seals: of code, or set by an operator."""
        return any([await self._records.page(kind, limit=1) for kind in (PROGRAMS, MANUAL)])

    async def accept_until(self, moment: float) -> Sealing:
        """Change the date until which unsealed data are accepted; the first call begins the sealing."""
        await self.read_keys()
        if self._keyring is None:
            raise KeyMissing("the date is sealed with the secret key, and this process has none", "")
        begun = await self.begin()
        changed = self._with_seal(msgspec.structs.replace(begun, accept_until=moment))
        await self._records.put(SEALING, STORE_RECORD, _encode(changed))
        self._look_at = float("-inf")
        return changed

    def _with_seal(self, sealing: Sealing) -> Sealing:
        if self._keyring is None:
            return sealing
        key = self._keyring.first.id
        seal = Seal(key, self._mac(key, _DATE_LABEL, sealing.message()))
        return msgspec.structs.replace(sealing, seal=seal)

    # -- snapshots ----------------------------------------------------------------------------------------------

    def sealed(self, snapshot: bytes, execution: str, definition: str) -> bytes:
        """Return the snapshot with a seal if there is a key. Requires `prepare`."""
        if self._keyring is None:
            return snapshot
        key = self._keyring.first.id
        mac = self._mac(key, _SNAPSHOT_LABEL, _message(snapshot, execution, definition))
        return _head(Seal(key, mac)) + snapshot

    async def opened(self, snapshot: bytes, execution: str, definition: str) -> bytes:
        """Return the snapshot without its seal. Raises `SnapshotRefused` if it is not trusted, `KeyMissing` if it
        cannot be verified.
        """
        if not is_sealed(snapshot):
            await self._check_unsealed(snapshot, execution, definition)
            return snapshot
        head, body = snapshot[:_HEAD], snapshot[_HEAD:]
        key = key_of(snapshot)
        seal = Seal(key, head[-65:-1].decode("ascii", "replace"))
        is_whole = head == _head(seal)
        try:
            await self._need_key(key, f"the snapshot of execution {execution}")
        except KeyMissing:
            if await self._fits_manual_seal(body, execution, definition):
                return body
            raise
        if not is_whole or not self._fits(seal, _SNAPSHOT_LABEL, _message(body, execution, definition)):
            raise SnapshotRefused(
                f"the seal of the snapshot of execution {execution} does not fit: the snapshot was changed in the "
                "store, or belongs to another execution. Nothing was run. Restore it from a backup, or cancel the "
                "execution"
            )
        return body

    async def _check_unsealed(self, snapshot: bytes, execution: str, definition: str) -> None:
        if self._sealing is None or self._clock.now() < self._sealing.accept_until:
            return
        if self._keyring is None:
            raise KeyMissing(
                NO_KEY,
                "",
            )
        if await self._fits_manual_seal(snapshot, execution, definition):
            return
        self._sealing = await self.begin()  # an operator may have set another date meanwhile
        if self._clock.now() < self._sealing.accept_until:
            return
        raise SnapshotRefused(
            f"the snapshot of execution {execution} has no seal, and snapshots without a seal are no longer accepted in"
            " this store. Nothing was run. If you trust it, run `dalsegno snapshots seal`; otherwise cancel the"
            " execution"
        )

    async def _fits_manual_seal(self, snapshot: bytes, execution: str, definition: str) -> bool:
        record = await self._records.get(MANUAL, execution)
        message = _message(snapshot, execution, definition)
        return record is not None and self._fits(_decode_seal(record.data), _SNAPSHOT_LABEL, message)

    def must_seal(self) -> bool:
        """Return True if this process must not store a snapshot because others would refuse it as unsealed."""
        sealing = self._sealing
        return self._keyring is None and sealing is not None and self._clock.now() >= sealing.accept_until

    async def seal_manually(self, snapshot: bytes, execution: str, definition: str) -> None:
        """Seal a stored snapshot as it is; an existing seal is removed first. Requires `prepare`."""
        if self._keyring is None:
            raise KeyMissing("there is no secret key to seal snapshots with", "")
        key = self._keyring.first.id
        mac = self._mac(key, _SNAPSHOT_LABEL, _message(snapshot, execution, definition))
        await self._records.put(MANUAL, execution, _encode(Seal(key, mac)))

    async def forget_manual_seal(self, execution: str) -> None:
        await self._records.remove(MANUAL, execution)

    async def sealed_manually(self, after: str = "", limit: int = 500) -> list[str]:
        """Return the executions whose snapshot an operator has sealed."""
        return [record.id for record in await self._records.page(MANUAL, after, limit)]

    async def has_manual_seal(self, execution: str) -> bool:
        return await self._records.get(MANUAL, execution) is not None

    # -- stored code --------------------------------------------------------------------------------------------

    async def seal_program(self, hash: str, program: StoredProgram) -> None:
        """Seal code that this process has in its own program, or that an operator trusts."""
        await self.prepare()
        if self._keyring is None:
            return
        key, message = self._keyring.first.id, _program_message(hash, program)
        new = Seal(key, self._mac(key, _PROGRAM_LABEL, message))
        while True:
            record = await self._records.get(PROGRAMS, hash)
            seals = _decode_seals(record.data) if record is not None else ()
            if new in seals:
                return
            kept = [seal for seal in seals if not self._fits(seal, _PROGRAM_LABEL, message)]
            data = _encode([new, *kept][:MOST_SEALS])
            version = record.version if record is not None else 0
            if await self._records.put(PROGRAMS, hash, data, version) is not None:
                return

    async def check_program(self, definition: Definition) -> None:
        """Verify code from the store before it runs. Raises `SnapshotRefused`."""
        known = (definition.hash, hash(definition.source))
        if self._sealing is None or known in self._known_programs:
            return
        if self._keyring is None and self._clock.now() < self._sealing.accept_until:
            return
        program = stored_program(definition.source)
        record = await self._records.get(PROGRAMS, definition.hash)
        seals = _decode_seals(record.data) if record is not None else ()
        message = _program_message(definition.hash, program)
        if any(self._fits(seal, _PROGRAM_LABEL, message) for seal in seals):
            self._known_programs.add(known)
            return
        what = f"the stored code of version {definition.version} of '{definition.name}'"
        for seal in seals:
            await self._need_key(seal.key, what)
        if seals:
            raise SnapshotRefused(
                f"the seal of {what} does not fit: it was changed in the store. Nothing was run. Restore it from a "
                "backup, or cancel the executions of this version"
            )
        if self._clock.now() >= self._sealing.accept_until:
            raise SnapshotRefused(
                f"{what} has no seal, and code without a seal is no longer accepted in this store. Nothing was run."
                " If you trust it, run `dalsegno snapshots seal`; otherwise cancel the executions of this version"
            )

    # -- internals ----------------------------------------------------------------------------------------------

    async def _need_key(self, id: str, what: str) -> None:
        """Raise KeyMissing if the key is not available. Keys are read again first: a file may have received another
        key while this process ran.
        """
        if self._keyring is None or self._keyring.find(id) is None:
            await self.read_keys()
        if self._keyring is None or self._keyring.find(id) is None:
            has = f"has {', '.join(self.key_ids)}" if self._keyring is not None else "has no secret key"
            raise KeyMissing(
                f"{what} is sealed with key {id}, and this process {has}; give every worker the same keys", id
            )

    def _fits(self, seal: Seal, label: bytes, message: bytes) -> bool:
        if self._keyring is None or self._keyring.find(seal.key) is None:
            return False
        return hmac.compare_digest(self._mac(seal.key, label, message).encode(), seal.mac.encode())

    def _mac(self, key: str, label: bytes, message: bytes) -> str:
        derived = self._derived.get((key, label))
        if derived is None:
            found = self._keyring.find(key) if self._keyring is not None else None
            if found is None:
                raise KeyMissing(f"this process does not have key {key}", key)
            derived = self._derived[key, label] = found.derived(label)
        return hmac.digest(derived, message, "sha256").hex()


def _latest(setting: str) -> float:
    """Return the latest time at which unsealed snapshots are accepted, as the operator has configured it."""
    if not setting:
        return float("inf")
    if setting == "refuse":
        return float("-inf")
    try:
        found = dt.datetime.fromisoformat(setting)
    except ValueError:
        raise BadConfiguration(
            f"{UNSEALED_VARIABLE} is {setting[:50]!r}; write 'refuse', or a date such as 2027-03-31"
        ) from None
    return (found if found.tzinfo is not None else found.replace(tzinfo=dt.UTC)).timestamp()


def _head(seal: Seal) -> bytes:
    return b"%b%b:%b\n" % (_PREFIX, seal.key.encode(), seal.mac.encode())


def _message(snapshot: bytes, execution: str, definition: str) -> bytes:
    """Return the sealed message. Ids and hashes contain no NUL."""
    return b"%b\0%b\0%b" % (execution.encode(), definition.encode(), snapshot)


def _program_message(hash: str, program: StoredProgram) -> bytes:
    return b"%b\0%b" % (hash.encode(), content_of(program))


def check_blob(name: str, data: bytes, execution: str) -> None:
    """Verify that a blob has the content that its name states. Snapshots of Python workflows name their blobs by
    content, sealed or not.
    """
    if sha256(data).hexdigest() != name:
        raise SnapshotRefused(
            f"a blob of execution {execution} was changed in the store: it does not have the content that its snapshot "
            "names. Nothing was run. Restore it from a backup, or cancel the execution"
        )
