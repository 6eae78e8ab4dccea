"""Template checks of exports: the manifest and the preview say what is lost, and misfits are left out."""

import hashlib
import json
import time
from pathlib import Path

import pytest

from apps.accounts.models import Role
from apps.exports import template_checks
from apps.exports.export_jobs import write_export
from apps.exports.export_orders import ExportOrder, ExportRefused, prepare_export, queue_export
from apps.exports.export_preview import check_template, preview_rows
from apps.exports.models import Export
from apps.gym.exporters.protocol import Options
from apps.gym.exporters.registry import FORMATS
from apps.gym.exporters.rendered_messages import find_unchecked, has_conversations, row_conversations
from apps.gym.traces.events import ToolResult
from tests.api.conftest import client_of
from tests.dashboard.pages import signed_in
from tests.factories import make_collection, make_dataset, make_rollout, make_row
from tests.gym.chattemplates.test_template_verdicts import EXACT, changed
from tests.gym.traces import call, decode_lines, said, thought, trace, turn

pytestmark = pytest.mark.django_db

NO_TEXT = changed("{{ m.content }}", "{{ m.content if not m.tool_calls }}")
ONE_CALL = changed(
    "{%- for c", "{%- if (m.tool_calls or []) | length > 1 %}{{ raise_exception('one') }}{% endif %}{%- for c"
)


def attempted(*calls, text="", answer="22 °C."):
    asked = turn(thought("Hm."), said(text), *calls) if text else turn(thought("Hm."), *calls)
    results = [ToolResult(call_id=one["call_id"], name="get_weather", output='{"temp": 22}') for one in calls]
    return trace(asked, *results, turn(said(answer)))


@pytest.fixture
def collection(settings, tmp_path):
    """Ten rollouts with a call, three with text beside it, two with two calls."""
    settings.EXPORTS_DIR = tmp_path / "exports"
    made = make_collection(dataset=make_dataset([make_row(f"{number}") for number in range(15)]))
    for number, task in enumerate(made.version.tasks.order_by("index")):
        calls = [call(call_id=f"a{number}"), call(call_id=f"b{number}")][: 2 if number >= 13 else 1]
        events = attempted(*calls, text="I look." if 10 <= number < 13 else "", answer=f"It is {number}.")
        make_rollout(made, task=task, reward=1.0, trace=events)
    return made


def order(collection, template=NO_TEXT, **fields):
    return ExportOrder(**{"format": "trl_sft", "collection": collection, "template": template, **fields})


def written(collection, template=NO_TEXT, **fields):
    export = write_export(export=queue_export(order(collection, template, **fields)))
    assert export.state == "ready", export.message
    return export, export.manifest["template_check"]


def counts(report):
    return {one["kind"]: one["rows"] for one in report["findings"]}


@pytest.mark.parametrize("every_row", [False, True])
def test_manifest_counts_the_rows_with_each_finding(collection, every_row):
    export, found = written(collection, every_row=every_row)
    assert counts(found) == {"call_text_lost": 3}
    assert (found["rows"], found["shapes"], export.rows) == (15, 3, 15)
    assert found["rendered"] == 15 if every_row else found["rendered"] < 15
    assert (found["unchecked"], found["dropped"], found["deviating"], found["stopped"]) == (0, 0, 0, "")
    assert (found["sha256"], found["misfits"]) == (hashlib.sha256(NO_TEXT.encode()).hexdigest(), "kept")
    (finding,) = found["findings"]
    eleventh = collection.rollouts.order_by("id")[10]
    assert finding["example"] == f"rollout {eleventh.pk}"


def test_exact_template_has_no_finding(collection):
    _, found = written(collection, EXACT)
    assert (found["findings"], found["form"], found["rows"]) == ([], None, 15)


def test_misfits_are_left_out_by_the_ledger(collection):
    export, found = written(collection, misfits="dropped", every_row=True)
    assert export.manifest["counts"]["dropped"] == {"template_loses": 3}
    assert (export.rows, found["dropped"]) == (12, 3)
    export, found = written(collection, ONE_CALL, misfits="dropped")
    assert export.manifest["counts"]["dropped"] == {"template_raises": 2}
    assert counts(found) == {"raised": 2}
    assert found["findings"][0]["example"].endswith("TemplateError: one")


def test_form_of_the_options_that_the_template_takes(collection):
    _, found = written(collection, ONE_CALL)
    assert found["form"] == {"options": {"parallel_calls": "split"}, "rows": 0, "checked": 15}
    _, found = written(collection, ONE_CALL, options={"parallel_calls": "split"})
    assert found["findings"] == []
    _, found = written(collection, changed("c.function.arguments | tojson", "'' + c.function.arguments"))
    assert found["form"] == {"options": {"arguments": "text"}, "rows": 0, "checked": 15}


def test_split_rows_have_one_call_per_turn(collection):
    export, _ = written(collection, EXACT, options={"parallel_calls": "split"})
    rows = decode_lines((Path(export.path) / "train.jsonl").read_bytes())
    calls = [len(one.get("tool_calls", [])) for row in rows for one in row["messages"]]
    assert max(calls) == 1
    assert sum(calls) == 17


def test_rows_that_differ_from_their_shape_are_counted(collection):
    """A template that decides by a text: the shape cannot know, every row does."""
    by_id = changed("{{ m.content }}", "{{ m.content if m.tool_call_id not in ['a3', 'a4'] }}")
    _, found = written(collection, by_id, every_row=True)
    assert counts(found) == {"result_lost": 2}
    assert found["deviating"] == 2


def test_preview_has_the_report(collection):
    found = preview_rows(prepare_export(order(collection)), limit=2)
    assert found.template_check is not None
    assert [(one.kind, one.rows) for one in found.template_check.findings] == [("call_text_lost", 3)]
    assert preview_rows(prepare_export(order(collection, template=""))).template_check is None


def test_stored_export_is_checked_without_a_change(collection):
    export, _ = written(collection, EXACT)
    assert [one.rows for one in check_template(export, template=NO_TEXT, every_row=True).findings] == [3]
    stored = type(export).objects.get(pk=export.pk)
    assert stored.template["template"]["text"] == EXACT.strip()
    assert stored.manifest["template_check"]["findings"] == []


def test_a_template_that_never_ends_is_stopped(collection, monkeypatch):
    monkeypatch.setattr(template_checks, "SECONDS", 1.0)
    endless = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    started = time.monotonic()
    export, found = written(collection, endless)
    assert time.monotonic() - started < 20
    assert "1 seconds" in found["stopped"]
    assert (found["unchecked"], found["rendered"], export.rows) == (15, 0, 15)


def test_a_template_that_needs_too_much_memory_raises(collection):
    _, found = written(collection, "{{ 'x' * 99999999999 }}")
    assert counts(found) == {"raised": 15}
    assert "MemoryError" in found["findings"][0]["example"]


@pytest.mark.parametrize(
    ("fields", "argument"),
    [
        ({"template": "{% if %}"}, "template"),
        ({"template": "", "tokenizer": "/etc"}, "tokenizer"),
        ({"tokenizer": "trl/qwen3"}, "template"),
        ({"template": "", "misfits": "dropped"}, "tokenizer"),
        ({"template": "", "every_row": True}, "tokenizer"),
        ({"format": "nemo_gym_rollouts"}, "template"),
    ],
)
def test_checks_that_cannot_run_are_refused(collection, fields, argument):
    with pytest.raises(ExportRefused) as refused:
        queue_export(order(collection, **fields))
    assert refused.value.argument == argument


SINGLE = [slug for slug, one in FORMATS.items() if has_conversations(one) and one.row_kind != "preferences"]


@pytest.mark.parametrize("slug", SINGLE)
def test_every_format_of_messages_is_checked(collection, slug):
    export = write_export(export=queue_export(order(collection, EXACT, format=slug)))
    assert export.state == "ready", export.message
    report = export.manifest["template_check"]
    assert report["rows"] == export.rows > 0
    expected = {"openai_sft": {"arguments_as_text"}}.get(slug, set())
    assert {one["kind"] for one in report["findings"]} == expected


def test_formats_without_messages_are_known():
    checked = {slug for slug, format in FORMATS.items() if has_conversations(format)}
    assert checked == {
        "trl_sft", "trl_sft_completion", "trl_sft_turns", "trl_kto", "trl_dpo", "trl_reward", "unsloth_sft",
        "openai_sft", "openai_dpo", "axolotl_sft", "verl_sft", "nemo_rl_sft", "openrlhf_sft", "openrlhf_dpo",
    }  # fmt: skip


def test_pairs_are_two_conversations():
    user, good, bad = (
        {"role": role, "content": text} for role, text in (("user", "u"), ("assistant", "g"), ("assistant", "b"))
    )
    rows = {
        "trl_dpo": {"prompt": [user], "chosen": [good], "rejected": [bad], "tools": []},
        "trl_reward": {"chosen": [user, good], "rejected": [user, bad], "tools": []},
        "openrlhf_dpo": {"context_messages": [user], "chosen_messages": [good], "rejected_messages": [bad]},
        "openai_dpo": {"input": {"messages": [user]}, "preferred_output": [good], "non_preferred_output": [bad]},
    }
    for slug, row in rows.items():
        found = [messages for messages, _ in row_conversations(FORMATS[slug], json.loads(json.dumps(row)))]
        assert found == [[user, good], [user, bad]], slug


def test_api_checks_previews_and_stores(collection):
    client = client_of(Role.ADMIN)
    base = {"format": "trl_sft", "collection": collection.pk}
    body = {**base, "template": NO_TEXT}
    preview = client.post("/api/v1/exports/preview/", body, "application/json").json()
    assert counts(preview["template_check"]) == {"call_text_lost": 3}
    assert preview["template_check"]["findings"][0]["effect"] == "lost"
    plain = client.post("/api/v1/exports/", base, "application/json").json()
    assert plain["template_check"] is None
    checked = client.post(f"/api/v1/exports/{plain['id']}/check-template/", {"template": ONE_CALL}, "application/json")
    assert counts(checked.json()) == {"raised": 2}
    assert checked.json()["form"]["options"] == {"parallel_calls": "split"}
    refused = client.post(f"/api/v1/exports/{plain['id']}/check-template/", {}, "application/json")
    assert refused.status_code == 400
    assert "tokenizer" in refused.text
    export, found = written(collection)
    assert client.get(f"/api/v1/exports/{export.pk}/").json()["template_check"] == found


@pytest.mark.parametrize(
    ("order", "named"),
    [
        ({"format": "trl_sft"}, ""),
        ({"format": "trl_sft", "options": {"images": "column"}}, "images"),
        ({"format": "trl_sft_tokens"}, "token IDs"),
        ({"format": "llama_factory_sft"}, "Qwen: parallel calls in one turn"),
        ({"format": "llama_factory_kto", "options": {"family": "gpt_oss"}}, "gpt-oss: one call per turn, no reasoning"),
        ({"format": "llama_factory_dpo", "options": {"family": "mistral"}}, "Mistral: one call per turn, no text"),
    ],
)
def test_content_that_no_check_covers_is_named(collection, order, named):
    client, made = client_of(Role.ADMIN), {**order, "collection": collection.pk}
    format = FORMATS[order["format"]]
    assert (named in find_unchecked(format, Options(**order.get("options", {})))) is True
    if format.row_kind == "preferences":
        return
    preview = client.post("/api/v1/exports/preview/", made, "application/json").json()
    row = client.post("/api/v1/exports/", made, "application/json").json()
    export = write_export(export=Export.objects.get(pk=row["id"]))
    page = signed_in().get(f"/exports/{export.pk}/").text
    told = [preview["not_checked"], row["not_checked"], export.manifest["not_checked"]]
    assert all(named in one and bool(one) == bool(named) for one in told)
    assert ("data-not-checked" in page) == bool(named)


def test_viewers_may_not_check(collection):
    export, _ = written(collection)
    response = client_of(Role.VIEWER).post(f"/api/v1/exports/{export.pk}/check-template/", {"template": EXACT})
    assert response.status_code == 403


def test_pages_show_the_report_and_repeat_the_settings(collection, settings, tmp_path):
    (tmp_path / "family.jinja").write_text(ONE_CALL)
    settings.TOKENIZERS = [str(tmp_path)]
    client, named = signed_in(), str(tmp_path / "family.jinja")
    form = {"format": "trl_sft", "collection": collection.pk, "tokenizer": named, "misfits": "dropped"}
    page = client.post("/exports/new/", {**form, "preview": "1"}).text
    assert 'data-finding="raised"' in page
    assert "parallel_calls=split" in page
    client.post("/exports/new/", form)
    export = write_export(export=Export.objects.latest("pk"))
    page = client.get(f"/exports/{export.pk}/").text
    assert 'data-finding="raised"' in page
    assert 'data-reason="template_raises"' in page
    again = client.get("/exports/new/", {"format": "trl_sft", "collection": collection.pk, "again": export.pk}).text
    assert f'value="{named}"' in again
    assert '<option value="dropped" selected>Leave out' in again
    assert "tokenizer" not in client.get("/exports/new/", {"format": "nemo_gym_rollouts"}).text


def test_finding_without_a_rollout_names_its_row(collection):
    _, found = written(collection, format="openai_sft", template=NO_TEXT)
    assert found["findings"][0]["example"].startswith("row ")
