"""What user code raises: nearly all of it is a failure of that code, and never of the worker that runs it."""

from __future__ import annotations

import asyncio
import signal
import threading

from dalsegno.lang.limits import Heavy


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
