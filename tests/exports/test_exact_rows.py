"""Exports have prompts and verifier fields exactly as uploaded, and mask suspected credentials on request."""

from pathlib import Path

import orjson
import pytest

from apps.exports.export_jobs import write_export
from apps.exports.export_orders import ExportOrder, queue_export
from apps.gym.traces.events import Prompt
from apps.rollouts.imports.import_spec import ImportOrder
from apps.rollouts.imports.rollout_import import import_rollouts
from apps.rollouts.streams.rollout_stream import describe_rollout
from tests.dashboard.pages import signed_in
from tests.factories import make_agent, make_dataset
from tests.rollouts.stored import as_file, stored_row

pytestmark = pytest.mark.django_db

SECRET = "zq81-ppwl-7742-kk"
PROMPT = f'Complete: client = OpenAI(api_key="{SECRET}", base_url=URL)'


@pytest.fixture
def collection(settings, tmp_path):
    settings.EXPORTS_DIR = tmp_path
    row = stored_row(PROMPT, "4", verifier_metadata={"api_key": SECRET})
    return import_rollouts(
        ImportOrder(dataset=make_dataset(rows=[]), agent=make_agent()), files=[as_file(row)]
    ).collection


def written(collection, format, **options):
    export = write_export(export=queue_export(ExportOrder(format=format, collection=collection, **options)))
    assert (export.state, export.rows) == ("ready", 1)
    return export, (Path(export.path) / export.files[0]["name"]).read_text()


def test_a_trace_masks_the_prompt_without_flagging_the_rollout(collection):
    rollout = collection.rollouts.get()
    prompt = next(event for event in rollout.graph().main if isinstance(event, Prompt))
    assert (SECRET in str(prompt), "[REDACTED:named]" in str(prompt)) == (False, True)
    assert (rollout.flagged, rollout.redactions) == (False, {})
    assert rollout.task.row["verifier_metadata"] == {"api_key": SECRET}
    page = signed_in().get(f"/tasks/{rollout.task_id}/").text
    assert (SECRET in page, "[REDACTED:named]" in page) == (False, True)


@pytest.mark.parametrize("format", ["trl_sft", "nemo_gym_rollouts"])
def test_rows_are_exact_with_a_warning_and_masked_on_request(collection, format):
    exact, text = written(collection, format)
    masked, clean = written(collection, format, mask_credentials=True)
    assert [orjson.dumps(PROMPT).decode() in one for one in (text, clean)] == [True, False]
    assert (SECRET in clean, "[REDACTED:named]" in clean, "[REDACTED:" in text) == (False, True, False)
    assert [one.manifest["credentials"]["masked"] for one in (exact, masked)] == [False, True]
    page = signed_in().get(f"/exports/{exact.pk}/").text
    assert "1 row has suspected credentials (by field name). They are exported unchanged." in page
    order = {"format": format, "collection": collection.pk, "preview": "1", "min_reward": ""}
    preview = signed_in().post("/exports/new/", order).text
    assert ("1 row has suspected credentials" in preview, SECRET in preview) == (True, False)


def test_a_stream_gives_a_trainer_the_prompt_as_uploaded(collection):
    rollout = collection.rollouts.get()
    described = describe_rollout(rollout, rollout.graph(tokens=True))
    assert described["prompt"][0]["content"] == PROMPT
