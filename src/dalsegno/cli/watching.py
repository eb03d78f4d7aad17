"""Following an execution without running it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from dalsegno.cli.desk import Desk
from dalsegno.cli.following import following
from dalsegno.cli.output import stderr
from dalsegno.cli.places import Where, reached
from dalsegno.cli.result import print_result, read_result
from dalsegno.cli.screen import choose_screen, log_to
from dalsegno.cli.session import TIMED_OUT, follow, stop_signals
from dalsegno.model.execution import ENDED

Find = Callable[[Desk], Awaitable[str]]
"""Finds or creates the execution; returns its id."""


async def watch_execution(
    where: Where,
    find: Find,
    seconds: float | None,
    *,
    quiet: bool,
    as_json: bool,
    fresh: bool = False,
) -> int:
    """``fresh``: it was started for this, so that its whole history is news."""
    screen = choose_screen(quiet=quiet, as_json=as_json, verb=None if fresh else "watching")
    log_to(screen)
    command = where.command
    async with reached(where) as client:
        execution = await find(client)
        view = await client.status(execution)
        view = msgspec.structs.replace(view, seq=0, state="RUNNING") if fresh else view
        followed = await following(client, view, command)
        with stop_signals() as stopping:
            screen.begin(view, followed)
            try:
                await follow(followed, screen, stopping, seconds)
            finally:
                screen.end(await client.status(execution))
        result = await read_result(client, execution)
    ended = result.view.state in ENDED
    if ended or as_json:
        print_result(result, command, as_json=as_json)
    else:
        stderr().print(f"no longer watching; execution {execution} is {result.view.state}", soft_wrap=True)
    if ended:
        return result.exit_code
    return 128 + stopping.signal if stopping.signal is not None else TIMED_OUT
