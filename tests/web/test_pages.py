"""What people do with the web UI, from the first click to the effect in the store."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.cli.programs import PATIENCE
from tests.web.conftest import Site

AXE = Path(__file__).parents[2] / "web" / "node_modules" / "axe-core" / "axe.min.js"
PAGES = (
    "/",
    "/executions",
    "/workflows",
    "/workflows/parcels",
    "/approvals",
    "/schedules",
    "/workers",
    "/dead",
    "/workflows/nowhere",
)

expect.set_options(timeout=PATIENCE * 1000)


def shows_state(page: Page, state: str) -> None:
    expect(page.locator(".execution-head .state")).to_have_text(state)


@pytest.mark.parametrize("store", ["sqlite", "postgres"], indirect=True)
def test_a_workflow_is_started_from_its_form_and_watched_to_its_end(site: Site, page: Page) -> None:
    page.goto(f"{site.url}/workflows")
    page.get_by_role("link", name="parcels").click()
    page.get_by_role("button", name="Start…").click()
    page.get_by_label("weight").fill("4")
    page.get_by_role("button", name="Start", exact=True).click()
    expect(page.get_by_label("pack, task, running")).to_be_visible()
    expect(page.get_by_label("label, log, pending")).to_be_visible()
    site.let_go("packed")
    expect(page.get_by_label("label, log, completed")).to_be_visible()
    shows_state(page, "Completed")
    expect(page.get_by_label("Execution", exact=True).locator(".json").last).to_have_text("8")
    page.get_by_role("tab", name="Timeline").click()
    expect(page.get_by_role("img", name="Timeline of 2 lanes")).to_be_visible()


def test_an_approval_is_decided_with_the_form_of_its_schema(site: Site, page: Page) -> None:
    execution = site.begin("expense")
    page.goto(f"{site.url}/approvals")
    page.get_by_role("button", name="Decide…").click()
    page.get_by_label("amount").fill("70")
    page.get_by_role("button", name="Approve", exact=True).last.click()
    expect(page.get_by_text("Nothing waits for a decision.")).to_be_visible()
    page.goto(f"{site.url}/executions/{execution}")
    shows_state(page, "Completed")
    results = site.http.get(f"/v1/executions/{execution}/results").json()
    assert results["$approve"]["data"] == {"amount": 70}


def test_a_failed_execution_is_found_explained_and_retried(site: Site, page: Page) -> None:
    site.let_go("no-address")
    site.begin("buy", "o-7")
    page.goto(site.url)
    failed = page.locator("section", has_text="Failed last").get_by_role("link", name="buy")
    failed.click()
    expect(page.locator(".line.failed")).to_contain_text("await ship(order)")
    expect(page.get_by_label("Execution", exact=True).locator("p").first).to_have_text(
        "no address for order o-7"
    )
    (site.folder / "no-address").unlink()
    page.get_by_role("button", name="Retry…").click()
    page.get_by_role("button", name="Retry", exact=True).click()
    expect(page.get_by_text("retry of")).to_be_visible()
    shows_state(page, "Completed")


def test_executions_are_selected_and_cancelled_after_a_look_at_what_would_happen(
    site: Site, page: Page
) -> None:
    waiting = [site.begin("expense") for _ in range(3)]
    done = site.begin("buy", "o-1")
    page.goto(f"{site.url}/executions")
    expect(page.get_by_role("row")).to_have_count(5)
    page.get_by_label("Select all shown").check()
    expect(page.get_by_role("row", name=done).get_by_text("Completed")).to_be_visible()
    page.get_by_role("button", name="Cancel…").click()
    expect(
        page.get_by_text("3 of 4 will be cancelled; 1 are in a state in which that is not possible.")
    ).to_be_visible()
    page.get_by_role("button", name="Cancel them").click()
    page.get_by_role("button", name="Cancelled", exact=True).click()
    expect(page.get_by_role("row")).to_have_count(4)
    assert page.url.endswith("state=%5B%22CANCELLED%22%5D")
    assert [site.state(each) for each in waiting] == ["CANCELLED"] * 3
    assert site.state(done) == "COMPLETED"


def test_a_page_is_live_again_after_the_server_was_killed(site: Site, page: Page) -> None:
    execution = site.begin("parcels", {"weight": 1})
    page.goto(f"{site.url}/executions/{execution}")
    expect(page.get_by_label("pack, task, running")).to_be_visible()
    site.kill()
    expect(page.get_by_text("The connection to the server is interrupted.")).to_be_visible()
    site.let_go("packed")
    site.start()
    shows_state(page, "Completed")
    expect(page.get_by_text("The connection to the server is interrupted.")).to_be_hidden()
    page.get_by_role("tab", name="Events").click()
    last = site.http.get(f"/v1/executions/{execution}/events").json()["last"]
    numbers = page.locator(".event-row .number")
    expect(numbers).to_have_count(last)
    assert [int(each) for each in numbers.all_inner_texts()] == list(range(1, last + 1))


def test_a_refusal_of_the_server_is_a_sentence_where_it_was_asked(site: Site, page: Page) -> None:
    page.goto(f"{site.url}/workflows/buy")
    page.get_by_role("button", name="Start…").click()
    page.get_by_label("Input").fill("{")
    page.get_by_role("button", name="Start", exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("alert")).to_contain_text("is not JSON")
    page.get_by_label("Input").fill('{"order": 7}')
    page.get_by_role("button", name="Start", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("workflow 'buy'")
    expect(dialog.get_by_role("link", name="DS-120")).to_be_visible()


def test_a_key_that_may_only_read_signs_in_and_is_offered_no_action(site: Site, page: Page) -> None:
    execution = site.begin("expense")
    made = site.http.post("/v1/keys", json={"name": "viewer", "scopes": ["read"]})
    admin = site.http.post("/v1/keys", json={"name": "boss", "scopes": ["admin"]}, headers={})
    assert made.status_code == 201, made.text
    assert admin.status_code in (201, 401), admin.text
    page.goto(site.url)
    page.get_by_label("API key").fill("ds_wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_be_visible()
    page.get_by_label("API key").fill(made.json()["key"])
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_text("viewer")).to_be_visible()
    page.goto(f"{site.url}/executions/{execution}")
    expect(page.get_by_label("approve, approval, waiting")).to_be_visible()
    for name in ("Cancel…", "Pause", "Signal…", "Decide…"):
        expect(page.get_by_role("button", name=name)).to_have_count(0)
    page.goto(f"{site.url}/workflows/expense")
    expect(page.get_by_role("heading", name="expense")).to_be_visible()
    expect(page.get_by_role("button", name="Start…")).to_have_count(0)
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("API key")).to_be_visible()


def test_the_palette_finds_a_workflow_by_keyboard_alone(site: Site, page: Page) -> None:
    page.goto(site.url)
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    page.keyboard.press("Control+k")
    page.keyboard.type("parc")
    expect(page.get_by_role("option", name="parcels")).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="parcels")).to_be_visible()


def test_no_page_has_a_serious_finding_of_axe(site: Site, context: BrowserContext, page: Page) -> None:
    site.let_go("no-address")
    failed = site.begin("buy", "o-7")
    waiting = site.begin("expense")
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme, reduced_motion="reduce")
        pages = (*PAGES, f"/executions/{failed}", f"/executions/{waiting}")
        for path in pages if theme == "light" else ("/", *pages[-2:]):
            page.goto(site.url + path)
            expect(page.locator("main")).not_to_be_empty()
            expect(page.get_by_text("Loading…")).to_have_count(0)
            page.evaluate(AXE.read_text())
            found = page.evaluate("axe.run()")["violations"]
            serious = [
                (each["id"], [node["html"][:200] for node in each["nodes"]])
                for each in found
                if each["impact"] in ("serious", "critical")
            ]
            assert serious == [], (theme, path)
