r"""A nightly report: asks every shop for its sales, all at once, adds them up and writes the report; on a schedule.

    dalsegno run examples/report/report.py:sales_report --input '["Bern", "Oslo", "Rome"]'

Every night at two, Berlin time, wherever `dalsegno worker` runs:

    dalsegno schedule add nightly --app examples/report/report.py --workflow sales_report \
        --cron '0 2 * * *' --timezone Europe/Berlin --input '["Bern", "Oslo", "Rome"]'
    dalsegno worker --app examples/report/report.py

The same report as a script is report.flow, as a graph report.yaml; both use the tasks of this file.
"""

from __future__ import annotations

from typing import TypedDict

from dalsegno import App, NodeContext, gather

app = App()


class Sales(TypedDict):
    shop: str
    cents: int


@app.task(retries=5, timeout="30s")
async def sales(ctx: NodeContext, shop: str) -> Sales:
    """Asks a shop, which is down at first every now and then."""
    if shop == "Oslo" and ctx.attempt == 1:
        raise ConnectionError(f"{shop} does not answer")
    return {"shop": shop, "cents": sum(shop.encode()) * 100}


@app.task(retries=5)
async def publish(ctx: NodeContext, title: str, lines: list[str]) -> str:
    for line in lines:
        ctx.log(line)
    return f"{title}, {len(lines)} lines"


@app.workflow
async def sales_report(shops: list[str]) -> dict[str, object]:
    figures = await gather(*[sales(shop) for shop in shops])
    total = sum(figure["cents"] for figure in figures)
    best = max(figures, key=lambda figure: figure["cents"])
    lines = [f"{figure['shop']}: {figure['cents'] / 100:.2f} EUR" for figure in figures]
    published = await publish("Sales", lines)
    return {"published": published, "total": total, "best": best["shop"]}
