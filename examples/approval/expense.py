r"""An expense that needs an approval: with reminders until it is decided, and a deadline.

    dalsegno run examples/approval/expense.py:expense \
        --input '{"who": "Ada", "cents": 4200, "remind_every": 1, "deadline": 3}'

It is not decided within three seconds, so it expires. Give it more time, and decide from another terminal while it
waits (it costs nothing to wait for weeks):

    dalsegno run examples/approval/expense.py:expense --input '{"who": "Ada", "cents": 4200}'
    dalsegno signal last decision --payload '{"approved": true, "by": "Grace"}'

The same as a script is expense.flow; expense.yaml does it with the `approval` node of graphs.
"""

from __future__ import annotations

from typing import TypedDict

from dalsegno import App, NodeContext, race, signal, sleep, timeout

app = App()


class Decision(TypedDict):
    approved: bool
    by: str


@app.task(retries=5)
async def mail(ctx: NodeContext, to: str, text: str) -> None:
    ctx.log(f"to {to}: {text}")


@app.workflow
async def expense(
    who: str, cents: int, remind_every: float = 24 * 3600, deadline: float = 3 * 24 * 3600
) -> dict[str, str]:
    amount = f"{cents / 100:.2f} EUR"
    decision = signal("decision")
    try:
        with timeout(deadline):
            await mail("boss@example.com", f"{who} asks for {amount}")
            while True:
                came, value = await race(decision=decision, reminder=sleep(remind_every))
                if came == "decision":
                    break
                await mail("boss@example.com", f"reminder: {who} waits for {amount}")
    except TimeoutError:
        return {"status": "expired"}

    answer: Decision = value
    verdict = "approved" if answer["approved"] else "rejected"
    await mail(f"{who.lower()}@example.com", f"{amount} {verdict} by {answer['by']}")
    return {"status": verdict, "by": answer["by"]}
