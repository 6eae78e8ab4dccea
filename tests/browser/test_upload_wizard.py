"""The upload wizard in a real browser: with its script in parts, and without any script at all."""

import json

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Site

pytestmark = pytest.mark.slow

TABLE = "frage;antwort;nr\n" + "".join(f"Was ist {n} + {n}?;{2 * n};{n}\n" for n in range(30)) + ";12;31\n"


def new_dataset(site: Site, slug: str) -> str:
    environment = site.api("GET", f"datasets/{site.seeded['dataset']}/")["environment"]
    site.api("POST", "datasets/", {"slug": slug, "name": slug, "environment": environment})
    return f"{site.base}/datasets/{slug}/"


def send(tab: Page, address: str, name: str, content: bytes) -> None:
    tab.goto(f"{address}upload/")
    tab.set_input_files("input[type=file]", files=[{"name": name, "mimeType": "text/plain", "buffer": content}])
    tab.get_by_role("button", name="Continue").click()
    tab.wait_for_url("**/uploads/*/map/")


def map_check_and_load(tab: Page) -> None:
    tab.get_by_label("Custom").check()
    tab.get_by_label("Prompt").first.fill("frage")
    tab.get_by_label("Expected answer", exact=False).first.fill("antwort")
    tab.get_by_role("button", name="Update preview").click()
    expect(tab.locator("td.first").first).to_contain_text("Was ist 0 + 0?")
    # A row of the preview is invalid, and the file would be rejected.
    expect(tab.get_by_role("button", name="Validate only")).to_be_disabled()
    tab.get_by_label("Skip invalid rows").check()
    tab.get_by_role("button", name="Update preview").click()
    tab.get_by_role("button", name="Validate only").click()
    tab.wait_for_url("**/uploads/*/")
    expect(tab.locator("#result")).to_contain_text("30 rows are valid")
    expect(tab.locator("#result")).to_contain_text("/frage is missing")
    tab.get_by_role("button", name="Load as a new version").click()
    expect(tab.locator("#result")).to_contain_text("Version 1 is ready.")


def test_a_table_is_mapped_checked_and_loaded(site, tab):
    address = new_dataset(site, "wizard")
    send(tab, address, "fragen.csv", TABLE.encode())
    map_check_and_load(tab)
    assert site.api("GET", "tasks/?dataset=wizard&limit=1")["results"][0]["external_id"] == ""
    assert site.api("GET", "datasets/wizard/versions/1/")["task_count"] == 30


def test_the_same_works_without_any_script(site, tab):
    address = new_dataset(site, "plain")
    context = tab.context.browser.new_context(
        java_script_enabled=False, storage_state=tab.context.storage_state(), base_url=site.base
    )
    try:
        page = context.new_page()
        send(page, address, "fragen.csv", TABLE.encode())
        map_check_and_load(page)
    finally:
        context.close()
    assert site.api("GET", "datasets/plain/versions/1/")["task_count"] == 30


def test_a_file_over_8_mb_is_sent_in_parts(site, tab):
    address = new_dataset(site, "large")
    rows = b"".join(json.dumps({"question": "x" * 2000 + str(n), "answer": "1"}).encode() + b"\n" for n in range(9000))
    sent: list[str] = []
    tab.on("request", lambda request: sent.append(request.url) if request.method == "PUT" else None)
    send(tab, address, "large.jsonl", rows)
    assert [url.split("offset=")[1] for url in sent] == ["0", str(8 * 1024**2), str(16 * 1024**2)]
    tab.get_by_role("button", name="Validate and load").click()
    expect(tab.locator("#result")).to_contain_text("Version 1 is ready.")
    assert site.api("GET", "datasets/large/versions/1/")["task_count"] == 9000


def test_an_upload_goes_on_after_a_reload_and_says_that_it_waits_for_the_network(site, tab, tmp_path):
    address = new_dataset(site, "broken")
    path = tmp_path / "broken.jsonl"
    line = json.dumps({"question": "x" * 2000, "answer": "1"}).encode() + b"\n"
    path.write_bytes(line * (18 * 1024**2 // len(line)))
    sent: list[str] = []
    # Apart: what does not get through is said on its console.
    context = tab.context.browser.new_context(storage_state=tab.context.storage_state())
    try:
        page = context.new_page()
        page.on("requestfinished", lambda one: sent.append(one.url.split("=")[1]) if one.method == "PUT" else None)
        page.on("dialog", lambda dialog: dialog.accept())
        page.route("**/parts/?offset=8388608", lambda route: route.abort())
        page.goto(f"{address}upload/")
        page.set_input_files("input[type=file]", path)
        page.get_by_role("button", name="Continue").click()
        said = page.locator(".upload-progress")
        expect(said).to_contain_text("Trying again")
        expect(said).to_contain_text("8.0 of 18.0 MB")
        page.unroute("**/parts/?offset=8388608")
        page.reload()
        expect(said).to_contain_text("stopped at 8.0 of 18.0 MB")
        page.set_input_files("input[type=file]", path)
        context.set_offline(True)
        page.get_by_role("button", name="Continue").click()
        expect(said).to_contain_text("offline")
        context.set_offline(False)
        page.wait_for_url("**/uploads/*/map/")
    finally:
        context.close()
    # The last part once more, which shows that it is the same file.
    assert sent == ["0", "0", "8388608", "16777216"]
    uploads = site.api("GET", "datasets/broken/uploads/")["results"]
    assert [(one["state"], one["received_bytes"]) for one in uploads] == [("draft", path.stat().st_size)]
