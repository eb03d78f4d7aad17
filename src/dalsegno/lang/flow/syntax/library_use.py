"""Checks of library use: known names, argument counts, names of tasks, and calls that only look parallel."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from dalsegno.lang.expressions.syntax.tree import (
    Arrow,
    Await,
    Call,
    Chain,
    Entry,
    ExpressionStatement,
    Literal,
    Member,
    Name,
    ObjectLiteral,
    Program,
    Spread,
)
from dalsegno.lang.flow.syntax.scopes import FunctionFacts, ScopeWalk
from dalsegno.lang.flow.syntax.syntax_errors import Report
from dalsegno.lang.flow.syntax.tree import AnyNode, walk
from dalsegno.lang.stdlib.orchestration_names import (
    AFTER_WITH,
    LOWER_CASE,
    OPTIONS,
    ORCHESTRATION,
    ORCHESTRATION_NAMESPACES,
    PROMISE_GROUPS,
    PROMISE_MAKERS_TO_AWAIT,
    RUN_VALUES,
    ArgumentCounts,
    unknown_option,
)
from dalsegno.lang.stdlib.registry import CONSTANTS, FUNCTIONS, NAMESPACES, library_name
from dalsegno.lang.values.kinds import number_text

COUNTS: dict[str, ArgumentCounts] = {
    **{name: (builtin.least, builtin.most) for name, builtin in FUNCTIONS.items()},
    **ORCHESTRATION,
}
_WITHOUT_INPUT = {
    **{
        name: f": without input, write {name}(…, null)"
        for name in ("Task.run", "Workflow.run", "Workflow.start")
    },
    "Node.run": ": without parameters, write Node.run(…, {})",
}
"""Advice for a missing second argument."""

_NAMESPACES = NAMESPACES | ORCHESTRATION_NAMESPACES
_MEMBERS = frozenset({*COUNTS, *CONSTANTS})
BUILTIN_NAMES = frozenset({name for name in COUNTS if "." not in name} | _NAMESPACES | RUN_VALUES)
"""Names in the library's spelling."""

_LEADING_ZERO = re.compile(r"0[0-9_][0-9_.]*")

KNOWN_NAMES = tuple(sorted({*BUILTIN_NAMES, *LOWER_CASE}))
"""Candidates for suggestions."""


def full_name(name: str) -> str:
    """Return the library's spelling of a name."""
    return name if name in BUILTIN_NAMES else LOWER_CASE.get(name, library_name(name))


def is_builtin(name: str) -> bool:
    return full_name(name) in BUILTIN_NAMES


class LibraryUse:
    """Checks every chain whose base is a name of the library and not a variable."""

    def __init__(self, scopes: ScopeWalk, report: Report, tasks: Collection[str] | None) -> None:
        self.scopes = scopes
        self.report = report
        self.tasks = tasks
        self.task_calls: list[tuple[str, str | None]] = []
        """Tasks named by a literal, each with the queue of its call."""

    def check(self, program: Program) -> None:
        for node in walk(program):
            if isinstance(node, Literal):
                self.check_number(node)
            elif isinstance(node, ExpressionStatement):
                self.check_dropped(node.value)
            elif isinstance(node, Chain) and isinstance(node.base, Name) and self.is_library(node.base):
                self.check_chain(node, full_name(node.base.name))

    def check_number(self, node: Literal) -> None:
        """Check a numeral. ``08`` is eight here; other languages reject it or read another number."""
        written = _LEADING_ZERO.match(self.report.source, node.offset)
        if written is not None and isinstance(node.value, int | float) and not isinstance(node.value, bool):
            message = f"'{written.group()}' is read as {number_text(node.value)}: write it without the zero before it"
            self.report.note("leading-zero", message, node.offset)

    def is_library(self, name: Name) -> bool:
        return id(name) not in self.scopes.meanings and name.name not in self.scopes.open_writes

    def check_dropped(self, value: AnyNode) -> None:
        """Check a timer or a wait as a statement of its own: the script continues at once."""
        name = self.called_function(value)
        if name in PROMISE_MAKERS_TO_AWAIT:
            message = f"nothing waits for this {name}(): write await {name}(…)"
            self.report.note("forgotten-await", message, value.offset)

    def called_function(self, value: AnyNode) -> str:
        """Return the library function if the expression is exactly one call of it with arguments."""
        if not (isinstance(value, Chain) and isinstance(value.base, Name) and self.is_library(value.base)):
            return ""
        name = full_name(value.base.name)
        match value.links:
            case (Call(arguments=(_, *_)),):
                return name
            case (Member(name=member), Call(arguments=(_, *_))):
                return f"{name}.{member}"
        return ""

    def check_chain(self, chain: Chain, name: str) -> None:
        first = chain.links[0]
        if isinstance(first, Call):
            self.check_count(name, first)
        elif isinstance(first, Member) and name in _NAMESPACES:
            self.check_member(chain, f"{name}.{first.name}", first)

    def check_member(self, chain: Chain, name: str, member: Member) -> None:
        if name not in _MEMBERS:
            namespace = name.partition(".")[0]
            known = [each for each in sorted(_MEMBERS) if each.startswith(f"{namespace}.")]
            self.report.note(
                "undefined-variable", f"there is no {name}{self.report.suggest(name, known)}", member.offset
            )
            return
        call = _call_at(chain, 1)
        if call is None:
            return
        self.check_count(name, call)
        namespace, _, function = name.partition(".")
        if function == "with":
            self.check_options(call, namespace)
            self.check_after_with(chain, namespace)
        elif name == "Task.run":
            self.check_task(call, None)
        if name in PROMISE_GROUPS:
            self.check_sequential(name, call)

    def check_options(self, call: Call, namespace: str) -> None:
        """Check literal option names; computed ones are checked at run time."""
        given = call.arguments[0] if call.arguments else None
        for entry in given.entries if isinstance(given, ObjectLiteral) else ():
            name = entry.key.value if isinstance(entry, Entry) and isinstance(entry.key, Literal) else None
            if isinstance(name, str) and name not in OPTIONS[namespace]:
                self.report.note("unknown-option", unknown_option(namespace, name), entry.offset)

    def check_after_with(self, chain: Chain, namespace: str) -> None:
        """Check ``Task.with({…}).run(name, inputs)``."""
        member, call = chain.links[2] if len(chain.links) > 2 else None, _call_at(chain, 3)
        if isinstance(member, Member) and member.name in AFTER_WITH[namespace] and call is not None:
            self.check_count(f"{namespace}.{member.name}", call)
            if namespace == "Task":
                self.check_task(call, _call_at(chain, 1))

    def check_count(self, name: str, call: Call) -> None:
        if name not in COUNTS or any(isinstance(argument, Spread) for argument in call.arguments):
            return
        least, most = COUNTS[name]
        given = len(call.arguments)
        if given < least or (most is not None and given > most):
            wanted = (
                f"{least}" if least == most else f"at least {least}" if most is None else f"{least} to {most}"
            )
            noun = "argument" if wanted in ("1", "at least 1") else "arguments"
            hint = _WITHOUT_INPUT.get(name, "") if given == 1 else ""
            self.report.note(
                "argument-count", f"{name}() takes {wanted} {noun}, not {given}{hint}", call.offset
            )

    def check_task(self, call: Call, options: Call | None) -> None:
        name = call.arguments[0] if call.arguments else None
        if not isinstance(name, Literal) or not isinstance(name.value, str):
            return
        self.task_calls.append((name.value, _queue_in(options)))
        if self.tasks is not None and name.value not in self.tasks:
            hint = self.report.suggest(name.value, sorted(self.tasks))
            self.report.note("unknown-task", f"there is no task '{name.value}'{hint}", name.offset)

    def check_sequential(self, group: str, call: Call) -> None:
        for place, what in self.awaiting_calls(call):
            message = (
                f"{what} awaits, so these calls run one after the other before {group}() sees them: "
                "give it the promises of Task, Workflow, Timer or Signal themselves"
            )
            self.report.note("sequential-async", message, place.offset)

    def awaiting_calls(self, call: Call) -> Iterator[tuple[AnyNode, str]]:
        """Yield calls of awaiting functions in the arguments.

        Awaiting functions passed to methods such as ``map`` are included.
        """
        for argument in call.arguments:
            for node in walk(argument, except_below=(Arrow, Await)):
                if not isinstance(node, Chain):
                    continue
                if isinstance(node.links[0], Call) and self.awaits(node.base):
                    yield node, _called(node.base)
                for link in node.links[1:]:
                    for given in link.arguments if isinstance(link, Call) else ():
                        if self.awaits(given):
                            yield given, _called(given)

    def awaits(self, node: AnyNode) -> bool:
        facts: FunctionFacts | None = None
        if isinstance(node, Arrow):
            facts = self.scopes.functions.get(id(node))
        elif isinstance(node, Name):
            variable = self.scopes.meanings.get(id(node))
            facts = variable.function if variable else None
        return facts is not None and facts.awaits


def _queue_in(options: Call | None) -> str | None:
    given = options.arguments[0] if options is not None and options.arguments else None
    for entry in given.entries if isinstance(given, ObjectLiteral) else ():
        if isinstance(entry, Entry) and isinstance(entry.key, Literal) and entry.key.value == "queue":
            queue = entry.value.value if isinstance(entry.value, Literal) else None
            return queue if isinstance(queue, str) else None
    return None


def _call_at(chain: Chain, position: int) -> Call | None:
    link = chain.links[position] if len(chain.links) > position else None
    return link if isinstance(link, Call) else None


def _called(node: AnyNode) -> str:
    return f"'{node.name}'" if isinstance(node, Name) else "this function"
