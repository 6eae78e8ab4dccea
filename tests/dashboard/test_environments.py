import json

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from apps.environments.models import Environment
from tests.factories import make_dataset, make_environment, make_policy_model, make_row

HTMX = {"HX-Request": "true"}
GIVEN = {
    "name": "Weather",
    "slug": "weather",
    "description": "Says the weather.",
    "adapter": "http",
    "builtin": "",
    "base_url": "https://weather.example",
    "verifies": "on",
    "call_timeout": "5",
    "connect_timeout": "2",
    "worker_group": "lab",
    "solve_threshold": "1",
    "verify_timeout": "10",
    "max_tries": "2",
    "concurrency": "64",
}


def test_an_environment_is_created_and_shown(pages: Client):
    reply = pages.post(reverse("dashboard:environment_create"), GIVEN)
    assert (reply.status_code, reply["Location"]) == (302, "/environments/weather/")
    page = pages.get("/environments/weather/").text
    assert "https://weather.example" in page
    assert "not checked" in page


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"base_url": "http://127.0.0.1:8001"}, "base_url"),
        ({"base_url": "ftp://weather.example"}, "base_url"),
        ({"base_url": ""}, "__all__"),
        ({"adapter": "builtin", "builtin": "nothing"}, "builtin"),
        ({"adapter": "carrier pigeon"}, "adapter"),
        ({"call_timeout": "0"}, "call_timeout"),
        ({"concurrency": "0"}, "concurrency"),
    ],
)
def test_an_environment_that_cannot_be_says_why(pages: Client, change: dict[str, str], field: str):
    reply = pages.post(reverse("dashboard:environment_create"), {**GIVEN, **change}, headers=HTMX)
    assert reply.status_code == 422
    assert field in reply.context["form"].errors
    assert not Environment.objects.filter(slug="weather").exists()


def test_a_refused_address_names_the_setting_that_allows_it(pages: Client):
    reply = pages.post(reverse("dashboard:environment_create"), {**GIVEN, "base_url": "http://127.0.0.1:8001"})
    assert "GYMWEB_OUTBOUND_ALLOW" in reply.text


def test_the_check_button_asks_the_server_and_swaps_the_answer_in(pages: Client):
    reply = pages.post("/environments/calculator/check/", headers=HTMX)
    assert reply.status_code == 200
    assert reply.text.lstrip().startswith('<section class="card health" id="health"')
    assert "healthy" in reply.text
    assert Environment.objects.get(slug="calculator").health == "healthy"


@pytest.mark.parametrize(("builtin", "has_button"), [("calculator", False), ("code_exec", True)])
def test_only_an_environment_with_something_to_check_has_the_check_button(
    pages: Client, builtin: str, has_button: bool
):
    environment = make_environment(adapter="builtin", builtin=builtin, slug="plain")
    assert ("Check now" in pages.get(f"/environments/{environment.slug}/").text) == has_button


def test_the_check_button_works_without_a_script(pages: Client):
    reply = pages.post("/environments/calculator/check/")
    assert (reply.status_code, reply["Location"]) == (302, "/environments/calculator/")


def test_a_built_in_environment_shows_its_tool_with_its_schema(pages: Client):
    page = pages.get("/environments/calculator/")
    assert [tool["name"] for tool in page.context["tools"]] == ["calculator"]
    assert "&quot;expression&quot;" in page.text


def test_tools_that_tasks_declare_are_shown_once(pages: Client):
    environment = make_environment(adapter="http", builtin="", base_url="https://weather.example", slug="weather")
    rows = []
    for city in ("Bern", "Rom"):
        row = make_row(city)
        row["responses_create_params"]["tools"] = [{"type": "function", "name": "get_weather", "parameters": {}}]
        rows.append(row)
    make_dataset(rows, environment=environment)
    assert [tool["name"] for tool in pages.get("/environments/weather/").context["tools"]] == ["get_weather"]


def test_the_slug_stays_and_the_rest_can_change(pages: Client):
    pages.post(reverse("dashboard:environment_create"), GIVEN)
    pages.post("/environments/weather/edit/", {**GIVEN, "slug": "moved", "name": "Wetter"})
    assert Environment.objects.get(slug="weather").name == "Wetter"


def test_a_viewer_reads_and_changes_nothing(viewer_pages: Client):
    page = viewer_pages.get("/environments/calculator/").text
    assert "Check now" not in page
    assert viewer_pages.post("/environments/calculator/check/").status_code == 403
    assert viewer_pages.get("/environments/new/").status_code == 403


def test_hostile_text_stays_text(pages: Client):
    hostile = '<script>alert(1)</script>" onfocus="alert(2)'
    environment = make_environment(name=hostile, description=hostile, health_message=hostile)
    row = make_row()
    row["responses_create_params"]["tools"] = [{"type": "function", "name": hostile, "description": hostile}]
    make_dataset([row], environment=environment)
    for address in ("/environments/", f"/environments/{environment.slug}/", f"/environments/{environment.slug}/edit/"):
        page = pages.get(address).text
        assert "<script>alert" not in page
        assert '" onfocus="' not in page


JUDGED = {
    **GIVEN,
    "name": "Essays",
    "slug": "essays",
    "adapter": "builtin",
    "builtin": "judged",
    "base_url": "",
    "judge_question": "compare",
    "judge_reads": "answer",
    "judge_rubric": "Is {answer} kind?",
    "judge_settings": '{"worth": {"tie": 0.25}}',
}


def test_a_judge_is_chosen_in_the_form_and_its_settings_are_shown(pages: Client):
    judge = make_policy_model(name="Critic", concurrency=7)
    reply = pages.post(reverse("dashboard:environment_create"), {**JUDGED, "judge_model": judge.pk})
    assert reply.status_code == 302
    saved = Environment.objects.get(slug="essays")
    assert saved.judge_model == judge
    assert saved.judge_settings == {"question": "compare", "reads": "answer", "worth": {"tie": 0.25}}
    page = pages.get("/environments/essays/").text
    for part in ("Critic", "0.25 for a tie", "Judged in both orders", "Is {answer} kind?"):
        assert part in page
    assert "A judge model scores the final answer" in page
    edit = pages.get("/environments/essays/edit/")
    assert "{expected_answer} is reference_answer or expected_answer of the row" in edit.text
    form = edit.context["form"]
    assert (form["judge_question"].value(), form["judge_settings"].value()) == (
        "compare",
        '{\n  "worth": {\n    "tie": 0.25\n  }\n}',
    )


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"judge_model": ""}, "judge_model"),
        ({"judge_reads": "trace"}, "judge_settings"),
        ({"judge_settings": '{"tries": "many"}'}, "judge_settings"),
        ({"judge_settings": "["}, "judge_settings"),
    ],
)
def test_a_judge_that_cannot_be_asked_is_named_beside_its_field(pages: Client, change: dict[str, str], field: str):
    given = {**JUDGED, "judge_model": make_policy_model().pk, **change}
    reply = pages.post(reverse("dashboard:environment_create"), given, headers=HTMX)
    assert reply.status_code == 422
    assert list(reply.context["form"].errors) == [field]


def test_a_user_model_is_optional_and_named_so(pages: Client):
    given = {**GIVEN, "adapter": "builtin", "builtin": "simulated_user", "base_url": ""}
    assert pages.post(reverse("dashboard:environment_create"), given).status_code == 302
    page = pages.get("/environments/weather/").text
    assert "scripted, no LLM" in page
    model = make_policy_model(name="Someone")
    edit = reverse("dashboard:environment_edit", args=["weather"])
    assert pages.post(edit, {**given, "judge_model": model.pk}).status_code == 302
    assert Environment.objects.get(slug="weather").judge_model == model
    page = pages.get("/environments/weather/").text
    assert "<h2>User model</h2>" in page
    assert "Someone" in page
    assert "<h2>Judge</h2>" not in page
    assert "User model</legend>" in pages.get(edit).text


def test_a_key_is_entered_once_and_never_shown(pages: Client):
    pages.post(reverse("dashboard:environment_create"), {**GIVEN, "api_key": "sesame-open-1234"})
    weather = Environment.objects.get(slug="weather")
    assert weather.api_key_hint == "…1234"
    for address in ("/environments/weather/", "/environments/weather/edit/"):
        page = pages.get(address).text
        assert ("sesame" in page, "1234" in page) == (False, True)
    pages.post("/environments/weather/edit/", {**GIVEN, "forget_key": "on"})
    assert Environment.objects.get(slug="weather").api_key_encrypted == ""


def test_a_new_address_asks_for_the_key_again(pages: Client):
    pages.post(reverse("dashboard:environment_create"), {**GIVEN, "api_key": "sesame-open-1234"})
    reply = pages.post("/environments/weather/edit/", {**GIVEN, "base_url": "https://other.example"}, headers=HTMX)
    assert reply.status_code == 422
    assert "api_key" in reply.context["form"].errors


def test_only_commands_of_the_operator_can_be_chosen(pages: Client, settings):
    settings.MCP_COMMANDS = {"notes": {"command": ["mcp-notes"], "environment": {}}}
    given = {**GIVEN, "adapter": "mcp_process", "base_url": "", "concurrency": "4"}
    reply = pages.post(reverse("dashboard:environment_create"), {**given, "command": "bash"}, headers=HTMX)
    assert "command" in reply.context["form"].errors
    assert pages.post(reverse("dashboard:environment_create"), {**given, "command": "notes"}).status_code == 302
    assert "started for each attempt" in pages.get("/environments/weather/").text
    assert "mcp-notes" not in pages.get("/environments/weather/").text


def test_choosing_a_process_proposes_as_many_at_once_as_there_may_be(pages: Client, settings):
    settings.MCP_PROCESSES = 7
    form = pages.get(reverse("dashboard:environment_create")).context["form"]
    proposed = json.loads(form.fields["concurrency"].widget.attrs["data-proposed"])["adapter"]
    assert (proposed["mcp_process"], proposed["http"]) == ("7", "1024")


def test_the_health_of_an_unwell_server_follows_by_itself(pages: Client):
    fields = {"builtin": "", "adapter": "http", "base_url": "https://lab.example", "health": "unhealthy"}
    lab = make_environment(slug="lab", unwell_since=timezone.now(), health_checked_at=timezone.now(), **fields)
    card = pages.get("/environments/lab/", headers={**HTMX, "HX-Target": "health"}).text
    assert card.startswith('<section class="card health" id="health" hx-get="/environments/lab/" hx-trigger="every 5s"')
    Environment.objects.filter(pk=lab.pk).update(unwell_since=None, health="healthy")
    card = pages.get("/environments/lab/", headers={**HTMX, "HX-Target": "health"}).text
    assert "hx-trigger" not in card


def test_tools_that_a_server_named_are_shown(pages: Client):
    tool = {"type": "function", "name": "add", "description": "Adds.", "parameters": {"type": "object"}}
    fields = {"builtin": "", "adapter": "mcp", "base_url": "https://lab.example/mcp"}
    make_environment(slug="lab", survey={"tools": [tool]}, **fields)
    page = pages.get("/environments/lab/").text
    assert "1 tool. Tasks can declare more." in page
    assert "Adds." in page


def test_lists_and_pages_say_that_built_in_environments_run_in_process(pages: Client):
    environment = make_environment(adapter="builtin", builtin="calculator")
    for url in ("/environments/", f"/environments/{environment.slug}/"):
        assert '<span class="muted">no server to check</span>' in pages.get(url).text
