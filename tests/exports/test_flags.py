"""Rollouts that had credentials in them stay out of exports until somebody has looked, or says to take them."""

import json
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from apps.accounts.models import AuditEntry, Role
from apps.exports.export_jobs import write_export
from apps.exports.export_orders import ExportOrder, ExportRefused, queue_export
from apps.gym.pairs.pair_rule import Rule
from apps.pairs.pair_sets import PairOrder, build_pairs
from apps.rollouts.models import Rollout
from apps.rollouts.steering.controls import resolve_flag, resolve_flags
from tests.factories import make_collection, make_rollout, make_trace, make_user

pytestmark = pytest.mark.django_db
FORMAT = "nemo_gym_rollouts"


@pytest.fixture
def collection(settings, tmp_path):
    settings.EXPORTS_DIR = tmp_path
    made = make_collection()
    task = made.version.tasks.first()
    make_rollout(made, task=task, reward=1.0, trace=make_trace("4", 1.0))
    make_rollout(
        made, task=task, reward=0.0, trace=make_trace("5", 0.0), redactions={"jwt": 2, "named": 1}, flagged=True
    )
    return made


def written(collection, **given):
    export = write_export(export=queue_export(ExportOrder(format=FORMAT, collection=collection, **given)))
    return export, [json.loads(line) for line in (Path(export.path) / "train.jsonl").read_text().splitlines()]


def test_an_export_with_a_flagged_rollout_is_refused_and_says_what_to_do(collection):
    with pytest.raises(ExportRefused) as refusal:
        queue_export(ExportOrder(format=FORMAT, collection=collection))
    assert refusal.value.argument == "filters"
    assert ("1 rollout" in str(refusal.value), "include_flagged" in str(refusal.value)) == (True, True)


def test_an_export_takes_them_where_it_is_told_to(collection):
    export, rows = written(collection, filters={"include_flagged": True})
    assert (export.rows, len(rows), export.filters["include_flagged"]) == (2, 2, True)


def test_a_resolved_flag_lets_the_rollout_in_and_keeps_its_counts(collection):
    user, flagged = make_user(), Rollout.objects.get(flagged=True)
    for _ in range(2):
        resolve_flag(rollout=flagged, user=user)
    assert (flagged.flagged, flagged.redactions) == (False, {"jwt": 2, "named": 1})
    assert [entry.action for entry in AuditEntry.objects.filter(user=user)] == ["rollout.flag_resolved"]
    assert written(collection)[0].rows == 2


def test_the_flags_of_a_collection_are_resolved_together(collection):
    assert resolve_flags(collection=collection) == 1
    assert resolve_flags(collection=collection) == 0
    assert written(collection)[0].rows == 2


def test_a_rollout_that_is_flagged_after_the_export_was_asked_for_is_left_out(collection):
    resolve_flags(collection=collection)
    export = queue_export(ExportOrder(format=FORMAT, collection=collection))
    Rollout.objects.filter(reward=0.0).update(flagged=True)
    write_export(export=export)
    assert (export.rows, export.manifest["counts"]["dropped"]) == (1, {"flagged": 1})


def test_pairs_are_refused_where_one_of_their_rollouts_is_flagged(collection):
    pairs = build_pairs(PairOrder(collection=collection, rule=Rule(include_redacted=True)))
    with pytest.raises(ExportRefused, match="redactions in 1 rollout"):
        queue_export(ExportOrder(format="trl_dpo", collection=collection, pair_set=pairs))
    export = queue_export(
        ExportOrder(format="trl_dpo", collection=collection, pair_set=pairs, filters={"include_flagged": True})
    )
    assert write_export(export=export).rows == 1


def test_the_page_shows_redactions_and_resolves_flags(collection, client):
    flagged = Rollout.objects.get(flagged=True)
    client.force_login(make_user())
    page = client.get(f"/rollouts/{flagged.pk}/").content.decode()
    assert "jwt × 2" in page
    assert "Mark redactions reviewed" in page
    assert client.post(f"/rollouts/{flagged.pk}/resolve-flag/").status_code == 302
    assert "Mark redactions reviewed" not in client.get(f"/rollouts/{flagged.pk}/").content.decode()
    client.force_login(make_user(Role.VIEWER))
    assert client.post(f"/rollouts/{flagged.pk}/resolve-flag/").status_code == 403


def test_the_form_of_an_export_says_why_and_takes_them_when_ticked(collection, client):
    client.force_login(make_user())
    form = {"format": FORMAT, "collection": collection.pk}
    refused = client.post("/exports/new/", form)
    assert (refused.status_code, "redactions in 1 rollout" in refused.content.decode()) == (422, True)
    assert client.post("/exports/new/", {**form, "include_flagged": "on"}).status_code == 302


def test_the_api_lists_flagged_rollouts_and_resolves_them(collection, client):
    client.force_login(make_user())
    found = client.get("/api/v1/rollouts/?flagged=true").json()["results"]
    assert [(one["flagged"], one["redactions"]) for one in found] == [(True, {"jwt": 2, "named": 1})]
    resolved = client.post(f"/api/v1/rollouts/{found[0]['id']}/resolve_flag/")
    assert (resolved.status_code, resolved.json()["flagged"]) == (200, False)
    assert client.get("/api/v1/rollouts/?flagged=true").json()["results"] == []


def test_the_page_of_a_collection_tells_its_flags_and_resolves_them(collection, client):
    client.force_login(make_user())
    page = client.get(f"/collections/{collection.pk}/").content.decode()
    assert "The trace of 1 rollout contained credentials" in page
    flagged = Rollout.objects.get(flagged=True)
    table = {"HX-Request": "true", "HX-Target": "rollout-table"}
    listed = client.get(f"/collections/{collection.pk}/?flagged=true", headers=table).content.decode()
    rows = [rollout.pk for rollout in Rollout.objects.all() if f"/rollouts/{rollout.pk}/" in listed]
    assert rows == [flagged.pk]
    done = client.post(f"/collections/{collection.pk}/resolve-flags/", follow=True).content.decode()
    assert ("1 rollout: redactions marked as reviewed" in done, "had credentials" in done) == (True, False)
    client.force_login(make_user(Role.VIEWER))
    assert client.post(f"/collections/{collection.pk}/resolve-flags/").status_code == 403


def test_the_command_takes_them_where_it_is_told_to(collection, tmp_path):
    arguments = ["export", "--collection", str(collection.pk), "--format", FORMAT, "--out", str(tmp_path / "out.jsonl")]
    with pytest.raises(CommandError, match="redactions in 1 rollout"):
        call_command(*arguments)
    call_command(*arguments, "--include-flagged", stdout=StringIO())
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 2
