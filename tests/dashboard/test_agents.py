import json

import pytest
from django.test import Client
from django.urls import reverse

from apps.accounts.models import AuditEntry
from apps.agents.models import Agent
from apps.gym.calls import lookups
from tests.factories import make_agent, make_collection

HTMX = {"HX-Request": "true"}
GIVEN = {
    "name": "Careful",
    "slug": "careful",
    "system_prompt": "Think first.",
    "examples": "",
    "max_steps": "5",
    "time_limit": "60",
    "token_limit": "5000",
    "parallel_tool_calls": "on",
    "retry_empty_replies": "on",
    "strict_tools": "never",
    "sampling": '{"temperature": 0.5}',
}


def test_an_agent_is_created_and_shown(pages: Client):
    reply = pages.post(reverse("dashboard:agent_create"), GIVEN)
    assert (reply.status_code, reply["Location"]) == (302, "/agents/careful/")
    agent = Agent.objects.get(slug="careful")
    assert (agent.max_steps, agent.sampling, agent.examples) == (5, {"temperature": 0.5}, [])
    assert (agent.retry_empty_replies, agent.strict_tools) == (True, "never")
    assert AuditEntry.objects.get(action="agent.create").target == "careful"
    page = pages.get("/agents/careful/").text
    assert "Think first." in page
    assert "&quot;temperature&quot;: 0.5" in page


@pytest.mark.parametrize(
    ("examples", "words"),
    [
        ("[{]", "line 1, column 3"),
        ('{"role": "user"}', "a JSON list"),
        ("[NaN]", "cannot be stored"),
        ('["hello"]', "Item 1 is not an object"),
        ('[{"role": "user", "content": "a\\u0000b"}]', "cannot be stored"),
        ('[{"role": "user", "content": "\\ud800"}]', "cannot be stored"),
        ('[{"role": "boss", "content": "hello"}]', "Item 1 has none"),
        (
            '[{"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"}]',
            "'a' has no function_call_output",
        ),
    ],
)
def test_wrong_examples_are_named_beside_the_field_and_kept_as_typed(pages: Client, examples: str, words: str):
    reply = pages.post(reverse("dashboard:agent_create"), {**GIVEN, "examples": examples}, headers=HTMX)
    assert reply.status_code == 422
    assert "<html" not in reply.text
    assert words in reply.context["form"].errors["examples"][0]
    assert reply.context["form"]["examples"].value() == examples
    assert not Agent.objects.filter(slug="careful").exists()


def test_right_examples_are_stored_and_rendered_as_a_conversation(pages: Client):
    examples = [
        {"role": "user", "content": "2 + 2?"},
        {"type": "function_call", "call_id": "a", "name": "calculator", "arguments": '{"expression": "2+2"}'},
        {"type": "function_call_output", "call_id": "a", "output": "4"},
        {"role": "assistant", "content": "4"},
    ]
    pages.post(reverse("dashboard:agent_create"), {**GIVEN, "examples": json.dumps(examples)})
    assert Agent.objects.get(slug="careful").examples == examples
    page = pages.get("/agents/careful/").text
    assert page.count('<article class="item') == 4
    assert "&quot;expression&quot;: &quot;2+2&quot;" in page


def test_the_slug_of_an_agent_stays(pages: Client):
    agent = make_agent(slug="steady")
    pages.post(reverse("dashboard:agent_edit", args=["steady"]), {**GIVEN, "slug": "moved"})
    agent.refresh_from_db()
    assert (agent.slug, agent.name) == ("steady", "Careful")


@pytest.mark.parametrize("slug", ["new", "with spaces", "taken"])
def test_a_slug_that_cannot_be_is_refused(pages: Client, slug: str):
    make_agent(slug="taken")
    reply = pages.post(reverse("dashboard:agent_create"), {**GIVEN, "slug": slug})
    assert reply.status_code == 422
    assert "slug" in reply.context["form"].errors


def test_hostile_text_stays_text(pages: Client):
    hostile = "</textarea><script>alert(1)</script><img src=x onerror=alert(2)>"
    agent = make_agent(name=hostile, system_prompt=hostile, examples=[{"role": "user", "content": hostile}])
    for address in ("/agents/", f"/agents/{agent.slug}/", f"/agents/{agent.slug}/edit/"):
        page = pages.get(address).text
        assert "<script>alert" not in page
        assert "<img src=x" not in page
        assert "&lt;script&gt;alert(1)" in page


def test_an_agent_shows_the_collections_that_used_it(pages: Client):
    collection = make_collection(agent=make_agent(slug="used"), name="Friday")
    assert collection.name in pages.get("/agents/used/").text


def test_a_viewer_sees_agents_and_no_way_to_change_them(viewer_pages: Client):
    make_agent(slug="steady")
    assert viewer_pages.get("/agents/steady/").status_code == 200
    assert "/edit/" not in viewer_pages.get("/agents/steady/").text
    assert viewer_pages.get("/agents/steady/edit/").status_code == 403
    assert viewer_pages.post("/agents/new/", GIVEN).status_code == 403


def test_without_agents_the_page_says_what_to_do(pages: Client):
    Agent.objects.all().delete()
    assert "No agents yet" in pages.get("/agents/").text


COMMAND = {**GIVEN, "kind": "command", "command": '["agent", "{instruction}"]', "artifacts": "a.txt, b.txt"}


def test_a_command_agent_is_created_and_shown(pages: Client):
    pages.post(reverse("dashboard:agent_create"), {**COMMAND, "variables": '{"KEY": "{api_key}"}'})
    agent = Agent.objects.get(slug="careful")
    assert agent.command_settings == {
        "command": ["agent", "{instruction}"],
        "variables": {"KEY": "{api_key}"},
        "artifacts": ["a.txt", "b.txt"],
    }
    assert "{instruction}" in pages.get("/agents/careful/").text
    assert "agent {instruction}" in pages.get("/agents/").text
    assert pages.get("/agents/careful/edit/").context["form"]["artifacts"].value() == "a.txt, b.txt"


@pytest.mark.parametrize(
    ("field", "value"),
    [("command", "[]"), ("command", "[1]"), ("files", '{"/etc/x": ""}'), ("answer_file", "../x"), ("mounts", "/root")],
)
def test_a_wrong_command_is_refused_beside_its_field(pages: Client, field: str, value: str):
    reply = pages.post(reverse("dashboard:agent_create"), {**COMMAND, field: value})
    assert reply.status_code == 422
    assert list(reply.context["form"].errors) == [field]
    assert not Agent.objects.filter(slug="careful").exists()


@pytest.mark.parametrize("preset", ["claude-code", "codex"])
def test_a_preset_fills_in_the_fields_and_what_it_fills_in_can_be_saved(pages: Client, preset: str):
    reply = pages.post(reverse("dashboard:agent_create"), {**GIVEN, "preset": preset, "fill_preset": "yes"})
    assert not Agent.objects.filter(slug="careful").exists()
    form = reply.context["form"]
    shown = {name: form[name].value() for name in form.fields}
    assert (shown["name"], shown["kind"]) == ("Careful", "command")
    given = {name: value for name, value in shown.items() if value is not None and name != "preset"}
    pages.post(reverse("dashboard:agent_create"), given)
    assert Agent.objects.get(slug="careful").command_settings["command"][0] in preset


def test_an_agent_server_is_saved_with_its_address(pages: Client):
    given = {**GIVEN, "kind": "agent_server", "server_url": "http://agents.example.com:8102", "server_route": "run"}
    assert pages.post(reverse("dashboard:agent_create"), given).status_code == 302
    agent = Agent.objects.get(slug="careful")
    assert (agent.kind, agent.server_url, agent.server_route) == (
        "agent_server",
        "http://agents.example.com:8102",
        "run",
    )
    for url in ("/agents/careful/", "/agents/"):
        assert "http://agents.example.com:8102" in pages.get(url).text


@pytest.mark.parametrize(
    ("kind", "url"),
    [
        ("agent_server", ""),
        ("agent_server", "ftp://192.0.2.7"),
        ("agent_server", "http://127.1:9571"),
        ("agent_server", "http://agents.example.com/\u00a0v1"),
        ("builtin", "http://agents.example.com:8102"),
    ],
)
def test_a_wrong_address_of_an_agent_server_is_named(pages: Client, kind: str, url: str):
    given = {**GIVEN, "kind": kind, "server_url": url}
    reply = pages.post(reverse("dashboard:agent_create"), given, headers=HTMX)
    assert reply.status_code == 422
    assert list(reply.context["form"].errors) == ["server_url"]


def test_the_name_of_an_agent_server_is_resolved_on_saving(pages: Client, monkeypatch, settings):
    settings.OUTBOUND_ALLOW = []
    asked = []
    monkeypatch.setattr(lookups, "look_up", lambda host, port: asked.append((host, port)) or ["127.0.0.1"])
    given = {**GIVEN, "kind": "agent_server", "server_url": "http://0x7f000001:9571", "server_route": "run"}
    reply = pages.post(reverse("dashboard:agent_create"), given, headers=HTMX)
    assert (reply.status_code, asked) == (422, [("0x7f000001", 9571)])
    assert "GYMWEB_OUTBOUND_ALLOW" in reply.context["form"].errors["server_url"][0]
    settings.OUTBOUND_ALLOW = ["0x7f000001:9571"]
    assert pages.post(reverse("dashboard:agent_create"), given).status_code == 302


@pytest.mark.parametrize(("kind", "label"), [("builtin", "Built-in loop"), ("external", "External agent")])
def test_pages_name_the_kind_and_show_the_fields_that_apply_to_it(pages: Client, kind: str, label: str):
    agent = make_agent(kind=kind)
    assert label in pages.get(reverse("dashboard:agent_list")).text
    page = pages.get(reverse("dashboard:agent_detail", args=[agent.slug])).text
    assert label in page
    assert ("Parallel tool calls" in page, 'id="connect"' in page) == (kind == "builtin", kind == "external")


def test_the_form_has_all_fields_and_names_the_kinds_that_use_them(pages: Client):
    page = pages.get(reverse("dashboard:agent_create")).text
    assert 'name="parallel_tool_calls"' in page
    assert 'data-shown-for="kind:builtin"' in page


def test_an_external_agent_links_to_the_collections_that_wait_for_it(pages: Client):
    agent = make_agent(kind="external")
    waiting, ended = make_collection(agent=agent), make_collection(agent=agent, state="completed")
    page = pages.get(reverse("dashboard:agent_detail", args=[agent.slug])).text
    assert f"/collections/{waiting.pk}/#connect" in page
    assert f"/collections/{ended.pk}/#connect" not in page
