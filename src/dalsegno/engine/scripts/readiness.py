"""Readiness for a script: does this process have the code, the migrations and the keys that a step needs? If it does
not, the step goes to a worker that has them.
"""

from __future__ import annotations

from msgspec.structs import replace

from dalsegno.engine.definitions import Definitions
from dalsegno.engine.scripts.kept import Predecessor
from dalsegno.engine.scripts.programs import ScriptProgram
from dalsegno.engine.secrets.snapshot_seals import NO_KEY, KeyMissing, SnapshotSeals
from dalsegno.engine.worker.capabilities import Capabilities
from dalsegno.model.token import Lease


class Readiness:
    """Checks before a step of a script. Each raises an error that leaves the step to another worker."""

    def __init__(self, definitions: Definitions, elsewhere: Capabilities, seals: SnapshotSeals) -> None:
        self.definitions = definitions
        self.elsewhere = elsewhere
        self.seals = seals

    async def check_code(self, lease: Lease, program: ScriptProgram) -> None:
        lacking = self.lacking(lease.definition, program)
        if lacking:
            await self.elsewhere.look_for_version(program.definition, lacking, lease.queue)

    def lacking(self, definition: str, program: ScriptProgram) -> frozenset[str]:
        """Return the names that a version other than the program's own uses and this program lacks."""
        if not program.native or self.elsewhere.has_version(definition):
            return frozenset()
        lacking = program.lacking()
        program.wait_for(lacking)
        return lacking

    async def check_migrations(self, lease: Lease, program: ScriptProgram) -> None:
        """Look for a worker that has the very version: it may have the migration that a move needs."""
        if program.native and not self.elsewhere.has_version(lease.definition):
            migrations = frozenset(["its migrations"])
            await self.elsewhere.look_for_version(program.definition, migrations, lease.queue)

    async def check_keys(self, lease: Lease, program: ScriptProgram) -> None:
        """Check the seals before code of a Python workflow runs that may come from the store, and before its state is
        stored.
        """
        await self.seals.prepare()
        try:
            if not program.is_own:
                await self.seals.check_program(program.definition)
            if self.seals.must_seal():
                raise KeyMissing(NO_KEY, "")
        except KeyMissing as error:
            await self.elsewhere.look_for_key(error.id, lease.queue)
            raise

    async def opened(self, lease: Lease, program: ScriptProgram, snapshot: bytes) -> bytes:
        """Return the verified snapshot. Another worker may have a key that this one lacks."""
        if not program.native:
            return snapshot
        try:
            return await self.seals.opened(snapshot, lease.execution, lease.definition)
        except KeyMissing as error:
            await self.elsewhere.look_for_key(error.id, lease.queue)
            raise

    async def kept_snapshot(
        self, lease: Lease, program: ScriptProgram, predecessor: Predecessor
    ) -> tuple[bytes, ScriptProgram | None]:
        """Return the verified snapshot of the execution that keeps it, and the version of the program that it is of, if
        that is another one.
        """
        kept, definition = await predecessor.kept(), await predecessor.definition()
        own = replace(lease, execution=predecessor.other, definition=definition)
        if definition == lease.definition:
            return await self.opened(own, program, kept.snapshot), None
        old = await self.definitions.for_moving(definition, program)
        if old.native:
            await self.check_keys(lease, old)
        return await self.opened(own, old, kept.snapshot), old


def waits_for(program: ScriptProgram, problem: str) -> str:
    """Return the message of a step that waits: another version of the program cannot continue its machine."""
    known = program.definition
    return (
        f"version {known.version} of '{known.name}' cannot continue in this process: {problem}. It continues in a"
        " worker whose program has it again: roll back, or deploy a program that keeps the old name"
    )
