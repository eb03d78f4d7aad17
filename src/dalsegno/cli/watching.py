"""Following an execution without running it."""

from __future__ import annotations

from dalsegno.app import App
from dalsegno.cli.following import following
from dalsegno.cli.opening import find_execution, opened
from dalsegno.cli.output import stderr
from dalsegno.cli.result import Command, print_result, read_result
from dalsegno.cli.screen import choose_screen, log_to
from dalsegno.cli.session import TIMED_OUT, follow, stop_signals
from dalsegno.model.execution import ENDED


async def watch_execution(
    app: App, named: str, command: Command, seconds: float | None, *, quiet: bool, as_json: bool
) -> int:
    screen = choose_screen(quiet=quiet, as_json=as_json)
    log_to(screen)
    async with opened(app) as client:
        execution = await find_execution(client, named)
        view = await client.status(execution)
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
