"""Pushes with the real package to a stand-in for the Hugging Face Hub (tests/tracking/fake_hub.py).

Without the environment of `make test-tracking` every test that pushes is skipped by name.
"""

import json
from pathlib import Path

import pytest
from django.utils import timezone

from apps.accounts.models import AuditEntry
from apps.exports.export_jobs import write_export
from apps.exports.export_orders import ExportOrder, queue_export
from apps.exports.models import Export
from apps.tracking import hub_pushes
from apps.tracking.hub_pushes import PushRefused, PushSpec, push_exports, queue_push
from apps.tracking.models import HubPush
from tests.tracking.fake_hub import TOKEN, Hub, serve_hub
from tests.tracking.site_of_trackers import IS_BUILT, make_finished

pytestmark = pytest.mark.django_db(transaction=True)
with_package = [
    pytest.mark.slow,
    pytest.mark.skipif(not IS_BUILT, reason="SKIPPED by name: the Hugging Face Hub: make test-tracking"),
]


@pytest.fixture
def hub(settings):
    with serve_hub() as served:
        settings.HUB_URL = served.address
        yield served


@pytest.fixture
def export(settings, tmp_path) -> Export:
    settings.EXPORTS_DIR = tmp_path / "exports"
    settings.EXPORTS_DIR.mkdir()
    return write_export(export=queue_export(ExportOrder(format="trl_sft", collection=make_finished())))


def push(export: Export, **fields: object) -> HubPush:
    given = {"export": export, "repository": "my-org/rollouts", "token": TOKEN, **fields}
    return queue_push(PushSpec(**given))  # type: ignore[arg-type]


def deliver(queued: HubPush) -> HubPush:
    HubPush.objects.filter(state="pending").update(next_attempt_at=timezone.now())
    assert push_exports()
    queued.refresh_from_db()
    return queued


class TestWithThePackage:
    pytestmark = with_package

    def test_a_push_has_all_files_in_one_private_commit(self, hub: Hub, export: Export):
        done = deliver(push(export))
        assert (done.state, done.error, done.token_encrypted) == ("pushed", "", "")
        assert (done.url, [done.commit]) == (f"{hub.address}/datasets/my-org/rollouts", hub.commits)
        assert hub.private == {"my-org/rollouts": True}
        files = hub.files["my-org/rollouts"]
        assert files == {path.name: path.read_bytes() for path in Path(export.path).iterdir()}
        assert {"README.md", "manifest.json", "train.jsonl"} <= set(files)
        assert json.loads(files["manifest.json"])["rows"] == export.rows

    def test_a_repeated_push_makes_no_second_commit(self, hub: Hub, export: Export, monkeypatch):
        queued = push(export)
        with monkeypatch.context() as patch:
            # The worker dies after the commit.
            patch.setattr(hub_pushes, "store_success", lambda *_: None)
            assert deliver(queued).state == "pending"
        done = deliver(queued)
        assert (done.state, len(hub.commits), done.attempts) == ("pushed", 1, 2)

    def test_an_invalid_token_ends_the_push_and_is_shown_nowhere(self, hub: Hub, export: Export):
        secret = "hf_" + "b" * 34
        done = deliver(push(export, token=secret))
        assert (done.state, done.token_encrypted) == ("failed", "")
        assert "401" in done.error
        assert secret not in done.error
        assert secret not in str(list(AuditEntry.objects.values()))

    def test_a_private_push_does_not_publish_to_a_public_repository(self, hub: Hub, export: Export):
        hub.private["my-org/rollouts"], hub.files["my-org/rollouts"] = False, {}
        done = deliver(push(export))
        assert (done.state, hub.commits) == ("failed", []), done.error
        assert deliver(push(export, private=False)).state == "pushed"

    def test_a_hub_that_is_down_is_asked_again(self, hub: Hub, export: Export, settings):
        queued = push(export)
        settings.HUB_URL = "http://127.0.0.1:9"
        assert deliver(queued).state == "pending"
        assert queued.error
        settings.HUB_URL = hub.address
        assert deliver(queued).state == "pushed"


@pytest.mark.parametrize(
    ("fields", "argument"), [({"repository": "rollouts"}, "repository"), ({"repository": "a/../b"}, "repository")]
)
def test_an_impossible_push_names_the_field(export: Export, fields: dict[str, str], argument: str):
    with pytest.raises(PushRefused) as refused:
        push(export, **fields)
    assert refused.value.argument == argument
    assert not HubPush.objects.exists()


def test_only_a_ready_export_is_pushed(export: Export):
    Export.objects.update(state="failed")
    export.refresh_from_db()
    with pytest.raises(PushRefused) as refused:
        push(export)
    assert refused.value.argument == "export"


def test_the_token_is_encrypted_while_the_push_waits(export: Export):
    assert TOKEN not in push(export).token_encrypted


def test_a_missing_package_is_named_with_its_command(export: Export, settings, hub: Hub):
    settings.TRACKING_PYTHON = ""
    done = deliver(push(export))
    assert done.state == "failed"
    assert "pip install huggingface-hub" in done.error
