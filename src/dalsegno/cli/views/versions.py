"""Workflows, versions and aliases: reading, changing, printing, for ``workflows``, ``versions`` and ``alias``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rich.table import Table
from rich.text import Text

from dalsegno.cli.errors import Unknown
from dalsegno.cli.output import iso, moment, print_table, span, stdout
from dalsegno.cli.target.target import WorkflowApi, WorkflowApiArchive
from dalsegno.engine.definitions import deployed_names
from dalsegno.errors import InvalidInput, NotFound
from dalsegno.model.definition import (
    LATEST,
    Definition,
    Version,
    check_alias,
    is_part,
    no_such_version,
    parse_target,
    read_version,
)
from dalsegno.model.execution import NOT_ENDED
from dalsegno.model.suggestion import no_such_workflow
from dalsegno.ports.archive import ExecutionFilter

MOST_COUNTED = 1000
"""Unfinished executions are counted up to this number, to keep the command fast."""
HINT = "`dalsegno versions NAME` lists the versions and aliases of a workflow."


@contextmanager
def naming(target: str, version: Version = None) -> Iterator[None]:
    """Add a hint if a lookup fails because a version or alias does not exist."""
    try:
        yield
    except NotFound as error:
        name, own = parse_target(target)
        if str(error) != no_such_version(name, own if own is not None else read_version(version)):
            raise
        raise Unknown(str(error), f"`dalsegno versions {name}` lists its versions and aliases.") from None


@dataclass(frozen=True, slots=True)
class VersionLine:
    definition: Definition
    current: bool
    aliases: tuple[str, ...]
    unfinished: int
    counted_all: bool = True

    def as_object(self) -> dict[str, Any]:
        definition = self.definition
        return {
            "version": definition.version,
            "current": self.current,
            "aliases": list(self.aliases),
            "kind": definition.kind,
            "hash": definition.hash,
            "deployed_at": iso(definition.created_at),
            "unfinished": self.unfinished,
        }


async def read_versions(client: WorkflowApi, name: str) -> list[VersionLine]:
    archive = client.stack.archive
    versions = await _versions(archive, name)
    current = await archive.definition(name)
    aliases = await archive.aliases(name)
    counted, whole = await _unfinished(client, name)
    return [
        VersionLine(
            each,
            current is not None and current.version == each.version,
            tuple(alias for alias, version in aliases.items() if version == each.version),
            counted[each.version],
            whole,
        )
        for each in versions
    ]


async def _versions(archive: WorkflowApiArchive, name: str) -> list[Definition]:
    found = await archive.versions(name)
    if not found:
        known = await deployed_names(archive)
        raise Unknown(no_such_workflow(name, known), "`dalsegno workflows` lists what is deployed.")
    return found


async def _unfinished(client: WorkflowApi, name: str) -> tuple[Counter[int], bool]:
    counted: Counter[int] = Counter()
    whole = True
    for state in NOT_ENDED:
        views = await client.executions(ExecutionFilter(name, (state,)), limit=MOST_COUNTED)
        counted.update(view.version for view in views)
        whole = whole and len(views) < MOST_COUNTED
    return counted, whole


def print_versions(lines: Sequence[VersionLine], now: float) -> None:
    console = stdout()
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("version", "aliases", "kind"):
        table.add_column(title, no_wrap=True)
    table.add_column("deployed", no_wrap=True, style="dim")
    table.add_column("age", no_wrap=True, justify="right", style="dim")
    table.add_column("unfinished", no_wrap=True, justify="right")
    for line in lines:
        definition = line.definition
        aliases = (LATEST, *line.aliases) if line.current else line.aliases
        more = "" if line.counted_all else "+"
        table.add_row(
            Text(f"{definition.version}{' *' if line.current else ''}", "bold" if line.current else ""),
            Text(", ".join(aliases), "green" if line.current else ""),
            definition.kind,
            moment(definition.created_at),
            span(now - definition.created_at),
            f"{line.unfinished:,}{more}" if line.unfinished else "",
        )
    print_table(console, table)


# -- all workflows --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WorkflowLine:
    """A deployed workflow, its current version, and the number of versions."""

    current: Definition
    versions: tuple[int, ...]
    """Version numbers, newest first."""
    aliases: dict[str, int]

    def as_object(self) -> dict[str, Any]:
        return {
            "name": self.current.name,
            "kind": self.current.kind,
            "version": self.current.version,
            "versions": list(self.versions),
            "aliases": self.aliases,
            "deployed_at": iso(self.current.created_at),
        }


async def read_workflows(archive: WorkflowApiArchive) -> list[WorkflowLine]:
    """Return the workflows by name. Scripts that are part of a graph are listed with the graph."""
    found: list[WorkflowLine] = []
    after = ""
    while page := await archive.definitions(after):
        for each in page:
            if not is_part(each):
                numbers = tuple(version.version for version in await archive.versions(each.name))
                found.append(WorkflowLine(each, numbers, await archive.aliases(each.name)))
        after = page[-1].name
    return found


def print_workflows(lines: Sequence[WorkflowLine], now: float) -> None:
    console = stdout()
    if not lines:
        console.print("no workflows; `dalsegno deploy` stores some", style="dim")
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("workflow", "kind", "version", "aliases"):
        table.add_column(title, no_wrap=title != "aliases")
    table.add_column("versions", no_wrap=True, justify="right")
    table.add_column("deployed", no_wrap=True, style="dim")
    table.add_column("age", no_wrap=True, justify="right", style="dim")
    for line in lines:
        aliases = ", ".join(f"{alias} ({version})" for alias, version in sorted(line.aliases.items()))
        deployed = line.current.created_at
        table.add_row(
            Text(line.current.name, "bold"),
            line.current.kind,
            str(line.current.version),
            Text(aliases),
            f"{len(line.versions):,}",
            moment(deployed),
            span(now - deployed),
        )
    print_table(console, table)


# -- aliases --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AliasChange:
    name: str
    alias: str
    version: int | None
    """None if the alias was removed."""
    before: int | None

    def as_object(self) -> dict[str, Any]:
        return {"name": self.name, "alias": self.alias, "version": self.version, "before": self.before}

    def __str__(self) -> str:
        if self.version is None:
            return f"removed alias '{self.alias}' of '{self.name}' (was version {self.before})"
        before = f" (was {self.before})" if self.before not in (None, self.version) else ""
        return f"{self.name}@{self.alias} means version {self.version}{before}"


async def set_alias(archive: WorkflowApiArchive, name: str, alias: str, version: str) -> AliasChange:
    check_alias(alias)
    await _versions(archive, name)
    try:
        meant = await archive.definition(name, version)
    except InvalidInput as error:
        raise Unknown(str(error), HINT) from None
    if meant is None:
        raise Unknown(no_such_version(name, read_version(version)), HINT)
    before = (await archive.aliases(name)).get(alias)
    await archive.set_alias(name, alias, meant.version)
    return AliasChange(name, alias, meant.version, before)


async def remove_alias(archive: WorkflowApiArchive, name: str, alias: str) -> AliasChange:
    await _versions(archive, name)
    before = (await archive.aliases(name)).get(alias)
    if before is None or not await archive.remove_alias(name, alias):
        raise Unknown(no_such_version(name, alias), HINT)
    return AliasChange(name, alias, None, before)
