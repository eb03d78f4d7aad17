"""Signals, and other arrivals that a parked token may wait for."""

from __future__ import annotations

from dalsegno.core.settlement.application import Application
from dalsegno.core.settlement.rows import SignalRow, TokenRow
from dalsegno.core.settlement.workspace import Workspace, is_closed
from dalsegno.model.effect import AnswerRequest, DeliverToToken, HurryToken, PostSignal, TakeMessage
from dalsegno.model.execution import SCRIPTED
from dalsegno.model.ids import arrival_id

SIGNAL = "signal:"
"""Prefix of ``awaits`` for a signal; its name follows."""


def post_signal(work: Application, effect: PostSignal) -> None:
    rows, execution = work.rows, work.execution
    if rows.signal(execution.id, effect.id) is not None:
        return
    work.record(effect.event)
    machine = work.machine_row() if execution.kind in SCRIPTED else None
    place = 0
    if machine is not None:
        place = machine.inbox = machine.inbox + 1
    signal = SignalRow(execution.id, effect.id, effect.name, effect.data, execution.seq, place)
    waiting = _first_waiting(rows, execution.id, SIGNAL + effect.name)
    if waiting is not None:
        _take(work, signal, waiting)
        return
    rows.save_signal(signal)
    if machine is not None and effect.name in machine.wake.signals:
        work.wake = True


def answer_request(work: Application, effect: AnswerRequest) -> None:
    """Keep the answer in place of the request's data, unless there is one."""
    posted = work.rows.signal(work.execution.id, effect.id)
    if posted is None or (posted.taken and posted.data):
        return
    posted.taken, posted.data = True, effect.data
    work.rows.save_signal(posted)
    work.record(effect.event)


def _first_waiting(rows: Workspace, execution: str, awaits: str) -> TokenRow | None:
    """Return the first waiting token. Tokens of closed scopes do not wait."""
    for token in rows.waiting_tokens(execution, awaits):
        if not token.scope or not is_closed(rows, execution, token.scope):
            return token
    return None


def _take(work: Application, signal: SignalRow, token: TokenRow) -> None:
    arrive_at_token(work, token, signal.data)
    signal.taken, signal.data = True, b""
    work.rows.save_signal(signal)


def find_in_mailbox(work: Application, token: TokenRow) -> bool:
    """Give a token about to be parked the signal that is in the mailbox already."""
    if token.awaits is None or not token.awaits.startswith(SIGNAL):
        return False
    signal = work.rows.next_signal(work.execution.id, (token.awaits.removeprefix(SIGNAL),))
    if signal is None:
        return False
    _take(work, signal, token)
    return True


def arrive_at_token(work: Application, token: TokenRow, data: bytes) -> None:
    token.awaits = None
    token.due = None
    token.reason = "arrival"
    work.make_ready(token)
    work.rows.add_output(work.execution.id, arrival_id(token.id), data)
    work.rows.save_token(token)


def is_awaited(rows: Workspace, execution: str, effect: DeliverToToken) -> bool:
    token = rows.token(execution, effect.token)
    if token is None or token.state != "parked" or token.awaits != effect.awaits:
        return False
    return not token.scope or not is_closed(rows, execution, token.scope)


def deliver_to_token(work: Application, effect: DeliverToToken) -> None:
    token = work.rows.token(work.execution.id, effect.token)
    if token is not None and is_awaited(work.rows, work.execution.id, effect):
        arrive_at_token(work, token, effect.data)


def take_message(work: Application, effect: TakeMessage) -> None:
    """Note the message under its id: a tombstone, as a signal leaves when it is taken."""
    work.rows.save_signal(SignalRow(work.execution.id, effect.id, "", b"", work.execution.seq, taken=True))


def is_asleep(rows: Workspace, execution: str, effect: HurryToken) -> bool:
    token = rows.token(execution, effect.token)
    if token is None or token.state != "parked" or token.attempt != effect.attempt:
        return False
    if token.due is None or token.awaits is not None or token.barrier is not None:
        return False
    return not token.scope or not is_closed(rows, execution, token.scope)


def hurry_token(work: Application, effect: HurryToken) -> None:
    token = work.rows.token(work.execution.id, effect.token)
    if token is not None and is_asleep(work.rows, work.execution.id, effect):
        token.reason = "timer"
        token.due = None
        work.make_ready(token)
        work.rows.save_token(token)
