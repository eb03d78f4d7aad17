"""One hostile caller: picks an attack, makes its request, and keeps what the server must never answer.

Usage: ``python -m bench.hostile.attacks PORT SECONDS SEED CALLERS LISTENER``, the key on stdin. Prints one
JSON object at the end: requests by kind and status, the slowest kinds, and every wrong answer with its seed.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any
from urllib.parse import quote

from bench.hostile.grammar import Grammar
from bench.hostile.wire import Reply, Request, Wire
from dalsegno.job_process import go_last

NAMES = tuple(f"hostile-{number}" for number in range(5))
KEPT = 20
"""Wrong answers kept with their text."""
STEERING = ("cancel", "pause", "resume", "retry", "rerun", "signals", "trigger")


@dataclass(slots=True)
class Findings:
    answers: Counter[str] = field(default_factory=Counter)
    slowest: dict[str, float] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    wrong_count: int = 0

    def note(self, kind: str, reply: Reply, seconds: float, seed: str) -> None:
        self.answers[f"{kind} {reply.status}"] += 1
        self.slowest[kind] = max(self.slowest.get(kind, 0.0), seconds)
        if reply.status >= 500 and not (reply.status == 503 and "retry-after" in reply.headers):
            self.wrong_count += 1
            if len(self.wrong) < KEPT:
                self.wrong.append(f"{kind} (seed {seed}): {reply.status} {reply.body[:300]!r}")


class Attacker:
    def __init__(self, wire: Wire, random: Random, listener: int) -> None:
        self.wire = wire
        self.random = random
        self.grammar = Grammar(random)
        self.listener = listener
        self.executions: list[str] = []
        self.kinds: tuple[tuple[str, int, Callable[[], Request]], ...] = (
            ("inline-graph", 20, self.inline_graph),
            ("inline-script", 20, self.inline_script),
            ("deploy-graph", 10, self.deploy_graph),
            ("deploy-script", 10, self.deploy_script),
            ("schema-start", 15, self.schema_start),
            ("start", 10, self.start),
            ("validate", 8, self.validate),
            ("vast", 2, self.vast),
            ("headers", 12, self.headers),
            ("bodies", 15, self.bodies),
            ("queries", 8, self.queries),
            ("steering", 15, self.steering),
            ("looking", 15, self.looking),
            ("streams", 4, self.streams),
            ("public", 6, self.public),
            ("schedules", 2, self.schedules),
        )

    def next(self) -> tuple[str, Request]:
        kind, _, made = self.random.choices(self.kinds, [weight for _, weight, _ in self.kinds])[0]
        request = made()
        if self.random.random() < 0.05:  # a caller that hangs up
            request = Request(
                request.method, request.path, request.body, request.headers, request.media, 0.05
            )
        return kind, request

    def name(self) -> str:
        return str(self.random.choice(NAMES))

    def post(self, path: str, value: Any, media: str = "application/json") -> Request:
        body = (
            value.encode("utf-8", "surrogatepass") if isinstance(value, str) else json.dumps(value).encode()
        )
        return Request("POST", path, body, media=media, pieces=self.random.choice((1, 1, 1, 7)))

    # -- definitions and starts -------------------------------------------------------------------------------

    def inline_graph(self) -> Request:
        return self.post(
            "/v1/executions", {"definition": self.grammar.graph(self.name()), "input": self.grammar.payload()}
        )

    def inline_script(self) -> Request:
        front = f"```\nname: {self.name()}\n```\n"
        return self.post(
            "/v1/executions", {"definition": front + self.grammar.script(), "input": self.grammar.payload()}
        )

    def deploy_graph(self) -> Request:
        graph = self.grammar.graph(self.name())
        if self.random.random() < 0.5:
            graph["input_schema"] = self.grammar.schema(self.listener)
        return self.post("/v1/definitions", graph)

    def deploy_script(self) -> Request:
        return self.post(f"/v1/definitions?name={self.name()}", self.grammar.script(), "text/x-flow")

    def schema_start(self) -> Request:
        graph = (
            self.grammar.keyed() if self.random.random() < 0.2 else {"nodes": [{"id": "n", "type": "input"}]}
        )
        graph |= {"name": self.name(), "input_schema": self.grammar.schema(self.listener)}
        return self.post("/v1/executions", {"definition": graph, "input": self.grammar.payload()})

    def start(self) -> Request:
        body = {
            "workflow": self.name(),
            "input": self.grammar.payload(),
            "priority": self.random.choice((0, 0, 999_999, -1)),
        }
        return self.post("/v1/executions", body)

    def validate(self) -> Request:
        size = self.random.choice((1, 20, 400))
        text = "\n".join(self.grammar.script().replace("v", f"w{number}_") for number in range(size))
        return self.post("/v1/definitions/validate", text[:600_000], "text/x-flow")

    def vast(self) -> Request:
        name = self.name()
        if self.random.random() < 0.6:
            return Request(
                "GET",
                f"/v1/definitions/{name}",
                headers=(("Accept", self.random.choice(("application/yaml", "application/json"))),),
            )
        return self.post(
            "/v1/definitions", self.grammar.vast_graph(name, self.random.choice((500, 5_000, 20_000)))
        )

    def schedules(self) -> Request:
        cron = self.random.choice(("* * * * *", "*/1 * * * * *", "0 0 31 2 *", "x", "* " * 500))
        return self.post(
            "/v1/schedules",
            {"name": f"{self.name()}-{self.random.randint(0, 3)}", "workflow": self.name(), "cron": cron},
        )

    # -- what surrounds them ----------------------------------------------------------------------------------

    def headers(self) -> Request:
        size = self.random.choice((10, 1_000, 30_000, 60_000, 200_000))
        found = self.random.choice(
            (
                (("Cookie", 'dalsegno_session="' + "\\" * size + '"'),),
                (("Cookie", "a=b; " * (size // 5)),),
                tuple((f"X-{number}", "v" * 20) for number in range(min(size, 3_000))),
                (("Accept", "text/html," * (size // 10)),),
                (("Origin", "http://" + "a" * size),),
                (("Content-Encoding", "gzip"),),
                (("Idempotency-Key", "\xff" * min(size, 5_000)),),
                (("Last-Event-ID", "9" * size),),
                (("traceparent", "0" * size),),
                (("Content-Length", "5"),),
                (("Transfer-Encoding", "chunked"),),
                (("X-Forwarded-For", "1.2.3.4," * (size // 8)),),
                (("Expect", "100-continue"),),
            )
        )
        path = self.random.choice(
            ("/v1/executions", "/v1/health", "/v1/session", "/v1/definitions", "/v1/stream")
        )
        method = self.random.choice(("GET", "POST", "HEAD", "OPTIONS", "PATCH", "TRACE"))
        return Request(method, path, b"{}" if method == "POST" else b"", found, patience=2)

    def bodies(self) -> Request:
        size = self.random.choice((10, 1_000, 100_000, 3_000_000))
        body = self.random.choice(
            (
                b"[" * size,
                b'{"a":' * min(size, 5_000) + b"1" + b"}" * min(size, 5_000),
                b'{"input": ' + b"9" * size + b"}",
                b'{"workflow": "\\ud800", "input": "\\u0000"}',
                b"\xff\xfe" * size,
                b'{"workflow": "hostile-0", "input": NaN}',
                b'{"a": 1, ' * min(size, 1_000),
                json.dumps({"workflow": "hostile-0", "input": ["x" * 1000] * (size // 1000 + 1)}).encode(),
                json.dumps({f"k{number}": number for number in range(min(size, 20_000))}).encode(),
                json.dumps(
                    {"workflow": "hostile-0", "tags": {f"t{n}": "v" for n in range(min(size, 5_000))}}
                ).encode(),
                b"a: &a [x, x]\n"
                + b"".join(b"b%d: &b%d [*a, *a]\n" % (n, n) for n in range(min(size, 3_000))),
                self.random.randbytes(min(size, 100_000)),
            )
        )
        path = self.random.choice(
            (
                "/v1/executions",
                "/v1/definitions",
                "/v1/definitions/validate",
                "/v1/executions/bulk",
                "/v1/session",
                "/v1/schedules",
            )
        )
        media = self.random.choice(
            ("application/json", "application/json", "application/yaml", "text/x-flow", "text/plain")
        )
        return Request("POST", path, body, media=media, pieces=self.random.choice((1, 1, 20)))

    def queries(self) -> Request:
        count = self.random.choice((1, 100, 2_000))
        query = "&".join(
            f"{self.random.choice(('x', 'tag', 'limit', 'cursor', 'state'))}{n if n % 2 else ''}={quote('é%' * 3)}"
            for n in range(count)
        )
        path = self.random.choice(
            (
                "/v1/errors",
                "/v1/executions",
                "/v1/definitions",
                "/v1/health",
                f"/v1/definitions/{quote('a/b%2F' * 50)}",
            )
        )
        return Request("GET", f"{path}?{query}"[:60_000])

    def public(self) -> Request:
        return self.random.choice(
            (
                self.post("/v1/session", {}),
                self.post("/v1/session", {"key": "ds_x_" + "y" * 2_000}),
                Request("GET", "/v1/approvals/links/" + "a" * self.random.choice((10, 5_000, 50_000))),
                Request("POST", "/v1/hooks/nothing", b"x" * 100_000),
                Request("GET", "/v1/openapi.json"),
                Request("GET", "/v1/errors?" + "&".join(f"n{number}" for number in range(5_000))),
            )
        )

    # -- on what runs -----------------------------------------------------------------------------------------

    def execution(self) -> str:
        return self.random.choice(self.executions[-200:]) if self.executions else "0" * 32

    def steering(self) -> Request:
        verb = self.random.choice(STEERING)
        body: Any = {"name": "never", "payload": self.grammar.payload()} if verb == "signals" else {}
        if verb == "rerun":
            body = {"node": "n0", "context": self.grammar.payload()}
        return self.post(f"/v1/executions/{self.execution()}/{verb}", body)

    def looking(self) -> Request:
        which = self.random.choice(
            (
                "",
                "/nodes",
                "/results",
                "/events",
                "/why",
                "/picture",
                "/inspection",
                "/approvals",
                "/wait?seconds=1",
            )
        )
        path = f"/v1/executions/{self.execution()}{which}"
        others = (
            "/v1/executions?limit=1000",
            f"/v1/definitions/{self.name()}/versions",
            f"/v1/definitions/{self.name()}/diff",
            "/v1/queues",
            "/v1/dead",
            "/metrics",
            "/v1/workers",
        )
        return Request("GET", path if self.random.random() < 0.7 else self.random.choice(others))

    def streams(self) -> Request:
        path = self.random.choice((f"/v1/executions/{self.execution()}/stream", "/v1/stream"))
        return Request("GET", path, patience=self.random.choice((0.1, 2.0)))

    def learn(self, reply: Reply) -> None:
        if reply.status in (200, 201, 202) and b'"id"' in reply.body[:200_000]:
            try:
                found = reply.json()
            except ValueError:
                return
            if isinstance(found, dict) and isinstance(found.get("id"), str):
                self.executions.append(found["id"])


async def attack(wire: Wire, seconds: float, seed: int, callers: int, listener: int) -> Findings:
    findings = Findings()
    ends = time.monotonic() + seconds

    async def caller(number: int) -> None:
        turn = 0
        attacker = Attacker(wire, Random(), listener)
        while time.monotonic() < ends:
            turn += 1
            named = f"{seed}.{number}.{turn}"
            attacker.random.seed(named)
            kind, request = attacker.next()
            began = time.monotonic()
            reply = await wire.send(request)
            findings.note(kind, reply, time.monotonic() - began, named)
            attacker.learn(reply)
            await asyncio.sleep(0.05 if reply.status in (0, 429, 503) else 0)

    await asyncio.gather(*(caller(number) for number in range(callers)))
    return findings


def main() -> None:
    go_last(19)  # a caller has a machine of its own
    port, seconds, seed, callers, listener = (int(each) for each in sys.argv[1:6])
    wire = Wire(port, sys.stdin.readline().strip())
    found = asyncio.run(attack(wire, seconds, seed, callers, listener))
    slowest = dict(sorted(found.slowest.items(), key=lambda each: -each[1]))
    print(
        json.dumps(
            {
                "answers": dict(sorted(found.answers.items())),
                "slowest_s": slowest,
                "wrong": found.wrong,
                "wrong_count": found.wrong_count,
            }
        )
    )


if __name__ == "__main__":
    main()
