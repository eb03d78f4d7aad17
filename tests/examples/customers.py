"""Students of the course platform: what they ask for, and what they were promised.

They know nothing of kills: who gets no answer asks again, as people do.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.examples.back_office import Office
from tests.waiting import come_about

ASK_AGAIN = 0.2
IN_TIME = 5.0
"""Seconds: well before the office gives up."""
GOOD, DECLINED, UNPAID = "4242 4242", "4000 0002", "5000 0005"


@dataclass
class Promises:
    """Ids of enrolments by what became of them as far as the students can tell."""

    asked: set[str] = field(default_factory=set)
    must_enrol: set[str] = field(default_factory=set)
    must_refuse: set[str] = field(default_factory=set)
    withdrawn: set[str] = field(default_factory=set)
    graduates: set[str] = field(default_factory=set)
    reminded: set[str] = field(default_factory=set)
    invited: set[str] = field(default_factory=set)
    organisers: dict[str, int] = field(default_factory=dict)


class Customers:
    def __init__(self, office: Office, http: httpx.AsyncClient, chance: random.Random) -> None:
        self._office = office
        self._http = http
        self._chance = chance
        self.promises = Promises()

    async def ask(self, method: str, url: str, body: Any = None) -> httpx.Response:
        """Until there is an answer that is one."""
        while True:
            try:
                reply = await self._http.request(method, url, json=body)
                if reply.status_code < 500:
                    return reply
            except httpx.HTTPError:
                pass  # it was killed, and comes back
            await asyncio.sleep(ASK_AGAIN)

    async def enrol(self, id: str, course: str, card: str = GOOD) -> str:
        """The execution that takes care of it."""
        body = {"course": course, "student": f"{id}@example.com", "card": card}
        reply = await self.ask("PUT", f"{self._office.api.url}/enrolments/{id}", body)
        assert reply.status_code == 202, reply.text
        self.promises.asked.add(id)
        return str(reply.json()["execution"])

    # -- one student each ---------------------------------------------------------------------------------------

    async def pays(self, id: str) -> None:
        await self.enrol(id, "pottery")
        self.promises.must_enrol.add(id)

    async def is_declined(self, id: str) -> None:
        await self.enrol(id, "pottery", DECLINED)
        self.promises.must_refuse.add(id)

    async def is_not_paid(self, id: str) -> None:
        """The bank says so after the charge."""
        await self.enrol(id, "pottery", UNPAID)
        self.promises.must_refuse.add(id)

    async def hopes_for_a_seat(self, id: str) -> None:
        await self.enrol(id, "chess")

    async def forgets_documents(self, id: str) -> None:
        await self.enrol(id, "diving")
        self.promises.must_refuse.add(id)
        self.promises.reminded.add(id)

    async def brings_documents(self, id: str) -> None:
        began = time.monotonic()
        await self.enrol(id, "diving")
        papers = {"passport": f"{id}.pdf"}
        await self.ask("POST", f"{self._office.api.url}/enrolments/{id}/documents", papers)
        if time.monotonic() - began < IN_TIME:
            self.promises.must_enrol.add(id)

    async def is_approved(self, id: str) -> None:
        began = time.monotonic()
        await self._decided(id, {"decision": "approved", "data": {"group": "evening"}, "by": "grace"})
        if time.monotonic() - began < IN_TIME:
            self.promises.must_enrol.add(id)

    async def is_rejected(self, id: str) -> None:
        await self._decided(id, {"decision": "rejected", "by": "grace"})
        self.promises.must_refuse.add(id)

    async def nobody_decides(self, id: str) -> None:
        await self.enrol(id, "aerobatics")
        self.promises.must_refuse.add(id)

    async def withdraws(self, id: str) -> None:
        """At once, or when the seat is reserved and the bank is asked."""
        await self.enrol(id, "pottery")
        if self._chance.random() < 0.7:
            await self._leaves(id, "asked")
        await self.ask("DELETE", f"{self._office.api.url}/enrolments/{id}")
        self.promises.withdrawn.add(id)

    async def _leaves(self, id: str, *states: str) -> None:
        async def has_left() -> bool:
            await asyncio.sleep(ASK_AGAIN / 4)
            row = await self.ask("GET", f"{self._office.api.url}/enrolments/{id}")
            return row.json()["state"] not in states

        await come_about(has_left, f"{id} is no longer {' or '.join(states)}")

    async def _decided(self, id: str, decision: dict[str, Any]) -> None:
        """As soon as the question is asked. A decision whose answer got lost has counted: the enrolment moves on."""
        execution = await self.enrol(id, "aerobatics")
        url = f"{self._office.server.url}/v1/executions/{execution}/approvals/approval"
        while (await self.ask("POST", url, decision)).status_code >= 300:
            row = (await self.ask("GET", f"{self._office.api.url}/enrolments/{id}")).json()
            if row["state"] != "asked":
                break
            await asyncio.sleep(ASK_AGAIN)

    # -- many at once -------------------------------------------------------------------------------------------

    async def book_group(self, id: str, size: int) -> None:
        ids = [f"{id}-{number}" for number in range(size)]
        organiser = f"{id}@example.com"
        body = {
            "organiser": organiser,
            "course": "pottery",
            "card": GOOD,
            "students": [f"{one}@example.com" for one in ids],
        }
        reply = await self.ask("PUT", f"{self._office.api.url}/groups/{id}", body)
        assert reply.status_code == 202, reply.text
        self.promises.asked.update(ids)
        self.promises.must_enrol.update(ids)
        self.promises.organisers[organiser] = size

    async def invite(self, size: int) -> None:
        students = [f"guest-{number}@example.com" for number in range(size)]
        await self.ask("PUT", f"{self._office.api.url}/courses/pottery/invitations/1", {"students": students})
        self.promises.invited.update(students)

    async def graduate(self, size: int) -> None:
        """Students of a course that ends today."""
        ids = [f"graduate-{number}" for number in range(size)]
        await asyncio.gather(*(self.enrol(each, "origami") for each in ids))
        for each in ids:
            await self._leaves(each, "asked", "reserved")
        self.promises.must_enrol.update(ids)
        self.promises.graduates.update(ids)
        await self.ask("PUT", f"{self._office.api.url}/courses/origami/graduation")

    async def come(self, each: int, seconds: float) -> None:
        """``each`` of every kind, in any order, over so many seconds; a group of six, and forty invitations."""
        kinds = (
            (self.pays, 3 * each), (self.is_declined, each), (self.is_not_paid, each),
            (self.hopes_for_a_seat, 3), (self.withdraws, 2 * each),
            (self.forgets_documents, each), (self.brings_documents, each),
            (self.is_approved, each), (self.is_rejected, each), (self.nobody_decides, each),
        )  # fmt: skip
        wishes = [kind(f"{kind.__name__}-{number}") for kind, count in kinds for number in range(count)]
        self._chance.shuffle(wishes)
        async with asyncio.TaskGroup() as group:
            group.create_task(self.book_group("company", 6))
            group.create_task(self.invite(40))
            for wish in wishes:
                group.create_task(wish)
                await asyncio.sleep(seconds / len(wishes))


@asynccontextmanager
async def customers(office: Office, seed: int) -> AsyncIterator[Customers]:
    async with httpx.AsyncClient(timeout=10) as http:
        yield Customers(office, http, random.Random(seed))


def emails(ids: Iterable[str]) -> set[str]:
    return {f"{each}@example.com" for each in ids}
