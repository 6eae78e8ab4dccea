import re

import pytest
from django.test import Client
from django.urls import reverse
from msgspec import to_builtins

from apps.gym.metrics.logprob_differences import compare_logprobs
from apps.gym.wires.pricing import Prices
from apps.policies.models import PolicyModel
from apps.policies.policy_clients import stored_key
from apps.rollouts.logprob_checks import LogprobCheck
from tests.dashboard.pages import squeezed
from tests.factories import make_policy_model

HTMX = {"HX-Request": "true"}
SECRET = "sk-a-very-secret-key-a1b2"
GIVEN = {
    "name": "Qwen",
    "slug": "qwen",
    "provider": "compatible",
    "wire": "chat",
    "base_url": "https://vllm.example/v1",
    "model_name": "Qwen/Qwen3-8B",
    "api_key": SECRET,
    "sampling": '{"temperature": 1.0}',
    "call_timeout": "60",
    "connect_timeout": "2",
    "worker_group": "gpu",
    "input_price": "0.15",
    "output_price": "0.6",
    "max_tries": "3",
    "reasoning": "field",
    "call_content": "empty",
    "concurrency": "64",
    "mistake_rate": "0.4",
}


@pytest.fixture
def qwen(pages: Client) -> PolicyModel:
    assert pages.post(reverse("dashboard:model_create"), GIVEN).status_code == 302
    return PolicyModel.objects.get(slug="qwen")


def test_a_key_is_stored_encrypted_and_no_page_shows_more_than_its_end(pages: Client, qwen: PolicyModel):
    assert stored_key(qwen) == SECRET
    assert SECRET not in qwen.api_key_encrypted
    for address in ("/models/", "/models/qwen/", "/models/qwen/edit/"):
        page = pages.get(address).text
        assert SECRET not in page
        assert qwen.api_key_encrypted not in page
        assert "…a1b2" in page


def test_each_price_is_saved_and_shown(pages: Client):
    given = {**GIVEN, "cached_input_price": "0.03", "cache_write_price": "0.19"}
    assert pages.post(reverse("dashboard:model_create"), given).status_code == 302
    assert PolicyModel.objects.get(slug="qwen").prices == Prices(
        input=0.15, cached_input=0.03, cache_write=0.19, output=0.6
    )
    page = squeezed(pages.get("/models/qwen/").text)
    assert "$0.15 in ($0.03 cached), $0.19 cache writes, $0.60 out" in page
    refused = pages.post(reverse("dashboard:model_create"), {**given, "cache_write_price": "-1"})
    assert list(refused.context["form"].errors) == ["cache_write_price", "slug"]


def test_an_empty_key_keeps_the_stored_one(pages: Client, qwen: PolicyModel):
    reply = pages.post("/models/qwen/edit/", {**GIVEN, "api_key": "", "name": "Qwen 3"}, headers=HTMX)
    assert (reply.status_code, reply["HX-Redirect"]) == (200, "/models/qwen/")
    qwen.refresh_from_db()
    assert (qwen.name, stored_key(qwen)) == ("Qwen 3", SECRET)


def test_a_new_address_needs_the_key_again(pages: Client, qwen: PolicyModel):
    moved = {**GIVEN, "api_key": "", "base_url": "https://evil.example/v1"}
    reply = pages.post("/models/qwen/edit/", moved, headers=HTMX)
    assert reply.status_code == 422
    assert "Enter the API key again" in reply.context["form"].errors["api_key"][0]
    qwen.refresh_from_db()
    assert qwen.base_url == "https://vllm.example/v1"


def test_a_stored_key_can_be_removed(pages: Client, qwen: PolicyModel):
    pages.post("/models/qwen/edit/", {**GIVEN, "api_key": "", "forget_key": "on"})
    qwen.refresh_from_db()
    assert (qwen.api_key_encrypted, qwen.api_key_hint) == ("", "")
    assert "Remove the stored key" not in pages.get("/models/qwen/edit/").text


def test_a_typed_key_is_not_sent_back_with_a_form_error(pages: Client):
    reply = pages.post(reverse("dashboard:model_create"), {**GIVEN, "name": ""}, headers=HTMX)
    assert reply.status_code == 422
    assert SECRET not in reply.text


def test_all_that_is_wrong_is_said_in_one_round(pages: Client):
    wrong = {
        "name": "",
        "base_url": "http://10.0.0.1/v1",
        "model_name": "",
        "sampling": '{"top_p": 2}',
        "concurrency": "0",
        "max_tries": "-1",
    }
    reply = pages.post(reverse("dashboard:model_create"), {**GIVEN, **wrong}, headers=HTMX)
    errors = {field: " ".join(texts) for field, texts in reply.context["form"].errors.items()}
    assert errors.keys() == {"name", "__all__", "concurrency", "max_tries", "base_url", "model_name", "sampling"}
    assert "10.0.0.1:80 to GYMWEB_OUTBOUND_ALLOW" in errors["base_url"]
    assert "top_p" in errors["sampling"]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"base_url": "http://169.254.169.254/v1"}, "base_url"),
        ({"base_url": "https://user:pass@vllm.example/v1"}, "base_url"),
        ({"base_url": "", "model_name": ""}, "model_name"),
        ({"sampling": '{"temperature": 3}'}, "sampling"),
        ({"sampling": "[1]"}, "sampling"),
        ({"sampling": "{"}, "sampling"),
        ({"provider": "scripted", "mistake_rate": "2"}, "mistake_rate"),
        ({"provider": "azure"}, "api_version"),
        ({"more_base_urls": "https://b.example/v1\nhttp://10.0.0.1/v1"}, "more_base_urls"),
        ({"extra_headers": '{"Authorization": "x"}'}, "extra_headers"),
        ({"renamed_fields": '{"a": 1}'}, "renamed_fields"),
        ({"wire": "responses", "capture_tokens": "on"}, "capture_tokens"),
        ({"max_tries": "0"}, "max_tries"),
    ],
)
def test_a_model_that_cannot_be_says_why(pages: Client, change: dict[str, str], field: str):
    reply = pages.post(reverse("dashboard:model_create"), {**GIVEN, **change}, headers=HTMX)
    assert reply.status_code == 422
    assert field in reply.context["form"].errors
    assert PolicyModel.objects.filter(slug="qwen").count() == 0


def test_a_scripted_model_is_labelled_everywhere(pages: Client):
    make_policy_model(slug="script")
    for address in ("/models/", "/models/script/"):
        assert "scripted, no LLM" in pages.get(address).text


def test_the_check_button_says_what_the_endpoint_answered(pages: Client):
    make_policy_model(slug="script")
    reply = pages.post("/models/script/check/", headers=HTMX)
    assert reply.status_code == 200
    assert "always ready" in reply.text
    assert PolicyModel.objects.get(slug="script").health == "healthy"


def test_a_viewer_sees_models_without_a_way_to_change_them(viewer_pages: Client):
    make_policy_model(slug="script")
    page = viewer_pages.get("/models/script/").text
    assert "/edit/" not in page
    assert "Check now" not in page
    assert viewer_pages.get("/models/script/edit/").status_code == 403


def test_hostile_text_stays_text(pages: Client):
    hostile = '<script>alert(1)</script>" onfocus="alert(2)'
    make_policy_model(slug="script", name=hostile[:100], health_message=hostile, sampling={hostile: hostile})
    for address in ("/models/", "/models/script/", "/models/script/edit/"):
        page = pages.get(address).text
        assert "<script>alert" not in page
        assert '" onfocus="' not in page


def test_openai_answers_at_its_own_address_unless_it_is_said_otherwise(pages: Client):
    reply = pages.post(reverse("dashboard:model_create"), {**GIVEN, "provider": "openai", "base_url": ""})
    assert reply.status_code == 302
    row = PolicyModel.objects.get(slug="qwen")
    assert (row.provider, row.base_url) == ("openai", "https://api.openai.com/v1")


def test_anthropic_answers_at_its_own_address_over_its_own_wire(pages: Client):
    given = {**GIVEN, "provider": "anthropic", "base_url": "", "wire": "chat"}
    assert pages.post(reverse("dashboard:model_create"), given).status_code == 302
    row = PolicyModel.objects.get(slug="qwen")
    assert (row.provider, row.base_url, row.wire) == ("anthropic", "https://api.anthropic.com/v1", "messages")
    assert "Messages API" in pages.get("/models/qwen/").text


def test_everything_that_a_server_of_one_s_own_needs_is_saved_and_shown(pages: Client):
    own = {
        "provider": "vllm",
        "more_base_urls": "https://b.example/v1\n\n https://c.example/v1 \n",
        "version": "step-200",
        "reasoning": "dropped",
        "extra_headers": '{"X-Team": "rl"}',
        "extra_body": '{"chat_template_kwargs": {"enable_thinking": false}}',
        "renamed_fields": '{"max_completion_tokens": "max_tokens"}',
        "capture_tokens": "on",
    }
    assert pages.post(reverse("dashboard:model_create"), {**GIVEN, **own}).status_code == 302
    row = PolicyModel.objects.get(slug="qwen")
    assert row.more_base_urls == ["https://b.example/v1", "https://c.example/v1"]
    assert (row.version, row.reasoning, row.capture_tokens) == ("step-200", "dropped", True)
    assert row.extra_headers == {"X-Team": "rl"}
    assert row.extra_body == {"chat_template_kwargs": {"enable_thinking": False}}
    assert row.renamed_fields == {"max_completion_tokens": "max_tokens"}
    page = pages.get("/models/qwen/").text
    assert [
        text for text in ("https://c.example/v1", "step-200", "enable_thinking", "X-Team") if text not in page
    ] == []
    form = pages.get("/models/qwen/edit/").text
    assert "https://b.example/v1\nhttps://c.example/v1</textarea>" in form


def test_azure_is_a_deployment_with_an_api_version(pages: Client):
    own = {"provider": "azure", "api_version": "2025-04-01-preview", "key_is_token": "on"}
    pages.post(reverse("dashboard:model_create"), {**GIVEN, **own})
    row = PolicyModel.objects.get(slug="qwen")
    assert (row.api_version, row.key_is_token) == ("2025-04-01-preview", True)
    page = pages.get("/models/qwen/").text
    assert "Deployment" in page
    assert "a bearer token" in page


def test_fields_that_a_provider_does_not_use_are_dropped(pages: Client):
    stray = {"provider": "openai", "api_version": "x" * 40, "more_base_urls": "nonsense", "mistake_rate": "many"}
    assert pages.post(reverse("dashboard:model_create"), {**GIVEN, **stray}).status_code == 302
    row = PolicyModel.objects.get(slug="qwen")
    assert (row.api_version, row.more_base_urls, row.mistake_rate) == ("", [], 0.4)


def test_a_model_that_becomes_scripted_keeps_its_endpoint_and_its_key(pages: Client, qwen: PolicyModel):
    script = {**GIVEN, "provider": "scripted", "base_url": "", "model_name": "", "api_key": ""}
    assert pages.post("/models/qwen/edit/", script).status_code == 302
    qwen.refresh_from_db()
    assert (qwen.provider, qwen.base_url, stored_key(qwen)) == ("scripted", "https://vllm.example/v1", SECRET)


def test_further_settings_are_folded_until_one_is_set_or_wrong(pages: Client, qwen: PolicyModel):
    proposed = pages.get("/models/new/").context["form"]
    assert not proposed.is_open()
    usual = {
        field.name: field.value() for field in proposed if field.value() is not None and field.value() is not False
    }
    usual |= {name: GIVEN[name] for name in ("name", "provider", "base_url", "model_name")}
    assert pages.get("/models/qwen/edit/").context["form"].is_open()
    assert pages.post("/models/new/", {**usual, "extra_body": "["}, headers=HTMX).context["form"].is_open()
    wrong = pages.post("/models/new/", {**usual, "name": ""}, headers=HTMX).context["form"]
    assert list(wrong.errors) == ["name"]
    assert not wrong.is_open()


def test_the_name_gives_the_slug(pages: Client, db: None):
    for name, slug in (("Qwen 3 (8B)", "qwen-3-8b"), ("日本語", "")):
        reply = pages.post("/models/new/", {**GIVEN, "name": name, "slug": ""})
        assert PolicyModel.objects.filter(name=name).count() == (reply.status_code == 302) == bool(slug)
        assert not slug or PolicyModel.objects.get(name=name).slug == slug
    again = pages.post("/models/new/", {**GIVEN, "name": "Qwen 3 8B", "slug": ""})
    assert again.context["form"].errors["slug"]


@pytest.mark.parametrize(("provider", "health"), [("scripted", "healthy"), ("compatible", "unhealthy")])
def test_saving_and_checking_shows_whether_the_model_answers(pages: Client, settings, provider: str, health: str):
    settings.OUTBOUND_ALLOW = ["127.0.0.1:9"]
    # Port 9 (discard) accepts no connection.
    given = {**GIVEN, "provider": provider, "base_url": "http://127.0.0.1:9/v1", "api_key": "", "check": "1"}
    shown = pages.post("/models/new/", given, follow=True)
    assert PolicyModel.objects.get(slug="qwen").health == health
    (message,) = shown.context["messages"]
    assert message.level_tag == ("success" if health == "healthy" else "error")


def test_the_check_of_log_probabilities_shows_its_figures_and_why_it_cannot_run(pages: Client):
    model = make_policy_model(slug="captured", capture_tokens=True)
    assert "Not checked yet" in pages.get("/models/captured/").text
    refused = pages.post("/models/captured/check-logprobs/", follow=True)
    assert "captured tokens that can be compared" in refused.text
    figures = compare_logprobs([([-0.5, -0.01], [-0.52, -0.01])])
    check = LogprobCheck(
        at="2026-01-02T03:04:05+00:00",
        compared_with="server",
        version="step-2",
        rollouts=1,
        figures=figures,
        left_out={"grammar": 1200},
    )
    PolicyModel.objects.filter(pk=model.pk).update(logprob_check=to_builtins(check))
    page = pages.get("/models/captured/").text
    rows = dict(re.findall(r'<th scope="row">([^<]+)</th><td class="num">([^<]+)</td>', page))
    assert (rows["Tokens"], rows["Largest"], rows["Above 0.01"]) == ("2", "0.02", "50 %")
    assert "1,200 tokens that a grammar may have forced" in page
    assert "mean 0.980, 100 % outside 1 ± 0.01, 0 % outside 1 ± 0.05" in page


def test_the_server_that_the_health_check_found_is_shown(pages: Client, qwen: PolicyModel):
    assert "<dt>Server</dt>" not in pages.get("/models/qwen/").text
    qwen.capabilities = {"engine": "vllm", "server_version": "0.32.0", "dtype": "bfloat16"}
    qwen.save()
    told = "<dt>Server</dt><dd><code>vllm</code> <code>0.32.0</code> <code>bfloat16</code>"
    assert told in pages.get("/models/qwen/").text
