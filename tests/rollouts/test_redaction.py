"""No credential that a model, a file or an endpoint says is stored: in no column of any table, no log line, no page."""

import asyncio
import logging
from io import BytesIO, StringIO

import orjson
import pytest
from aiohttp import web
from asgiref.sync import async_to_sync
from django.apps import apps
from django.db import connection
from django.test import Client

from apps.environments.models import Environment
from apps.gym.redaction.redactor import Redactor
from apps.gym.traces.events import ModelCall, Prompt, ToolResult
from apps.policies.installation_redactor import forget_redactor, fresh_redactor
from apps.policies.models import PolicyModel, Provider, RedactionPattern
from apps.policies.policy_model_changes import save_policy_model
from apps.rollouts.engine.trace_redaction import clean_end, clean_event
from apps.rollouts.imports.import_spec import ImportOrder
from apps.rollouts.imports.rollout_import import import_rollouts
from apps.rollouts.models import Rollout
from apps.rollouts.plans.plan_spec import Plan
from apps.rollouts.plans.planning import plan_collection
from apps.rollouts.steering.local_worker import finish_collection
from apps.tasks.upload_jobs import upload_file
from gymweb.loglines import LineFormatter
from tests.factories import make_agent, make_dataset, make_row, make_user
from tests.gym.redaction.test_redacting import SECRETS
from tests.rollouts.stored import as_file, stored_row
from tests.rollouts.work import end, serve_chat

OUR_KEY = "our-own-model-key-nobody-else-has"
ALL = {**SECRETS, "named": "swordfish-of-the-corpus", "our key": OUR_KEY}


@pytest.fixture(autouse=True)
def read_anew(settings):
    settings.WORKER_BACKGROUND_JOBS = []
    settings.OUTBOUND_ALLOW = ["127.0.0.1"]
    forget_redactor()
    yield
    forget_redactor()


def corpus():
    """A text with all of them."""
    lines = [f"{name}:: {secret}" for name, secret in ALL.items() if name != "named"]
    return "\n".join([*lines, '{"password": "' + ALL["named"] + '"}'])


def everything_stored():
    """Every value of every row of every table, as one text, without the task rows, which are stored as uploaded."""
    values = []
    for model in apps.get_models():
        names = [field.attname for field in model._meta.concrete_fields if field.attname != "row_json"]
        for row in model._default_manager.values_list(*names):
            values += [bytes(one).decode("latin-1") if isinstance(one, bytes | memoryview) else str(one) for one in row]
    return "\n".join(values)


def leaked(text):
    """The names of those that stand there, as they are or as JSON writes them."""
    return [name for name, one in ALL.items() if one in text or orjson.dumps(one)[1:-1].decode() in text]


def test_the_search_of_this_file_finds_what_it_looks_for():
    assert leaked(corpus()) == list(ALL)


@pytest.mark.usefixtures("migrated")
def test_no_credential_that_a_model_says_is_stored_logged_or_shown(caplog):
    caplog.set_level(logging.INFO)

    async def answer(request):
        if "fail" in await request.text():
            return web.json_response({"error": {"message": corpus()}}, status=400)
        said = {"role": "assistant", "content": corpus()}
        return web.json_response({"choices": [{"message": said, "finish_reason": "stop"}], "model": "m"})

    async def collect():
        runner, port = await serve_chat(answer)
        try:
            return await asyncio.to_thread(_collect, port)
        finally:
            await runner.cleanup()

    collection = async_to_sync(collect)()
    stored = everything_stored()
    assert leaked(stored) == []
    assert "[REDACTED:own_secret]" in stored
    answered, failed = Rollout.objects.filter(collection=collection).order_by("task__index")
    assert (answered.status, failed.status) == ("completed", "failed")
    assert (answered.flagged, failed.flagged) == (True, True)
    assert {"private_key", "jwt", "api_key", "named"} <= set(answered.redactions), answered.redactions
    assert "[REDACTED:" in failed.error_message
    formatted = "\n".join(LineFormatter("%(message)s").format(record) for record in caplog.records)
    assert leaked(formatted) == []
    client = Client()
    client.force_login(make_user())
    for rollout in (answered, failed):
        page = client.get(f"/rollouts/{rollout.pk}/")
        assert (page.status_code, leaked(page.content.decode())) == (200, [])


def _collect(port):
    try:
        return _collect_here(port)
    finally:
        # The thread keeps a connection of its own, which would keep the test database from being dropped.
        connection.close()


def _collect_here(port):
    model = PolicyModel(
        slug="leaky",
        name="Leaky",
        provider=Provider.COMPATIBLE,
        base_url=f"http://127.0.0.1:{port}/v1",
        model_name="m",
        max_tries=1,
    )
    save_policy_model(policy_model=model, api_key=OUR_KEY, user=None)
    dataset = make_dataset([], environment=Environment.objects.get(slug="calculator"))
    rows = [make_row(corpus(), "4", note=corpus()), make_row("fail " + corpus(), "4")]
    upload = upload_file(dataset=dataset, stream=BytesIO(b"\n".join(map(orjson.dumps, rows))), filename="tasks.jsonl")
    assert (upload.state, upload.counts["credentials"]) == ("ready", 2)
    plan = plan_collection(Plan(dataset=dataset, agent=make_agent(), policy_model=model, repeats=1, max_attempts=1))
    return async_to_sync(finish_collection)(plan, progress=lambda _: None)


@pytest.mark.django_db
def test_no_credential_of_an_imported_rollout_is_stored():
    save_policy_model(
        policy_model=PolicyModel(slug="ours", name="Ours", base_url="http://127.0.0.1:1/v1", model_name="m"),
        api_key=OUR_KEY,
        user=None,
    )
    forget_redactor()
    row = stored_row(corpus(), corpus())
    imported = import_rollouts(ImportOrder(dataset=make_dataset(rows=[]), agent=make_agent()), files=[as_file(row)])
    assert leaked(everything_stored()) == []
    rollout = Rollout.objects.get(collection=imported.collection)
    assert (rollout.flagged, rollout.redactions["jwt"] >= 1) == (True, True)


@pytest.mark.django_db
def test_a_row_that_is_refused_is_kept_without_its_credentials(settings, tmp_path):
    dataset = make_dataset([])
    lines = orjson.dumps({"note": corpus()}) + b"\n" + orjson.dumps(make_row())
    upload = upload_file(dataset=dataset, stream=BytesIO(lines), filename="tasks.jsonl")
    assert upload.state == "rejected"
    assert leaked(everything_stored()) == []


def test_log_lines_and_their_tracebacks_are_without_credentials():
    stream = StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LineFormatter("%(message)s"))
    logger = logging.Logger("corpus")
    logger.addHandler(handler)
    try:
        raise ValueError("refused: " + SECRETS["github"])
    except ValueError:
        logger.exception("a call with %s failed", SECRETS["openai"])
    assert leaked(stream.getvalue()) == []
    assert stream.getvalue().count("[REDACTED:") == 2


def test_token_ids_end_with_the_first_credential_since_they_spell_it():
    turns = [
        ModelCall(seen=0, items=[], tokens=b"first"),
        ToolResult(call_id="c", name="read", output=SECRETS["github"]),
        ModelCall(seen=1, items=[], tokens=b"second"),
    ]
    counts, stored = None, []
    for turn in turns:
        payload, tokens, counts = clean_event(turn, Redactor(), counts)
        stored.append((tokens, orjson.loads(payload).get("tokens_note", "")))
    assert stored == [(b"first", ""), (None, ""), (None, "redacted")]
    assert counts == {"github_token": 1}


@pytest.mark.django_db
def test_a_name_that_people_added_holds_within_a_few_seconds():
    RedactionPattern.objects.create(kind="prefix", text="corp.", least=6)
    forget_redactor()
    assert fresh_redactor().redact_text("corp.abc123") == ("[REDACTED:pattern]", {"pattern": 1})


def test_an_end_is_cleaned_and_flagged_even_where_no_event_was():
    class Claim:
        rollout_id, lease, collection_id, attempt = 1, 2, 3, 1

    failed = end(Claim, "failed", error_message="refused " + SECRETS["github"])
    clean = clean_end(failed, Redactor(), {})
    assert clean.error_message == "refused [REDACTED:github_token]"
    assert (clean.redactions, clean.flagged) == ({"github_token": 1}, True)
    assert clean_end(end(Claim), Redactor(), {}) == end(Claim)


def test_a_credential_in_the_prompt_leaves_the_token_ids_of_the_replies():
    name = "pem"
    asked = [{"role": "user", "content": f"Is {ALL[name]} safe?"}]
    redactor = Redactor()
    payload, _, counts = clean_event(Prompt(items=asked), redactor, None)
    assert (ALL[name] in payload, "[REDACTED:" in payload, counts) == (False, True, None)
    call = ModelCall(seen=1, items=[{"role": "assistant", "content": "Done."}], tokens=b"packed")
    _, tokens, counts = clean_event(call, redactor, counts)
    assert (tokens, counts) == (b"packed", None)
