"""Generator of random scripts: valid, always terminating, with closures, loops, errors and awaits.

The same seed gives the same script. Tests run each one in several ways (stored at every instruction, copied instead
of changed in place …) and compare the results.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_DEPTH = 4
TASKS = ("one", "quick", "slow", "fail")
"""Tasks that the scripts run; a test implements them. All take a number, ``fail`` always fails."""


def random_program(seed: int) -> str:
    """Return one script."""
    return _Writer(Random(seed)).program()


class _Writer:
    """Writes statements and expressions of a requested kind; tracks the variables in scope and their kinds."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.scopes: list[dict[str, str]] = [{}]
        self.names = 0
        self.depth = 0
        self.in_loop = 0
        self.in_function = 0
        self.comparing = False

    # words

    def program(self) -> str:
        self.scopes[-1].update(inputs="object")
        lines = [self.declare("list"), self.declare("number"), self.declare("object")]
        lines += [self.statement() for _ in range(self.random.randint(4, 10))]
        shown = ", ".join(
            [name for name, kind in self.visible() if kind in ("number", "list", "object", "text")]
        )
        return "\n".join([*lines, f"return [{shown}]"])

    def new(self, kind: str) -> str:
        self.names += 1
        name = f"v{self.names}"
        self.scopes[-1][name] = kind
        return name

    def visible(self) -> list[tuple[str, str]]:
        found: dict[str, str] = {}
        for scope in self.scopes:
            found.update(scope)
        return list(found.items())

    def variable(self, kind: str) -> str | None:
        names = [name for name, found in self.visible() if found == kind]
        return self.random.choice(names) if names else None

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    @contextmanager
    def nested(self, loop: bool = False, function: bool = False) -> Iterator[None]:
        outer = self.in_loop, self.in_function
        self.in_loop = (0 if function else self.in_loop) + loop
        self.in_function += function
        self.scopes.append({})
        self.depth += 1
        yield
        self.depth -= 1
        self.scopes.pop()
        self.in_loop, self.in_function = outer

    def body(self, least: int = 1, most: int = 3) -> str:
        lines = [self.statement() for _ in range(self.random.randint(least, most))]
        return "{ " + "; ".join(lines) + " }"

    # expressions

    def expression(self, kind: str) -> str:
        self.depth += 1
        wanted: Callable[[], str] = getattr(self, kind)
        written = self.variable(kind) if self.chance(0.35) else None
        written = written or wanted()
        self.depth -= 1
        return written

    def number(self) -> str:
        if self.depth > MAX_DEPTH + 1:
            return str(self.random.randint(-3, 9))
        choices = [
            lambda: str(self.random.randint(-3, 9)),
            lambda: f"({self.expression('number')} {self.random.choice('+-*')} {self.expression('number')})",
            lambda: f"({self.expression('number')} % 7)",
            lambda: f"{self.expression('list')}.length",
            lambda: (
                f"({self.expression('truth')} ? {self.expression('number')} : {self.expression('number')})"
            ),
            lambda: f"({self.expression('object')}?.a ?? {self.expression('number')})",
            lambda: f"{self.expression('list')}.reduce((s, x) => s + x, 0)",
            self.awaited,
            self.called,
        ]
        return self.random.choice(choices)()

    def awaited(self) -> str:
        if self.comparing:
            return "1"
        task = f"Task.run('{self.random.choice(TASKS[:3])}', {self.expression('number')})"
        promise = self.variable("promise")
        return f"(await {promise if promise and self.chance(0.3) else task})"

    def called(self) -> str:
        function = self.variable("function")
        return f"{function}({self.expression('number')})" if function else "0"

    def truth(self) -> str:
        choices: list[Callable[[], str]] = [
            self.comparing_numbers,
            lambda: f"{self.expression('list')}.includes({self.expression('number')})",
            lambda: f"(!{self.expression('truth')})",
            lambda: (
                f"({self.expression('truth')} {self.random.choice(['&&', '||'])} {self.expression('truth')})"
            ),
        ]
        return self.random.choice(choices)() if self.depth <= MAX_DEPTH + 1 else "true"

    def comparing_numbers(self) -> str:
        sign = self.random.choice(["<", ">", "==", "!="])
        return f"({self.expression('number')} {sign} {self.expression('number')})"

    def text(self) -> str:
        return f"`{self.random.choice('abc')}${{{self.expression('number')}}}`"

    def list(self) -> str:
        if self.depth > MAX_DEPTH + 1:
            return "[1, 2]"
        choices = [
            lambda: f"[{', '.join([self.expression('number') for _ in range(self.random.randint(0, 3))])}]",
            lambda: f"{self.expression('list')}.map(x => {self.closure('x')})",
            lambda: f"{self.expression('list')}.filter((x, i) => {self.closure('x', 'i')} > 1)",
            lambda: f"[...{self.expression('list')}, {self.expression('number')}]",
            lambda: f"{self.expression('list')}.slice(0, 4)",
            lambda: f"{self.expression('list')}.slice(0, 6).sort((x, y) => {self.comparison()})",
            self.joined,
        ]
        return self.random.choice(choices)()

    def joined(self) -> str:
        if self.comparing:
            return "[0]"
        tasks = [
            f"Task.run('{self.random.choice(TASKS[:3])}', {self.expression('number')})"
            for _ in range(self.random.randint(0, 3))
        ]
        return f"(await Promise.all([{', '.join([*tasks, '3'])}]))"

    def comparison(self) -> str:
        outer, self.comparing = self.comparing, True
        written = f"{self.closure('x', 'y')} - y"
        self.comparing = outer
        return written

    def closure(self, *parameters: str) -> str:
        with self.nested(function=True):
            self.scopes[-1].update(dict.fromkeys(parameters, "number"))
            return self.expression("number")

    def object(self) -> str:
        return f"{{a: {self.expression('number')}, l: {self.expression('list')}}}"

    def promise(self) -> str:
        return f"Task.run('{self.random.choice(TASKS)}', {self.expression('number')})"

    def function(self) -> str:
        with self.nested(function=True):
            parameter = self.new("number")
            if self.chance(0.4) or self.depth > MAX_DEPTH:
                return f"{parameter} => {self.expression('number')}"
            body = self.body()
            return f"({parameter} = 1) => {{ {body}; return {self.expression('number')} }}"

    # statements

    def statement(self) -> str:
        simple = [
            lambda: self.declare(self.random.choice(["number", "list", "object", "text", "promise"])),
            self.assign,
            self.change,
            self.change,
            self.log,
        ]
        if self.in_loop and self.chance(0.12):
            return f"if {self.in_parentheses('truth')} {{ {self.random.choice(['break', 'continue'])} }}"
        if self.in_function and self.chance(0.08):
            return f"if {self.in_parentheses('truth')} {{ return {self.expression('number')} }}"
        if self.depth >= MAX_DEPTH:
            return self.random.choice(simple)()
        compound = [
            self.branch,
            self.each,
            self.count,
            self.repeat,
            self.attempt,
            self.block,
            self.functions,
            self.throw,
        ]
        return self.random.choice(simple + simple + compound)()

    def in_parentheses(self, kind: str) -> str:
        return f"({self.expression(kind)})"

    def declare(self, kind: str) -> str:
        value = self.expression(kind)
        return f"let {self.new(kind)} = {value}"

    def assign(self) -> str:
        kind = self.random.choice(["number", "list", "object"])
        value, name = self.expression(kind), self.variable(kind)
        if name is None or self.chance(0.1):
            return f"shared = {value}"
        sign = self.random.choice(["=", "+=", "-="]) if kind == "number" else "="
        return f"{name} {sign} {value}"

    def change(self) -> str:
        """A statement that changes a place: a variable's list or object, or one of its members."""
        items, fields = self.variable("list"), self.variable("object")
        value = self.expression("number")
        choices = []
        if items:
            choices += [
                f"{items}.push({value})",
                f"{items}.pop()",
                f"{items}.reverse()",
                f"{items}.unshift({value})",
            ]
            choices += [
                f"if ({items}.length > 1) {{ {items}[1] += {value} }}",
                f"{items}.splice(1, 1, {value})",
            ]
        if fields and fields != "inputs":
            choices += [
                f"{fields}.a = {value}",
                f"{fields}.l?.push({value})",
                f"{fields}.{self.random.choice('abk')} = {value}",
            ]
            choices += [f"if ({fields}?.l?.length) {{ {fields}.l[0] = {value} }}", f"{fields}.a ??= {value}"]
        return self.random.choice(choices) if choices else "log('nothing to change')"

    def log(self) -> str:
        return f"log({self.expression(self.random.choice(['number', 'text', 'list']))})"

    def throw(self) -> str:
        thrown = self.random.choice(
            [self.expression("number"), "{code: 'THROWN_ON_PURPOSE'}", "null.x", "missing"]
        )
        return f"if {self.in_parentheses('truth')} {{ throw {thrown} }}"

    def block(self) -> str:
        with self.nested():
            return self.body()

    def branch(self) -> str:
        test = self.in_parentheses("truth")
        with self.nested():
            then = self.body()
        with self.nested():
            return f"if {test} {then} else {self.body()}"

    def each(self) -> str:
        subject = self.expression("list")
        with self.nested(loop=True):
            name = self.new("number")
            return f"for (let {name} of {subject}.slice(0, 3)) {self.body()}"

    def count(self) -> str:
        with self.nested(loop=True):
            # Bodies may change every variable they see, so the counter is one they do not see.
            self.names += 1
            name = f"i{self.names}"
            step = f"let {self.new('number')} = {name}"
            return f"for (let {name} = 0; {name} < {self.random.randint(1, 3)}; {name}++) {{ {step}; {self.body()} }}"

    def repeat(self) -> str:
        self.names += 1
        name = f"w{self.names}"
        test = self.expression("truth")
        with self.nested(loop=True):
            return f"let {name} = 0; while ({name} < 3 && {test}) {{ {name}++; {self.body()} }}"

    def attempt(self) -> str:
        with self.nested():
            body = self.body(1, 4)
        handler = cleanup = ""
        if self.chance(0.8):
            with self.nested():
                self.names += 1
                handler = f" catch (e{self.names}) {self.body()}"
        if not handler or self.chance(0.5):
            with self.nested():
                cleanup = f" finally {self.body()}"
        return f"try {body}{handler}{cleanup}"

    def functions(self) -> str:
        """A function in a variable, or several closures over one variable of a loop."""
        if self.chance(0.6):
            value = self.function()
            return f"let {self.new('function')} = {value}"
        self.names += 1
        functions, turn = f"fs{self.names}", f"t{self.names}"
        value = f"{functions}.map(f => f()).reduce((a, b) => a * 3 + b, 0)"
        made = f"{functions}.push(() => {{ {turn} += 1; return {turn} }})"
        loop = f"for (let {turn} = 0; {turn} < 3; {turn}++) {{ {made} }}"
        return f"let {functions} = []; {loop}; {functions}[0](); let {self.new('number')} = {value}"
