"""What user code raises: nearly all of it is a failure of that code, and never of the worker that runs it. And where
it was raised: the traceback that is kept with the failure."""

from __future__ import annotations

import asyncio
import concurrent.futures
import linecache
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType, TracebackType

from dalsegno.errors import is_debugging
from dalsegno.lang.limits import Heavy

OUTER_FRAMES, INNER_FRAMES = 10, 20
"""Frames that are kept of a traceback, from its beginning and from where it was raised."""
LONGEST_LINE, LONGEST_MESSAGE = 200, 1_000
MOST_CAUSES, MOST_MEMBERS, DEEPEST_GROUP = 4, 5, 2
LARGEST_TRACEBACK = 8 * 1024
"""Characters in all; it is stored with the failure of the task or node, and with that of the execution."""

OURS = str(Path(__file__).parent.parent) + os.sep
MACHINERY = tuple(str(Path(file).parent) + os.sep for file in (asyncio.__file__, concurrent.futures.__file__))
"""Between our frames and the first one of user code."""
HEADER = "Traceback (most recent call last):"
CAUSE = "The above exception was the direct cause of the following exception:"
CONTEXT = "During handling of the above exception, another exception occurred:"

Redact = Callable[[str], str]


class PassesThrough(BaseException):
    """Base of what the engine itself raises through user code; it is nobody's failure."""


def is_failure(error: BaseException) -> bool:
    """Whether it fails the code that raised it. The rest is meant for whoever runs that code: a cancellation that was
    asked for, a coroutine that is thrown away, and Ctrl+C where Python raises it in the midst of things."""
    if isinstance(error, Exception):
        return True
    if isinstance(error, PassesThrough | Heavy):
        return False
    if isinstance(error, asyncio.CancelledError):
        run = _current_task()
        return run is None or not run.cancelling()
    if isinstance(error, GeneratorExit):
        return _current_task() is not None
    return not (isinstance(error, KeyboardInterrupt) and _may_be_ctrl_c())


def _may_be_ctrl_c() -> bool:
    """`asyncio.run` takes Ctrl+C for itself, and only the main thread is ever interrupted by it."""
    if threading.current_thread() is not threading.main_thread():
        return False
    return signal.getsignal(signal.SIGINT) is signal.default_int_handler


def _current_task() -> asyncio.Task[object] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # no event loop runs here
        return None


# -- where it was raised ----------------------------------------------------------------------------------------------


def traceback_of(error: BaseException, redact: Redact = str) -> str | None:
    """The traceback in the user's own files, with causes and members of groups, of a bounded length. None where no
    frame of user code is part of it: what a node of ours reports needs none. ``redact`` sees whole texts, before
    anything is cut."""
    if not any(_shown(each.__traceback__) for each in _related(error)):
        return None
    return bounded_traceback("\n".join(_chain(error, redact, 0)))


def bounded_traceback(text: str) -> str:
    """Its end says what was raised, and where; its beginning who called."""
    text = text if text.isascii() else text.encode(errors="replace").decode()
    if len(text) <= LARGEST_TRACEBACK:
        return text
    head, tail = LARGEST_TRACEBACK // 4, LARGEST_TRACEBACK * 3 // 4
    return f"{text[:head]}\n… {len(text) - head - tail:,} characters are left out …\n{text[-tail:]}"


def _related(error: BaseException) -> Iterator[BaseException]:
    """Itself, and those that are shown with it."""
    for each, _ in _causes(error):
        yield each
        if isinstance(each, BaseExceptionGroup):
            yield from each.exceptions[:MOST_MEMBERS]


def _causes(error: BaseException) -> list[tuple[BaseException, str]]:
    """Itself first; each with the words that join it to its own cause."""
    found: list[tuple[BaseException, str]] = []
    current: BaseException | None = error
    while current is not None and len(found) < MOST_CAUSES and all(current is not each for each, _ in found):
        cause, words = current.__cause__, CAUSE
        if cause is None and not current.__suppress_context__:
            cause, words = current.__context__, CONTEXT
        found.append((current, words))
        current = cause
    return found


def _chain(error: BaseException, redact: Redact, depth: int) -> list[str]:
    """As Python prints it, causes first."""
    links = _causes(error)
    lines: list[str] = []
    for number, (each, words) in reversed(list(enumerate(links))):
        if number < len(links) - 1:
            lines += ["", words, ""]
        lines += _single(each, redact, depth)
    return lines


def _single(error: BaseException, redact: Redact, depth: int) -> list[str]:
    frames = _shown(error.__traceback__)
    lines = [HEADER, *(redact(line) for line in frames)] if frames else []
    said = _cut(redact(said_by(error)), LONGEST_MESSAGE)
    name = _cut(redact(_name(type(error))), LONGEST_LINE)
    lines.append(f"{name}: {said}" if said else name)
    notes = getattr(error, "__notes__", None)
    if isinstance(notes, list):
        lines += [
            _cut(redact(note), LONGEST_MESSAGE) for note in notes[:MOST_MEMBERS] if isinstance(note, str)
        ]
    if isinstance(error, BaseExceptionGroup) and depth < DEEPEST_GROUP:
        lines += _members(error.exceptions, redact, depth)
    return lines


def _members(members: tuple[BaseException, ...], redact: Redact, depth: int) -> list[str]:
    lines: list[str] = []
    for number, each in enumerate(members[:MOST_MEMBERS], 1):
        lines.append(f"  +---------------- {number} of {len(members)} ----------------")
        lines += [f"  | {line}" for line in _chain(each, redact, depth + 1)]
    if len(members) > MOST_MEMBERS:
        lines.append(f"  | … and {len(members) - MOST_MEMBERS} more")
    return lines


def said_by(error: BaseException) -> str:
    """What an exception says; some cannot even say that."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - a user's own ``__str__`` may do anything
        return ""


def _name(kind: type) -> str:
    home = kind.__module__
    return kind.__qualname__ if home in ("builtins", "__main__") else f"{home}.{kind.__qualname__}"


def _shown(traceback: TracebackType | None) -> list[str]:
    """Lines of the frames of user code, outermost first; of a deep recursion both ends."""
    outer: list[str] = []
    inner: deque[tuple[FrameType, int]] = deque(maxlen=INNER_FRAMES)
    left_out = 0
    for frame, line in _frames(traceback):
        if len(outer) < 2 * OUTER_FRAMES:
            outer += _lines(frame, line)
            continue
        left_out += len(inner) == INNER_FRAMES
        inner.append((frame, line))
    skipped = [f"  … {left_out:,} frames are left out …"] if left_out else []
    return [*outer, *skipped, *(text for frame, line in inner for text in _lines(frame, line))]


def _frames(traceback: TracebackType | None) -> Iterator[tuple[FrameType, int]]:
    everything, is_inside = is_debugging(), False
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        is_ours = file.startswith(OURS)
        is_inside = is_inside or not (is_ours or file.startswith(MACHINERY))
        if everything or (is_inside and not is_ours):
            yield traceback.tb_frame, traceback.tb_lineno or 0
        traceback = traceback.tb_next


def _lines(frame: FrameType, number: int) -> list[str]:
    """Always two, so that they can be counted."""
    code = frame.f_code
    linecache.checkcache(code.co_filename)
    text = linecache.getline(code.co_filename, number, frame.f_globals).strip()
    place = f'  File "{code.co_filename}", line {number}, in {code.co_name}'
    return [_cut(place, 2 * LONGEST_LINE), _cut(f"    {text}" if text else "    …", LONGEST_LINE)]


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest]}… ({len(text):,} characters)"
