"""Every page of the dashboard, as an admin and as a viewer, under a strict Content-Security-Policy."""

import re
from pathlib import Path

import pytest
from django.db import connection
from django.test import Client
from django.urls import URLPattern, reverse

from apps.accounts.api_keys import create_api_key
from apps.accounts.invitations import create_invitation
from apps.accounts.models import User
from apps.accounts.sign_in import create_sign_in_link
from apps.dashboard.urls import urlpatterns
from apps.exports.models import Export
from apps.pairs.models import PairSet, PreferencePair
from apps.rollouts.models import CollectionDeletion, Recheck, Reverification
from apps.tasks.models import Deletion, Upload
from tests.api.rows import make_scan, make_subscription, make_suite, make_trace_destination, make_tracked_run
from tests.dashboard.markup import faults, read
from tests.factories import make_agent, make_collection, make_environment, make_policy_model, make_rollout
from tests.reviews.queues import make_queue, make_rubric

# Not pages: files, and the way to the identity provider and back.
DOWNLOADS = {
    "oidc_start",
    "oidc_callback",
    "upload_rejected",
    "export_download",
    "export_file",
    "export_manifest",
    "rollout_raw",
    "collection_figure",
    "collection_changes_file",
    "collection_matrix_file",
}
DOWNLOADS |= {
    "rollout_file",
    "rollout_text",
    "rollout_image",
    "stored_image",
    "audit_export",
    "review_text",
    "queue_item_text",
}


@pytest.fixture
def samples(admin: User) -> dict[str, object]:
    """An object for every placeholder of an address."""
    collection = make_collection(agent=make_agent(slug="it"), policy_model=make_policy_model(slug="it"), total=2)
    chosen, rejected = make_rollout(collection, reward=1.0), make_rollout(collection, reward=0.0)
    pair_set = PairSet.objects.create(collection=collection, pair_count=1)
    pair = PreferencePair.objects.create(
        pair_set=pair_set, task=chosen.task, chosen=chosen, rejected=rejected, margin=1.0
    )
    export = Export.objects.create(format="trl_sft", collection=collection, created_by=admin)
    make_environment(slug="it")
    upload = Upload.objects.create(
        dataset=collection.dataset, state=Upload.State.REJECTED, errors=[{"line": 1, "code": "x", "message": "y"}]
    )
    queue = make_queue(pairs=1)
    create_api_key(user=admin, name="key", scopes=["admin"])
    return {
        "dataset": collection.dataset.slug,
        "environment": "it",
        "verifier": "numeric",
        "model": "it",
        "agent": "it",
        "upload": upload.pk,
        "deletion": Deletion.objects.create(name="sums@v1", whole=False, total=5, deleted=2, state="deleting").pk,
        "collection_deletion": CollectionDeletion.objects.create(
            name="#1 sums", total=5, deleted=2, state="deleting"
        ).pk,
        "task": chosen.task_id,
        "collection": collection.pk,
        "rollout": chosen.pk,
        "other_rollout": rejected.pk,
        "other_collection": make_collection(dataset=collection.dataset).pk,
        "rubric": make_rubric().slug,
        "queue": queue.pk,
        "queue_item": queue.items.get().pk,
        "pair": pair.pk,
        "pair_set": pair_set.pk,
        "export": export.pk,
        "recheck": Recheck.objects.create(collection=collection, rules=1, total=2).pk,
        "reverification": Reverification.objects.create(collection=collection, total=2).pk,
        "scan": make_scan().pk,
        "alert": make_subscription().pk,
        "trace": make_trace_destination().pk,
        "tracker": make_tracked_run(collection=collection).tracker_id,
        "suite": make_suite().slug,
        "person": admin.pk,
        "sign": create_sign_in_link(user=admin),
        "invitation": create_invitation(role="engineer", by=admin)[1],
    }


def _address(pattern: URLPattern, samples: dict[str, object]) -> str:
    names = list(pattern.pattern.converters)
    noun = str(pattern.name).split("_")[0]
    if str(pattern.name).startswith("pair_set"):
        noun = "pair_set"
    if str(pattern.name) == "queue_item":
        noun = "queue_item"
    if str(pattern.name).startswith("collection_deletion"):
        noun = "collection_deletion"
    address = reverse(f"dashboard:{pattern.name}", args=[samples[noun] for _ in names])
    queries = {
        "rollout_compare": f"?r={samples['rollout']},{samples['other_rollout']}",
        "collection_compare": f"?a={samples['collection']}&b={samples['other_collection']}",
        "collection_changes": f"?a={samples['collection']}&b={samples['other_collection']}",
    }
    return address + queries.get(str(pattern.name), "")


def _pages() -> list[URLPattern]:
    return [
        pattern for pattern in urlpatterns if "GET" in pattern.callback.permissions and pattern.name not in DOWNLOADS
    ]


@pytest.mark.parametrize("pattern", _pages(), ids=lambda pattern: pattern.name)
def test_a_page_holds_nothing_that_a_strict_policy_refuses(
    admin_pages: Client, samples: dict[str, object], pattern: URLPattern
):
    reply = admin_pages.get(_address(pattern, samples), follow=True)
    assert reply.status_code == 200
    if not reply["Content-Type"].startswith("text/html"):
        return
    assert faults(reply.text) == []
    page = read(reply.text)
    assert len(page.all("h1")) == 1
    assert len(page.all("main")) == 1
    policy = reply["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert page.all("body")[0].attributes["hx-headers"].startswith('{"X-CSRFToken": "')


def test_the_pages_before_signing_in_keep_the_same_policy(client: Client, samples: dict[str, object]):
    for address in ("/sign-in/", f"/sign-in/{samples['sign']}/", f"/invitations/{samples['invitation']}/"):
        reply = client.get(address)
        assert reply.status_code == 200
        assert faults(reply.text) == []
        assert "default-src 'none'" in reply["Content-Security-Policy"]


def test_the_checker_sees_what_it_looks_for():
    bad = (
        '<p style="x"></p><a onclick="x"></a><script>x</script><style></style><a hx-get="/x">x</a>'
        '<form hx-post="/x"></form><p id="a"></p><p id="a"></p><a href="javascript:x">x</a><input name="q" id="q">'
        '<p hx-trigger="click[x]"></p><p hx-on:click="x"></p>'
    )
    assert len(faults(bad)) == 11


def test_templates_never_mark_text_as_safe():
    root = Path(__file__).parents[2]
    marked = [
        path.name
        for path in [*root.glob("templates/**/*.html"), *root.glob("apps/dashboard/**/*.py")]
        if any(word in path.read_text() for word in ("|safe", "autoescape off", "mark_safe"))
    ]
    assert marked == []


def test_reading_a_page_writes_nothing(admin_pages: Client, samples: dict[str, object]):
    """No state changes on GET: link previews and prefetching must be harmless."""
    admin_pages.get("/")
    written: list[str] = []

    def watch(execute, sql, params, many, context):
        if re.match(r"\s*(INSERT|UPDATE|DELETE|REPLACE)", sql):
            written.append(sql[:80])
        return execute(sql, params, many, context)

    with connection.execute_wrapper(watch):
        for pattern in _pages():
            assert admin_pages.get(_address(pattern, samples)).status_code in {200, 302}
    assert written == []
