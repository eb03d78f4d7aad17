"""The words of scripts: keywords, contextual keywords, and words of other languages.

The editor grammar lists the same keywords; a test compares them.
"""

from __future__ import annotations

STATEMENT_WORDS = frozenset(
    {
        "let", "const", "if", "else", "while", "for", "break", "continue", "return", "throw", "try", "catch",
        "finally", "function",
    }
)  # fmt: skip
OPERATOR_WORDS = frozenset({"await", "typeof", "in"})
LITERAL_WORDS = frozenset({"true", "false", "null", "undefined"})
KEYWORDS = STATEMENT_WORDS | OPERATOR_WORDS | LITERAL_WORDS
"""Not allowed as variable names; plain names after a dot and as keys of objects."""

CONTEXTUAL_WORDS = frozenset({"async", "of", "workflow"})
"""Allowed as variable names except in ``async function``, ``for (… of …)`` and ``workflow name(…) {``."""

FOREIGN_WORDS: dict[str, str] = {
    "var": "write 'let' instead of 'var'",
    "switch": "there is no 'switch': write if (…) { … } else if (…) { … } else { … }",
    "case": "there is no 'switch' and no 'case': write if (…) { … } else if (…) { … }",
    "do": "there is no 'do': write while (true) { … if (…) { break } }",
    "class": "there are no classes: write functions and objects such as {name: 1}",
    "new": 'there is no \'new\': write values directly, as in throw {code: "E", message: "what went wrong"}',
    "this": "there is no 'this': pass values as parameters",
    "super": "there are no classes, so there is no 'super'",
    "delete": "there is no 'delete': build an object without the key",
    "yield": "there are no generators: build a list, or await",
    "import": "a script cannot import: its library is built in, and tasks do the rest",
    "export": "nothing is exported: a script's main function needs no 'export'",
    "void": "there is no 'void': write null",
    "with": "there is no 'with' statement",
}
"""Advice for a word of another language, where a value or a statement could begin."""

FOREIGN_OPERATORS: dict[str, str] = {
    "and": "write && instead of 'and'",
    "or": "write || instead of 'or'",
    "not": "write ! before a value instead of 'not'",
    "is": "write == instead of 'is'",
    "contains": "write value.includes(part) instead of 'contains'",
    "matches": "write value.matches(pattern) instead of 'matches'",
    "instanceof": "there is no 'instanceof': compare typeof value, or an error's code",
}
"""Advice for a word between two values on one line."""

FOREIGN_CLASSES: dict[str, str] = {
    "Date": "there is no 'new': Date.now() is the present time in milliseconds, Date.format(…) writes one as text",
    "Promise": "there is no 'new Promise': Task.run, Workflow.run, Timer.delay and Signal.next make promises",
    "Map": "there is no 'new Map': write an object such as {key: 1}",
    "Set": "there is no 'new Set': write a list, and list.unique()",
    "Array": "there is no 'new Array': write a list such as [1, 2]",
    "Object": "there is no 'new Object': write {}",
    "RegExp": "there is no 'new RegExp': a pattern is written as a string: value.matches(\"^a+$\")",
}
"""Advice for ``new`` with one of these."""

FOREIGN_CHARACTERS: dict[str, str] = {
    "&": "there is no operator '&': write && for 'and'; numbers have no operators on bits",
    "|": "there is no operator '|': write || for 'or'; numbers have no operators on bits",
    "^": "there is no operator '^': a power is written a ** b; numbers have no operators on bits",
    "~": "there is no operator '~': write ! for 'not'; numbers have no operators on bits",
    "#": "unexpected character '#': a comment begins with //",
    "@": "unexpected character '@': there are no decorators; as text it needs quotes",
}
"""Advice for a character that cannot begin a token."""

NO_SHIFTS: dict[str, str] = {
    "<": "there is no operator '<<': write a * 2 ** n",
    ">": "there is no operator '>>': write Math.floor(a / 2 ** n)",
}
