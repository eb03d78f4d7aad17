"""Random workflows: source text that uses every construct, always ends, and means something to CPython as well."""

from __future__ import annotations

import random

NUMBERS = ("a", "b", "c")
HEADER = """# ruff: noqa
import contextlib
from tests.python.tasks import double, echo, fail, calls

class Own(Exception):
    pass

"""


class ProgramWriter:
    """One function per call of `function`; the same seed writes the same text."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._lines: list[str] = []
        self._depth = 0
        self._left = 0
        self._loops = 0
        self._names = 0
        self._in_iterable = False
        """Where Python allows no assignment expression."""

    def function(self, name: str) -> str:
        self._lines = [f"async def {name}(x):"]
        self._depth, self._left, self._loops = 1, self._random.randint(6, 30), 0
        self._put("a, b, c, xs, d, trail = x, 2, 3, [1, 2, 3], {'k': 1, 'l': 2}, []")
        self._put("f = lambda n: n + a + c")
        self._put("async def g(n):")
        self._depth += 1
        self._put("nonlocal b")
        self._put("b += await echo(n)")
        self._put("trail.append(n)")
        self._put("return b + a")
        self._depth -= 1
        self._block()
        self._put("return [a, b, c, xs, d, trail]")
        return "\n".join(self._lines) + "\n"

    def _put(self, line: str) -> None:
        self._lines.append("    " * self._depth + line)

    def _pick(self, *choices: str) -> str:
        return self._random.choice(choices)

    def _block(self) -> None:
        for _ in range(self._random.randint(1, 4)):
            self._statement()

    def _indented(self) -> None:
        self._depth += 1
        if self._depth > 6:
            self._simple()
        else:
            self._block()
        self._depth -= 1

    # -- expressions ------------------------------------------------------------------------------------------

    def _number(self, depth: int = 0) -> str:  # noqa: C901, PLR0912 - a list of choices
        if depth > 3:
            return self._pick(*NUMBERS, "1", "2", "len(xs)")
        deeper = lambda: self._number(depth + 1)  # noqa: E731
        kind = self._random.randrange(17)
        match kind:
            case 0 | 1:
                return self._pick(*NUMBERS)
            case 2:
                return str(self._random.randint(-3, 9))
            case 3 | 4:
                return f"await {self._pick('double', 'echo')}({deeper()})"
            case 5:
                return f"({deeper()} {self._pick('+', '-', '*')} {deeper()})"
            case 6:
                return f"({deeper()} if {self._test(depth + 1)} else {deeper()})"
            case 7:
                return f"f({deeper()})"
            case 8:
                return f"await g({deeper()})"
            case 9:
                return f"sum([{self._number(depth + 2)} for i in xs if i {self._pick('<', '>')} {deeper()}])"
            case 10:
                return f"max({deeper()}, *[{deeper()}, {deeper()}])"
            case 11:
                return f"xs[{deeper()} % len(xs)]"
            case 12:
                return deeper() if self._in_iterable else f"({self._pick(*NUMBERS)} := {deeper()})"
            case 13:
                return f"d.get({self._text(depth + 1)}, {deeper()})"
            case 14:
                return f"len(f'{{{self._atom()}}}-{{{self._atom()}!r:>{{({self._atom()}) % 9}}}}')"
            case 15:
                return f"({deeper()} {self._pick('and', 'or')} {deeper()})"
            case _:
                return f"[{deeper()}, {deeper()}, {deeper()}][{self._random.randint(-3, 2)}]"

    def _atom(self) -> str:
        name = self._pick(*NUMBERS)
        return self._pick(name, f"await double({name})", f"f({name})")

    def _test(self, depth: int = 0) -> str:
        match self._random.randrange(6):
            case 0:
                return f"{self._number(depth + 1)} < {self._number(depth + 1)} <= {self._number(depth + 2)}"
            case 1:
                return f"not {self._number(depth + 1)} % 2"
            case 2:
                return f"({self._number(depth + 2)} > 0 and {self._number(depth + 2)} != 1)"
            case 3:
                return f"{self._number(depth + 1)} in xs"
            case 4:
                return f"await echo({self._number(depth + 2)} > 2)"
            case _:
                return f"{self._number(depth + 1)} == {self._number(depth + 1)}"

    def _text(self, depth: int = 0) -> str:
        return self._pick("'k'", "'l'", "'m'", "await echo('k')", f"str({self._pick(*NUMBERS)})")

    # -- statements -------------------------------------------------------------------------------------------

    def _statement(self) -> None:
        self._left -= 1
        if self._left < 0:
            self._simple()
            return
        choices = [
            self._simple,
            self._simple,
            self._if,
            self._for,
            self._while,
            self._try,
            self._with,
            self._match,
            self._function,
            self._jump,
        ]
        self._random.choice(choices)()

    def _simple(self) -> None:
        name, number = self._pick(*NUMBERS), self._number()
        match self._random.randrange(12):
            case 0 | 1:
                self._put(f"{name} = {number}")
            case 2:
                self._put(f"{name} {self._pick('+', '-')}= {number}")
            case 3:
                self._put(f"xs.append({number})")
            case 4:
                self._put(f"d[{self._text()}] = {number}")
            case 5:
                self._put(f"trail.append([{number}, {self._number()}])")
            case 6:
                self._put(f"a, *xs = [{number}, {self._number()}, {self._number()}]")
            case 7:
                self._put(f"xs[{self._number()} % 2] += {number}")
            case 8:
                self._in_iterable = True
                self._put(f"xs = [{self._number(2)} for i in range(3) for j in [{self._number(1)}]]")
                self._in_iterable = False
            case 9:
                self._put(f"d.pop({self._text()}, {number})")
            case 10:
                self._put(f"f = lambda n, m={number}: n * m + {name}")
            case _:
                self._put(f"assert {self._test()}, {number}")

    def _if(self) -> None:
        self._put(f"if {self._test()}:")
        self._indented()
        if self._random.random() < 0.4:
            self._put(f"elif {self._test()}:")
            self._indented()
        if self._random.random() < 0.5:
            self._put("else:")
            self._indented()

    def _for(self) -> None:
        variable = self._name()
        source = self._pick("range(3)", "list(xs)", "xs[:3]", "'ab'", "sorted(d)", "reversed(xs[:2])")
        head = f"for {variable} in {source}:"
        if self._random.random() < 0.4:
            head = self._pick(
                f"for {variable}, c in enumerate(xs[:2]):",
                f"for {variable}, (b, c) in zip('ab', [(1, 2), (await echo(3), 4)]):",
                f"for {variable}, c in d.items():",
                f"for {variable} in {{1, 2, await echo(3)}}:",
            )
        self._put(head)
        self._loop(f"trail.append({variable})")

    def _while(self) -> None:
        counter = self._name()
        self._put(f"{counter} = 0")
        self._put(f"while {counter} < {self._random.randint(1, 3)} and {self._test()}:")
        self._loop(f"{counter} += 1")

    def _loop(self, first: str) -> None:
        self._loops += 1
        self._depth += 1
        self._put(first)
        self._depth -= 1
        self._indented()
        self._loops -= 1
        if self._random.random() < 0.4:
            self._put("else:")
            self._indented()

    def _try(self) -> None:
        self._put("try:")
        self._indented()
        kind = self._random.randrange(4)
        if kind != 0:
            caught = self._pick("ValueError", "(KeyError, Own)", "Exception", "LookupError")
            self._put(f"except {caught} as error:")
            self._depth += 1
            self._put("trail.append(str(error))")
            self._depth -= 1
            self._indented()
            if self._random.random() < 0.3:
                self._put("else:")
                self._indented()
        if kind in (0, 1):
            self._put("finally:")
            self._indented()

    def _with(self) -> None:
        self._put(f"with contextlib.suppress({self._pick('ValueError', 'KeyError', 'Own')}):")
        self._indented()

    def _match(self) -> None:
        self._put(f"match {self._pick('xs', 'd', self._number())}:")
        self._depth += 1
        self._put(self._pick("case [b, *c] if b > 1:", "case {'k': b}:", "case int(b):", "case 1 | 2 | 3:"))
        self._indented()
        self._put(self._pick("case [b, *_]:", "case {'l': c}:", f"case b if {self._test()}:"))
        self._indented()
        if self._random.random() < 0.5:
            self._put("case _:")
            self._indented()
        self._depth -= 1

    def _function(self) -> None:
        if self._random.random() < 0.5:
            self._put(f"def f(n, m={self._number()}):")
            self._depth += 1
            self._put(f"return n + {self._pick(*NUMBERS)} * m")
            self._depth -= 1
            return
        self._put(f"async def g(n, *more, m={self._number()}):")
        self._depth += 1
        self._put("nonlocal c")
        loops, self._loops = self._loops, 0
        self._put(f"c += {self._pick('await echo(n)', 'n', 'await double(m)')}")
        self._indented_returning()
        self._loops = loops
        self._depth -= 1

    def _indented_returning(self) -> None:
        self._put(f"return {self._pick('n + m', 'await double(n)', 'c', 'a')}")

    def _jump(self) -> None:
        jumps = [
            f"raise {self._pick('ValueError', 'KeyError', 'Own')}({self._number()})",
            f"await fail(str({self._number()}))",
            f"return [{self._number()}, trail]",
        ]
        if self._loops:
            jumps += ["break", "continue"] * 2
        self._put(f"if {self._test()}:")
        self._depth += 1
        self._put(self._random.choice(jumps))
        self._depth -= 1

    def _name(self) -> str:
        self._names += 1
        return f"v{self._names}"


def module_text(seed: int, count: int) -> str:
    writer = ProgramWriter(seed)
    return HEADER + "\n\n".join(writer.function(f"flow_{number}") for number in range(count))
