import asyncio
import hashlib
import io
import itertools
import json
import re
import tarfile

import msgspec
import pytest
from django.urls import reverse
from django.utils.html import escape

from apps.accounts.models import AuditEntry, Role
from apps.exports.export_deletion import cancel_export
from apps.exports.export_folders import ExportFolder
from apps.exports.export_jobs import write_export
from apps.exports.export_orders import ExportOrder, prepare_export, queue_export
from apps.exports.export_preview import preview_rows
from apps.exports.models import Export
from apps.gym.exporters.protocol import NUMBERS, Options
from apps.gym.exporters.registry import FORMATS
from apps.gym.specs import spec_fields
from apps.gym.training_ledger import Trainability
from apps.pairs.models import PairSet
from apps.pairs.pair_sets import PairOrder, build_pairs
from tests.dashboard.pages import queries_with_one_and_three, signed_in
from tests.factories import make_collection, make_rollout, make_trace, make_user

pytestmark = pytest.mark.django_db
CREATE = "/exports/new/"
GOOD = {"min_reward": 0.7}
SFT, DPO = f"{CREATE}?format=trl_sft", f"{CREATE}?format=trl_dpo"


def queued_export() -> Export:
    collection = make_collection(state="completed")
    make_rollout(collection)
    return Export.objects.create(format="nemo_gym_rollouts", collection=collection)


def written_export(tmp_path) -> Export:
    return write_export(export=queued_export(), path=tmp_path / "rows.jsonl")


def url(export: Export, name: str = "export_detail") -> str:
    return reverse(f"dashboard:{name}", args=[export.pk])


def test_an_export_is_queued_for_a_worker():
    collection = make_collection(state="completed")
    client = signed_in()
    assert (
        f'<option value="{collection.pk}" selected>'
        in client.get(CREATE, {"format": "trl_sft", "collection": collection.pk}).text
    )
    done = client.post(CREATE, {"format": "trl_sft", "collection": collection.pk, "min_reward": "0.9"})
    export = Export.objects.get()
    assert (done["Location"], export.state, export.filters["min_reward"]) == (url(export), "queued", 0.9)
    page = client.get(url(export)).text
    assert 'hx-trigger="every 2s"' in page
    assert "Download" not in page


def test_an_impossible_combination_is_refused_with_its_reason():
    collection, other = make_collection(), make_collection()
    client = signed_in()
    without = client.post(CREATE, {"format": "trl_dpo", "collection": collection.pk})
    assert (without.status_code, "needs a pair set" in without.text) == (422, True)
    assert 'id="id_pair_set_error"><p>TRL DPO' in without.text
    assert f'href="/pair-sets/new/?collection={collection.pk}">Build pairs</a>' in without.text
    foreign = PairSet.objects.create(collection=other)
    mixed = client.post(CREATE, {"format": "trl_dpo", "collection": collection.pk, "pair_set": foreign.pk})
    assert (mixed.status_code, "does not belong" in mixed.text) == (422, True)
    assert Export.objects.count() == 0


def test_the_form_offers_the_pair_sets_of_the_chosen_collection_alone():
    ours, theirs = (PairSet.objects.create(collection=make_collection(), pair_count=2) for _ in range(2))
    client = signed_in()
    every = client.get(DPO).text
    assert [f'<option value="{one.pk}">{one}: 2 pairs</option>' in every for one in (ours, theirs)] == [True, True]
    chosen = client.get(
        CREATE, {"format": "trl_dpo", "collection": ours.collection_id}, headers={"HX-Request": "true"}
    ).text
    assert ("<html" in chosen, str(ours) in chosen, str(theirs) in chosen) == (False, True, False)
    nonsense = client.get(CREATE, {"format": "trl_dpo", "collection": "x"})
    assert (nonsense.status_code, str(theirs) in nonsense.text) == (200, True)


def test_the_newest_pair_set_of_a_collection_that_has_pairs_is_chosen_already():
    first = PairSet.objects.create(collection=make_collection(), pair_count=2)
    order = {"format": "trl_dpo", "collection": first.collection_id}
    client = signed_in()
    assert f'<option value="{first.pk}" selected>' in client.get(CREATE, order).text
    second = PairSet.objects.create(collection=first.collection, pair_count=2)
    PairSet.objects.create(collection=first.collection)
    assert f'<option value="{second.pk}" selected>' in client.get(CREATE, order).text
    assert f'<option value="{first.pk}" selected>' in client.get(CREATE, {**order, "pair_set": first.pk}).text


def test_collections_of_one_name_are_told_apart_by_their_numbers():
    one, other = make_collection(name="Sums"), make_collection(name="Sums")
    page = signed_in().get(SFT).text
    assert f">#{one.pk} Sums</option>" in page
    assert f">#{other.pk} Sums</option>" in page


def test_a_pair_set_without_pairs_is_refused_with_its_reason():
    empty = PairSet.objects.create(collection=make_collection())
    data = {"format": "trl_dpo", "collection": empty.collection_id, "pair_set": empty.pk}
    refused = signed_in().post(CREATE, data)
    assert (refused.status_code, "has no pairs" in refused.text, Export.objects.count()) == (422, True, 0)


def test_the_first_page_names_every_format_and_keeps_what_the_address_says():
    page = signed_in().get(CREATE, {"collection": 7}).text
    assert [slug for slug in FORMATS if f'href="{CREATE}?format={slug}&amp;collection=7"' not in page] == []


@pytest.mark.parametrize("slug", FORMATS)
def test_a_format_has_its_own_options_and_says_why_others_are_missing(slug):
    page = signed_in().get(CREATE, {"format": slug}).text
    format = FORMATS[slug]
    shown = {name for name, values in format.choices.items() if len(values) > 1 or name in NUMBERS}
    assert {name for name in format.choices if f'id="id_{name}"' in page} == shown
    for (name, _), reason in format.refused.items():
        assert name not in shown or escape(reason) in page


def test_an_option_says_what_it_is_about():
    page = signed_in().get(CREATE, {"format": "trl_grpo"}).text
    assert escape(spec_fields(Options)["opening"].option.help) in page


def test_a_preview_shows_the_first_rows_and_orders_nothing():
    collection = make_collection(state="completed")
    make_rollout(collection, trace=make_trace("<b>4</b>", 1.0))
    order = {"format": "trl_sft", "collection": collection.pk, "min_reward": "0.5", "preview": "1"}
    page = signed_in().post(CREATE, order)
    assert (page.status_code, Export.objects.count()) == (200, 0)
    assert "&lt;b&gt;4&lt;/b&gt;" in page.text
    assert "<b>4" not in page.text
    assert "Of 1 rollout, 1" in page.text
    assert "25 tokens, reported by the model" in page.text
    none = signed_in().post(CREATE, {**order, "min_reward": "5"})
    assert left_out_of(none.text) == {"below_min_reward": 1}
    assert "No rows." in none.text


def test_options_and_splits_of_the_form_reach_the_export():
    collection = make_collection(state="completed")
    order = {
        "format": "trl_sft",
        "collection": collection.pk,
        "reasoning": "inline",
        "per_task": "2",
        "encoding": "parquet",
        "validation_share": "0.1",
        "split_seed": "3",
    }
    signed_in().post(CREATE, order)
    export = Export.objects.get()
    assert (export.options["reasoning"], export.filters) == ("inline", {"per_task": 2, "reward_from": "override"})
    assert (export.encoding, export.validation_share, export.split_seed) == ("parquet", 0.1, 3)


def test_a_written_export_shows_its_manifest_and_stops_polling(tmp_path):
    export = written_export(tmp_path)
    page = signed_in().get(url(export), headers={"HX-Request": "true"})
    assert (page.status_code, "hx-trigger" in page.text, "<html" in page.text) == (286, False, False)
    assert export.sha256 in page.text
    assert "Manifest" in page.text


def test_the_page_of_an_export_counts_dropped_rows_by_reason(tmp_path):
    export = queued_export()
    make_rollout(export.collection, reward=None, status="failed", error_kind="policy_error", stop_reason="")
    make_rollout(export.collection, reward=None)
    make_rollout(export.collection, reward=None)
    page = signed_in().get(url(write_export(export=export, path=tmp_path / "made"))).text
    assert "Of 4 rollouts, 1" in page
    assert list(left_out_of(page).items()) == [("no_reward", 2), ("failed", 1)]


def left_out_of(page: str) -> dict[str, int]:
    """The numbers of the ledger on a page, by reason and in its order."""
    rows = re.findall(r'<tr data-reason="(\w+)">.*?<td class="num">([\d,]+)', page, re.DOTALL)
    return {reason: int(number.replace(",", "")) for reason, number in rows}


def test_the_page_of_an_export_of_an_earlier_version_shows_its_counts(tmp_path):
    export = written_export(tmp_path)
    del export.manifest["trainability"]
    export.manifest["counts"] |= {"considered": 3, "dropped": {"truncated": 1, "a_reason_of_old": 1}}
    export.save()
    assert left_out_of(signed_in().get(url(export)).text) == {"truncated": 1, "a_reason_of_old": 1}


def test_an_export_of_nothing_says_so_instead_of_being_ready_and_gives_its_manifest(settings, tmp_path):
    settings.EXPORTS_DIR = tmp_path
    collection = make_collection(state="completed")
    make_rollout(collection, reward=0.0)
    export = write_export(export=Export.objects.create(format="trl_sft", collection=collection, filters=GOOD))
    client = signed_in()
    for address in (url(export), reverse("dashboard:export_list")):
        page = client.get(address).text
        assert ("no rows" in page, "</span> ready" in page) == (True, False)
        assert url(export, "export_download") not in page
    page = client.get(url(export)).text
    assert left_out_of(page) == {"below_min_reward": 1}
    assert (
        f'href="/exports/new/?format=trl_sft&amp;collection={collection.pk}&amp;again={export.pk}">Change filters</a>'
        in page
    )
    assert json.loads(client.get(url(export, "export_manifest")).content)["counts"]["dropped"] == {
        "below_min_reward": 1
    }


def test_the_file_and_its_manifest_download(tmp_path):
    export = written_export(tmp_path)
    client = signed_in()
    answer = client.get(url(export, "export_download"))
    content = b"".join(answer.streaming_content) if not answer.is_async else asyncio.run(collect(answer))
    assert hashlib.sha256(content).hexdigest() == export.sha256
    assert f"gymweb-nemo_gym_rollouts-{export.pk}.jsonl" in answer["Content-Disposition"]
    manifest = client.get(url(export, "export_manifest"))
    assert manifest["Content-Disposition"].endswith('.manifest.json"')
    assert json.loads(manifest.content) == export.manifest


async def collect(answer) -> bytes:
    return b"".join([chunk async for chunk in answer.streaming_content])


def test_an_unwritten_export_cannot_be_downloaded(tmp_path):
    client, queued = signed_in(), queued_export()
    assert client.get(url(queued, "export_download")).status_code == 404
    export = written_export(tmp_path)
    (tmp_path / "rows.jsonl").unlink()
    assert client.get(url(export, "export_download")).status_code == 404


def test_a_failed_export_says_why():
    export = queued_export()
    Export.objects.update(state="failed", message="<script>disk full</script>")
    page = signed_in().get(url(export)).text
    assert "&lt;script&gt;disk full" in page


def test_the_list_takes_as_many_queries_for_three_rows_as_for_one():
    one, three = queries_with_one_and_three(lambda: reverse("dashboard:export_list"), queued_export)
    assert one == three


def test_a_viewer_sees_exports_and_downloads_none(tmp_path):
    export = written_export(tmp_path)
    client = signed_in(Role.VIEWER)
    assert "Download" not in client.get(url(export)).text
    assert client.get(url(export, "export_download")).status_code == 403
    assert client.post(CREATE, {}).status_code == 403


def test_an_export_is_deleted_and_a_file_that_was_written_elsewhere_stays(tmp_path, django_capture_on_commit_callbacks):
    client, export = signed_in(), written_export(tmp_path)
    assert "Delete</button>" in client.get(url(export)).text
    with django_capture_on_commit_callbacks(execute=True):
        done = client.post(url(export, "export_delete"), follow=True)
    assert f"Export #{export.pk} is deleted." in done.text
    assert (Export.objects.count(), (tmp_path / "rows.jsonl").exists()) == (0, True)


def test_the_download_is_the_folder_that_the_trainer_loads(tmp_path):
    export, client = write_export(export=queued_export(), path=tmp_path / "made"), signed_in()
    page = client.get(url(export)).text
    files = sorted(one.name for one in (tmp_path / "made").iterdir())
    assert [name for name in files if f'href="/exports/{export.pk}/files/{name}"' not in page] == []
    name = f"gymweb-nemo_gym_rollouts-{export.pk}"
    whole = client.get(url(export, "export_download"))
    assert f'filename="{name}.tar"' in whole["Content-Disposition"]
    content = b"".join(whole.streaming_content)
    assert len(content) == int(whole["Content-Length"])
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        archive.extractall(tmp_path / "saved", filter="data")
    assert [one.read_bytes() for one in sorted((tmp_path / "saved" / name).iterdir())] == [
        (tmp_path / "made" / one).read_bytes() for one in files
    ]
    for start in (0, 100, 512, 1_300, len(content) - 1):
        part = client.get(url(export, "export_download"), headers={"Range": f"bytes={start}-{start + 700}"})
        assert (part.status_code, part["ETag"]) == (206, whole["ETag"])
        assert b"".join(part.streaming_content) == content[start : start + 701]


def test_the_page_and_the_readme_have_code_that_loads_the_folder(tmp_path):
    order = ExportOrder(format="trl_sft", collection=queued_export().collection)
    export = write_export(export=queue_export(order), path=tmp_path / "made")
    page = signed_in().get(url(export)).text
    assert f"load_dataset(&quot;gymweb-trl_sft-{export.pk}&quot;, split=&quot;train&quot;)" in page
    assert 'data-copy="load-code"' in page
    assert 'load_dataset("path/to/this/folder", split="train")' in (tmp_path / "made" / "README.md").read_text()
    one_file = write_export(export=queue_export(order), path=tmp_path / "rows.jsonl")
    assert "load-code" not in signed_in().get(url(one_file)).text


@pytest.mark.parametrize("state", ["queued", "writing"])
def test_an_export_is_cancelled_before_it_is_written(state):
    client, export = signed_in(), queued_export()
    Export.objects.update(state=state)
    page = client.post(url(export, "export_cancel"), follow=True).text
    export.refresh_from_db()
    assert (export.state, "export_cancel" in page, 'hx-trigger="every 2s"' in page) == ("cancelled", False, False)
    assert write_export(export=export).state == "cancelled"
    assert AuditEntry.objects.get(action="export.cancelled").target == str(export)
    Export.objects.update(state="failed")
    assert "only an unfinished export can be cancelled" in client.post(url(export, "export_cancel"), follow=True).text


def test_a_writer_whose_export_is_cancelled_stops_and_keeps_nothing(settings, tmp_path, monkeypatch):
    settings.EXPORTS_DIR = tmp_path / "exports"
    monkeypatch.setattr("apps.exports.export_jobs.HEARTBEAT_SECONDS", 0.0)
    export = queued_export()
    wrote = ExportFolder.write
    monkeypatch.setattr(ExportFolder, "write", lambda *row: (wrote(*row), cancel_export(export=export)))
    make_rollout(export.collection)
    write_export(export=export)
    assert (export.state, list((tmp_path / "exports").iterdir())) == ("cancelled", [])


def test_a_preview_counts_what_the_export_will_hold_and_leave_out(settings, tmp_path):
    settings.EXPORTS_DIR = tmp_path
    collection = make_collection(state="completed", repeats=9)
    for number in range(9):
        make_rollout(collection, reward=number % 3 / 2, trace=make_trace(str(number % 5), 1.0))
    order = {"format": "trl_kto", "collection": collection.pk, "dedupe": "on", "min_reward": "0.5", "good_from": "0.5"}
    page = signed_in().post(CREATE, {**order, "preview": "1"}).text
    filters = {"dedupe": True, "min_reward": 0.5}
    order = {"format": "trl_kto", "collection": collection, "filters": filters}
    preview = preview_rows(prepare_export(ExportOrder(**order)), limit=2)
    written = write_export(export=queue_export(ExportOrder(**order)))
    counts = {name: getattr(preview, name) for name in ("considered", "written_from", "written", "dropped")}
    assert (counts, len(preview.rows), preview.stopped_after) == (written.manifest["counts"], 2, None)
    assert left_out_of(page) == counts["dropped"]
    assert preview.trainability == msgspec.convert(written.manifest["trainability"], Trainability)


def test_a_preview_that_stops_amid_a_group_counts_what_it_looked_at_alone(monkeypatch):
    collection = make_collection(state="completed", repeats=9)
    for number in range(9):
        make_rollout(collection, reward=1.0, trace=make_trace(str(number), 1.0))
    ticks = itertools.count()
    monkeypatch.setattr("apps.exports.export_preview.SECONDS", 7.0)
    monkeypatch.setattr("apps.exports.export_preview.time.monotonic", lambda: float(next(ticks)))
    preview = preview_rows(prepare_export(ExportOrder(format="trl_kto", collection=collection)), limit=2)
    assert (preview.considered, preview.written_from, len(preview.rows)) == (5, 5, 2)
    assert (preview.dropped, preview.stopped_after) == ({}, 7.0)


def test_a_preview_ends_in_time_and_says_so(monkeypatch):
    monkeypatch.setattr("apps.exports.export_preview.SECONDS", -1.0)
    collection = make_collection(state="completed")
    make_rollout(collection)
    page = signed_in().post(CREATE, {"format": "trl_sft", "collection": collection.pk, "preview": "1"}).text
    assert "Stopped after" in page
    assert '<h2 id="preview-title" tabindex="-1" data-arrive>' in page


def test_an_export_that_is_being_written_is_not_deleted():
    client, export = signed_in(), queued_export()
    Export.objects.update(state="writing")
    assert "cancel it first" in client.post(url(export, "export_delete"), follow=True).text
    assert Export.objects.count() == 1


@pytest.mark.parametrize("query", ["", "?format=axolotl_dpo"])
def test_names_of_settings_in_a_note_are_shown_as_code(query):
    page = signed_in().get(f"{CREATE}{query}").text
    assert ("Leave out <code>type</code> in the configuration" in page, "`" in page) == (True, False)


def test_an_export_is_repeated_with_the_same_settings(tmp_path):
    collection, client = make_collection(state="completed"), signed_in()
    rollout = make_rollout(collection)
    order = {
        "format": "trl_sft",
        "collection": collection.pk,
        "per_task": "2",
        "rollouts": str(rollout.pk),
        "reasoning": "inline",
        "validation_share": "0.1",
    }
    # The default minimum reward of the format is cleared, and duplicates are kept.
    client.post(CREATE, {**order, "min_reward": ""})
    export = Export.objects.get()
    page = client.get(url(export)).text
    address = f"/exports/new/?format=trl_sft&collection={collection.pk}&again={export.pk}"
    assert f'href="{escape(address)}">New with these settings</a>' in page
    form = client.get(address).context["form"]
    values = {name: form[name].value() for name in form.fields if form[name].value() not in (None, "", [])}
    client.post(address, {"format": "trl_sft", **values})
    again = Export.objects.latest("pk")
    assert again.pk != export.pk
    for name in ("filters", "options", "encoding", "validation_share", "split_seed"):
        assert getattr(again, name) == getattr(export, name), name


def test_the_list_is_filtered_and_tells_exports_of_one_format_apart():
    collection, other, client = make_collection(), make_collection(), signed_in()
    pair_set = PairSet.objects.create(collection=other, name="sums")
    Export.objects.create(format="trl_sft", collection=collection, filters={"min_reward": 0.7, "dedupe": True})
    creator = make_user(username="Ada")
    Export.objects.create(
        format="trl_dpo", collection=other, pair_set=pair_set, state="failed", encoding="parquet", created_by=creator
    )
    page = client.get("/exports/").text
    assert "minimum reward 0.7, deduplicate" in page
    assert f'<a href="/pair-sets/{pair_set.pk}/">sums v1</a>' in page
    one, two = Export.objects.order_by("pk")
    for query, shown in (
        (f"collection={collection.pk}", [one]),
        ("format=trl_dpo", [two]),
        ("state=failed", [two]),
        ("state=ready", []),
        ("format=unknown", [two, one]),
        ("q=TRL", [two, one]),
        ("q=sft+conversations", [one]),
        (f"q=%23{two.pk}", [two]),
        ("q=parquet", [two]),
        ("q=dpo+sums", [two]),
        ("q=sft+sums", []),
        ("q=ada", [two]),
        ("q=TRL&state=failed", [two]),
    ):
        assert [row for row, *_ in client.get(f"/exports/?{query}").context["rows"]] == shown, query


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.jsonl.gz", "made"])
def test_the_first_row_is_shown_to_those_who_may_download(tmp_path, name):
    export = queued_export()
    export.encoding = "jsonl.gz" if name.endswith(".gz") else "jsonl"
    export.save()
    make_rollout(export.collection, trace=make_trace("<b>4</b>" * 2_000, 1.0))
    write_export(export=export, path=tmp_path / name)
    page = signed_in().get(url(export))
    assert "First row" in page.text
    assert page.context["first_row"].startswith("{")
    assert len(page.context["first_row"]) <= 4_001
    assert "First row" not in signed_in(Role.VIEWER).get(url(export)).text
    for file in tmp_path.rglob("*.jsonl*"):
        file.unlink()
    assert "First row" not in signed_in().get(url(export)).text


def test_the_first_row_of_parquet_is_shown(tmp_path):
    collection = make_collection(state="completed")
    make_rollout(collection, trace=make_trace("four", 1.0))
    export = write_export(
        export=queue_export(ExportOrder(format="trl_sft", collection=collection, encoding="parquet"), user=None),
        path=tmp_path / "made",
    )
    row = json.loads(signed_in().get(url(export)).context["first_row"])
    assert (row["reward"], row["messages"][-1]["content"]) == (1.0, "four")
    assert "First row" not in signed_in(Role.VIEWER).get(url(export)).text
    [file] = tmp_path.rglob("*.parquet")
    file.write_bytes(b"PAR1" + bytes(20))
    assert "First row" not in signed_in().get(url(export)).text


def test_recently_used_formats_are_listed_first_and_once_more_in_their_section():
    client = signed_in()
    collection = make_collection()
    assert "Recently used" not in dict(client.get(CREATE).context["kinds"])
    for format in ("openai_sft", "trl_sft", "gone"):
        Export.objects.create(format=format, collection=collection)
    (title, formats), *others = client.get(CREATE).context["kinds"]
    assert (title, [one.slug for one in formats]) == ("Recently used", ["trl_sft", "openai_sft"])
    assert sum(one.slug == "trl_sft" for _, found in others for one in found) == 1


def test_the_list_shows_the_checked_rollouts_beside_fewer_rows(tmp_path):
    export = queued_export()
    make_rollout(export.collection, reward=None)
    write_export(export=export, path=tmp_path / "made")
    assert '>1<span class="sub">of 2</span></td>' in signed_in().get(reverse("dashboard:export_list")).text


def test_the_formats_say_what_the_export_is_for():
    collection, client = make_collection(name="Sums"), signed_in()
    page = client.get(CREATE, {"collection": collection.pk, "rollouts": "3 4", "q": "reward:>0"}).text
    assert f"<strong>#{collection.pk} Sums</strong>" in page
    assert "2 selected rollouts" in page
    assert "<code>reward:&gt;0</code>" in page
    assert client.get(CREATE, {"collection": "x"}).status_code == 200


def numbers_of(use: str) -> list[int]:
    """Return all numbers that a card shows, in order."""
    return [int(number) for number in re.findall(r"\d+", re.sub(r"<[^>]+>", " ", use))]


def count_uses(client, **given) -> dict[str, str]:
    counted = client.get(CREATE, given, headers={"HX-Request": "true"}).text
    return dict(re.findall(r'data-use="(\w+)">(.*?)</section>', counted, re.DOTALL))


def test_the_formats_of_a_collection_start_with_its_three_uses():
    """Four rollouts of a task: two good ones, which are identical, a bad one and one without a reward."""
    collection = make_collection(state="completed")
    task = make_rollout(collection, reward=1.0, trace=make_trace("4", 1.0)).task
    make_rollout(collection, task=task, reward=1.0, trace=make_trace("4", 1.0))
    bad = make_rollout(collection, task=task, reward=0.0, trace=make_trace("5", 0.0))
    make_rollout(collection, task=task, reward=None, status="failed", error_kind="policy_error", trace=[])
    client = signed_in()
    page = client.get(CREATE, {"collection": collection.pk}).text
    assert "One collection, three uses" in page
    assert f'hx-get="{CREATE}?collection={collection.pk}" hx-trigger="load"' in page
    assert "One collection, three uses" not in client.get(CREATE).text
    uses = count_uses(client, collection=collection.pk)
    assert list(uses) == ["trl_sft", "trl_dpo", "scored_rollouts"]
    # Rows, rollouts used of rollouts read, and the rollouts left out by reason.
    assert numbers_of(uses["trl_sft"])[:3] == [1, 1, 4]
    assert "identical to another rollout" in uses["trl_sft"]
    assert "below the minimum reward" in uses["trl_sft"]
    assert numbers_of(uses["scored_rollouts"]) == [3, 3, 4, 1]
    # Without a pair set, the pairs of the default rule are counted, which differ in their action.
    assert "Not built yet" in uses["trl_dpo"]
    assert numbers_of(uses["trl_dpo"]) == [1, 4]
    assert f'href="/pair-sets/new/?collection={collection.pk}"' in uses["trl_dpo"]
    narrowed = count_uses(client, collection=collection.pk, rollouts=str(bad.pk))
    assert numbers_of(narrowed["scored_rollouts"]) == [1, 1, 4, 3]


def test_a_use_that_would_be_refused_says_why():
    collection = make_collection(state="completed")
    make_rollout(collection, flagged=True)
    uses = count_uses(signed_in(), collection=collection.pk)
    assert "redact" in uses["trl_sft"]
    assert "Export trl_sft" not in uses["trl_sft"]


def test_the_newest_pair_set_is_counted():
    collection = make_collection(state="completed")
    task = make_rollout(collection, reward=1.0, trace=make_trace("4", 1.0)).task
    make_rollout(collection, task=task, reward=0.0, trace=make_trace("5", 0.0))
    old, new = (build_pairs(PairOrder(collection=collection)) for _ in range(2))
    assert old.pk < new.pk
    uses = count_uses(signed_in(), collection=collection.pk)
    assert f"pair_set={new.pk}" in uses["trl_dpo"]
    assert new.title in uses["trl_dpo"]
