"""Forms of verifiers are made from their schemas; each page works without a script."""

import pytest
from django.test import Client
from django.urls import reverse

from apps.dashboard.forms.verifier_forms import VerifierForm
from apps.environments.models import Environment
from apps.gym.verifiers.registry import VERIFIERS
from tests.factories import make_environment, make_policy_model

HTMX = {"HX-Request": "true"}
SUMS = {
    "name": "Sums",
    "slug": "sums",
    "adapter": "declared",
    "verifies": "on",
    "call_timeout": "5",
    "connect_timeout": "2",
    "solve_threshold": "1",
    "verify_timeout": "10",
    "max_tries": "2",
    "concurrency": "64",
}
NUMERIC = {"verifier_type": "numeric", "verifier_expected_field": "expected_answer", "verifier_time_limit": "10.0"}


def post(pages: Client, **fields: str):
    return pages.post(reverse("dashboard:environment_create"), {**SUMS, **fields}, headers=HTMX)


def test_an_environment_without_code_is_created_with_its_verifier(pages: Client):
    reply = post(pages, **NUMERIC, verifier_absolute_tolerance="0.5", verifier_extract="boxed")
    assert reply.status_code == 200
    environment = Environment.objects.get(slug="sums")
    assert environment.verifier == {"type": "numeric", "absolute_tolerance": 0.5, "extract": "boxed"}
    page = pages.get("/environments/sums/").text
    assert "Number with tolerance" in page
    assert "&quot;absolute_tolerance&quot;: 0.5" in page
    assert "<code>numeric</code>" in pages.get("/environments/").text


def test_a_hybrid_is_written_as_json(pages: Client):
    parts = '[{"name": "right", "weight": 2, "verifier": {"type": "exact_match"}}]'
    post(pages, verifier_type="hybrid", verifier_components=parts, verifier_combine="sum")
    assert Environment.objects.get(slug="sums").verifier == {
        "type": "hybrid",
        "components": [{"name": "right", "weight": 2, "verifier": {"type": "exact_match"}}],
        "combine": "sum",
    }


@pytest.mark.parametrize(
    ("change", "field", "told"),
    [
        ({**NUMERIC, "verifier_absolute_tolerance": "-1"}, "verifier_absolute_tolerance", "greater than or equal to 0"),
        ({**NUMERIC, "verifier_expected": "many"}, "verifier_expected", "/expected is not a number"),
        ({**NUMERIC, "verifier_extract": "pattern"}, "verifier_pattern", "/pattern is missing"),
        ({"verifier_type": "magic"}, "verifier_type", "not one of the available choices"),
        ({"verifier_type": "hybrid", "verifier_components": "[{"}, "verifier_components", "Invalid JSON"),
        (
            {"verifier_type": "hybrid", "verifier_components": "[{}]"},
            "verifier_components",
            "/components/0/name is miss",
        ),
    ],
)
def test_a_verifier_that_cannot_be_says_why_beside_the_parameter(pages: Client, change, field, told):
    reply = post(pages, **change)
    assert reply.status_code == 422
    assert told in str(reply.context["verifier"].errors[field])
    assert not Environment.objects.filter(slug="sums").exists()


def test_choosing_a_verifier_shows_its_parameters_and_keeps_input(pages: Client):
    reply = post(pages, verifier_type="regex", choose_verifier="yes", judge_settings='{"tries": 5}')
    assert reply.status_code == 200
    shown = [field.label for field in reply.context["verifier"].parameters()]
    assert shown[:3] == ["Wanted patterns", "Forbidden patterns", "Matched against"]
    assert 'value="Sums"' in reply.text
    assert "&quot;tries&quot;: 5" in reply.text
    assert 'class="errors"' not in reply.text
    assert not Environment.objects.filter(slug="sums").exists()


def test_without_a_script_a_button_shows_the_parameters(pages: Client):
    page = pages.get(reverse("dashboard:environment_create")).text
    assert 'name="choose_verifier" value="yes" formnovalidate' in page
    reply = pages.post(
        reverse("dashboard:environment_create"), {**SUMS, "verifier_type": "efficiency", "choose_verifier": "yes"}
    )
    assert "<html" in reply.text
    assert 'name="verifier_tool_calls"' in reply.text


def test_a_judge_is_asked_for_where_a_verifier_may_need_one(pages: Client):
    reply = post(pages, verifier_type="llm_judge")
    assert reply.status_code == 422
    assert "judge_model" in reply.context["form"].errors
    model = make_policy_model()
    assert post(pages, verifier_type="llm_judge", judge_model=str(model.pk)).status_code == 200
    assert Environment.objects.get(slug="sums").judge_model == model


def test_editing_shows_stored_parameters_and_an_empty_choice_removes_the_verifier(pages: Client):
    environment = make_environment(verifier={"type": "contains", "wanted": ["a", "b"], "case_sensitive": True})
    url = reverse("dashboard:environment_edit", args=[environment.slug])
    page = pages.get(url).text
    assert ">\na\nb</textarea>" in page
    assert 'name="verifier_case_sensitive" id="id_verifier_case_sensitive" checked' in page or "checked" in page
    given = {**SUMS, "adapter": "builtin", "builtin": "exact_match", "verifier_type": ""}
    assert pages.post(url, given).status_code == 302
    assert Environment.objects.get(pk=environment.pk).verifier == {}


@pytest.mark.parametrize("kind", VERIFIERS)
def test_an_untouched_form_stores_only_the_verifier_type(kind: str):
    form = VerifierForm(fixed=kind)
    typed = {bound.html_name: bound.value() for bound in form.parameters() if bound.value() not in (None, False)}
    bound = VerifierForm({name: str(value) for name, value in typed.items()}, fixed=kind)
    bound.full_clean()
    for name in ("components", "tool", "argument"):
        bound.errors.pop(f"verifier_{name}", None)
    assert bound.errors == {}
    assert bound.configuration() == {"type": kind}


def test_the_page_of_verifiers_names_each_with_what_it_gives(pages: Client):
    page = pages.get(reverse("dashboard:verifier_list")).text
    for kind, verifier in VERIFIERS.items():
        assert f"/verifiers/{kind}/" in page
        assert verifier.title in page
    for field in ("expected_answers", "expected_state", "options"):
        assert f"<code>{field}</code>" in page


@pytest.mark.parametrize("kind", VERIFIERS)
def test_every_verifier_has_a_page(viewer_pages: Client, kind: str):
    reply = viewer_pages.get(reverse("dashboard:verifier_detail", args=[kind]))
    assert reply.status_code == 200
    assert "Range: " in reply.text


def test_an_unknown_verifier_is_not_found(pages: Client):
    assert pages.get("/verifiers/magic/").status_code == 404


def try_numeric(pages: Client, **fields: str):
    given = {"verifier_expected_field": "expected_answer", "verifier_time_limit": "5", **fields}
    return pages.post(reverse("dashboard:verifier_detail", args=["numeric"]), given, headers=HTMX)


def test_a_verifier_is_tried_on_its_page(pages: Client):
    reply = try_numeric(pages, row='{"expected_answer": "42"}', reply="It is 42.", verifier_absolute_tolerance="1")
    assert reply.status_code == 200
    assert "Reward 1" in reply.text
    assert "<dt>numeric_correctness</dt>" in reply.text
    assert "&quot;absolute_tolerance&quot;: 1.0" in reply.text


def test_what_would_fail_a_rollout_is_shown_as_an_error(pages: Client):
    reply = try_numeric(pages, row="{}", reply="42")
    assert "No reward" in reply.text
    assert "the task row has no `expected_answer`" in reply.text


def test_a_row_that_is_no_json_is_refused(pages: Client):
    reply = try_numeric(pages, row="{", reply="42")
    assert reply.status_code == 422
    assert "Invalid JSON" in reply.text


def test_who_may_only_read_cannot_try(viewer_pages: Client):
    assert try_numeric(viewer_pages, row="{}").status_code == 403
