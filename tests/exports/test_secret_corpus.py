"""No credential that a stored rollout, a chat log or a reviewer brings is anywhere afterwards: not in a column of a
table, a line of a log, a page, an answer of the API, an exported file or its manifest, nor in a file that was kept.

The suite runs this on the database that it is given. `tests/faults/test_secrets_on_postgres.py` runs it on PostgreSQL.
"""

import logging
from io import BytesIO
from pathlib import Path

import orjson
import pytest
from django.core.management import call_command

from apps.exports.export_jobs import write_export
from apps.exports.export_orders import ExportOrder, queue_export
from apps.gym.exporters.registry import FORMATS
from apps.gym.pairs.pair_rule import Rule
from apps.gym.redaction.redactor import count_marks
from apps.pairs.pair_sets import PairOrder, build_pairs
from apps.policies.installation_redactor import forget_redactor
from apps.policies.models import PolicyModel
from apps.policies.policy_model_changes import save_policy_model
from apps.reviews.comments.commenting import add_comment
from apps.rollouts.imports.import_spec import ImportOrder
from apps.rollouts.imports.rollout_import import import_rollouts
from apps.rollouts.imports.task_matching import ImportRefused
from apps.rollouts.models import Rollout
from apps.tasks.upload_jobs import upload_file
from gymweb.loglines import LineFormatter
from tests.factories import make_agent, make_dataset, make_row, make_user
from tests.rollouts.stored import as_file, stored_row
from tests.rollouts.test_redaction import OUR_KEY, corpus, everything_stored, leaked

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def installation(settings, tmp_path):
    """Folders of its own, and a model whose key is one of the secrets."""
    for name in ("EXPORTS_DIR", "UPLOADS_DIR", "FILE_UPLOAD_TEMP_DIR"):
        folder = tmp_path / name.lower()
        folder.mkdir()
        setattr(settings, name, folder)
    model = PolicyModel(slug="ours", name="Ours", base_url="http://models.example/v1", model_name="m")
    save_policy_model(policy_model=model, api_key=OUR_KEY, user=None)
    forget_redactor()
    yield
    forget_redactor()


def said_in_every_format():
    """The corpus in prompts, thoughts, arguments, outputs, errors, metadata and names of tools, in three formats."""
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "read", "arguments": orjson.dumps({"x": corpus()}).decode()},
    }
    asked = [{"role": "user", "content": corpus()}]
    told = [
        {"role": "assistant", "content": corpus(), "reasoning_content": corpus(), "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": corpus()},
        {"role": "assistant", "content": corpus()},
    ]
    rows = []
    for reward in (1.0, 0.0):
        rows += [
            stored_row(corpus(), f"{reward} {corpus()}", reward, note=corpus(), explanation=corpus()),
            {"messages": [*asked, *told], "reward": reward, "metadata": {"said": corpus()}},
            {
                "prompt": asked,
                "completion": told,
                "reward": reward,
                "metrics": {"m": 0.5},
                "info": {"deep": [corpus()]},
            },
        ]
    broken = {"error": "ToolError", "message": corpus(), "error_chain_repr": "", "error_chain_str": ""}
    return [*rows, {"prompt": asked, "completion": told, "reward": 0.0, "error": broken}]


def kept_files(folder: Path):
    return "\n".join(path.read_bytes().decode("latin-1") for path in sorted(folder.rglob("*")) if path.is_file())


def test_no_credential_stays_in_database_log_page_answer_export_or_file(client, caplog, tmp_path):
    caplog.set_level(logging.DEBUG)
    user = make_user()
    dataset, agent = make_dataset(rows=[]), make_agent()
    collection = import_rollouts(
        ImportOrder(dataset=dataset, agent=agent), files=[as_file(*said_in_every_format())]
    ).collection
    upload_file(dataset=dataset, stream=BytesIO(orjson.dumps(make_row(corpus(), "4"))), filename="tasks.jsonl")
    upload_file(dataset=dataset, stream=BytesIO(orjson.dumps({"note": corpus()})), filename="refused.jsonl")
    with pytest.raises(ImportRefused):
        import_rollouts(ImportOrder(dataset=dataset, agent=agent), files=[as_file({"messages": [{"role": corpus()}]})])
    rollouts = list(Rollout.objects.filter(collection=collection))
    assert [rollout.flagged for rollout in rollouts] == [True] * 7
    add_comment(rollout=rollouts[0], text=f"Look: {corpus()}", author=user)

    stored = everything_stored()
    assert leaked(stored) == []
    assert {"jwt", "own_secret", "named", "private_key", "aws_key"} <= set(count_marks(stored))

    pairs = build_pairs(PairOrder(collection=collection, rule=Rule(include_redacted=True)))
    for format in ("trl_sft", "trl_dpo", "nemo_gym_rollouts"):
        pair_set = pairs if FORMATS[format].row_kind == "preferences" else None
        asked = {"format": format, "collection": collection, "pair_set": pair_set, "mask_credentials": True}
        export = write_export(
            export=queue_export(ExportOrder(**asked, filters={"include_flagged": True, "min_reward": None}))
        )
        assert (export.state, export.rows > 0) == ("ready", True), export.message
    written = kept_files(tmp_path)
    assert leaked(written) == []
    assert "[REDACTED:jwt]" in written

    client.force_login(user)
    seen = 0
    for address in _addresses(collection, rollouts, dataset):
        answer = client.get(address)
        assert (answer.status_code, leaked(answer.content.decode())) == (200, []), address
        seen += answer.content.count(b"[REDACTED:")
    assert seen > 100

    formatted = "\n".join(LineFormatter("%(message)s").format(record) for record in caplog.records)
    assert leaked(formatted) == []


def _addresses(collection, rollouts, dataset):
    yield f"/collections/{collection.pk}/"
    yield "/rollouts/"
    yield "/exports/"
    yield f"/datasets/{dataset.slug}/"
    yield f"/api/v1/collections/{collection.pk}/"
    yield f"/api/v1/tasks/?dataset={dataset.slug}"
    yield "/api/v1/comments/"
    for rollout in rollouts:
        yield f"/rollouts/{rollout.pk}/"
        yield f"/tasks/{rollout.task_id}/"
        yield f"/api/v1/rollouts/{rollout.pk}/"
        yield f"/api/v1/rollouts/{rollout.pk}/trace/"


def test_partial_imports_and_exports_print_no_secret(tmp_path, capsys):
    rows = [*said_in_every_format(), {"messages": [{"role": corpus()}]}]
    dataset, agent = make_dataset(rows=[]), make_agent()
    imported = import_rollouts(ImportOrder(dataset=dataset, agent=agent, on_error="skip"), files=[as_file(*rows)])
    assert (imported.refused, leaked("".join(map(str, imported.errors)))) == (1, [])
    collection = imported.collection.pk
    out = tmp_path / "out.jsonl"
    call_command(
        "export",
        "--collection",
        str(collection),
        "--format",
        "nemo_gym_rollouts",
        "--out",
        str(out),
        "--include-flagged",
        "--mask-credentials",
    )
    assert leaked(kept_files(tmp_path)) == []
    printed = capsys.readouterr()
    assert "considered 7" in printed.out
    assert leaked(printed.out + printed.err) == []
