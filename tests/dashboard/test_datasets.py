from io import BytesIO

import pytest
from django.test import Client
from django.urls import reverse

from apps.gym.traces.items import dump_json
from apps.rollouts.models import Collection
from apps.rollouts.search.keyset_pages import PAGE_ROWS
from apps.tasks.dataset_deletion import delete_next
from apps.tasks.models import Dataset, DatasetVersion, Task
from apps.tasks.task_marks import mark_tasks
from apps.tasks.upload_jobs import upload_file
from tests.factories import make_collection, make_dataset, make_policy_model, make_rollout, make_row

HTMX = {"HX-Request": "true"}
GIVEN = {"name": "Sums", "slug": "sums", "environment": "calculator", "description": "Small ones."}


def test_a_dataset_is_created_and_leads_to_its_upload(pages: Client):
    reply = pages.post(reverse("dashboard:dataset_create"), GIVEN, headers=HTMX)
    assert (reply.status_code, reply["HX-Redirect"]) == (200, "/datasets/sums/upload/")
    dataset = Dataset.objects.get(slug="sums")
    assert (dataset.environment.slug, dataset.created_by.username) == ("calculator", "erika")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"slug": "taken"}, "slug"),
        ({"slug": "a b"}, "slug"),
        ({"name": ""}, "name"),
        ({"environment": "x"}, "environment"),
    ],
)
def test_a_dataset_that_cannot_be_says_why_beside_the_field(pages: Client, change: dict[str, str], field: str):
    make_dataset(slug="taken")
    reply = pages.post(reverse("dashboard:dataset_create"), {**GIVEN, **change}, headers=HTMX)
    assert reply.status_code == 422
    assert list(reply.context["form"].errors) == [field]
    assert f'id="id_{field}_error"' in reply.text
    assert "<html" not in reply.text


def test_the_form_takes_the_environment_from_the_address(pages: Client):
    page = pages.get(reverse("dashboard:dataset_create") + "?environment=calculator").text
    assert '<option value="calculator" selected>' in page


def test_the_list_shows_the_newest_version_that_is_ready(pages: Client):
    dataset = make_dataset(name="Sums")
    DatasetVersion.objects.create(dataset=dataset, number=2, state=DatasetVersion.State.LOADING, task_count=99)
    (shown,) = pages.get("/datasets/").context["rows"]
    assert (shown.newest_number, shown.newest_task_count) == (1, 3)


def test_without_datasets_the_page_says_what_to_do(pages: Client, viewer_pages: Client):
    assert "New dataset" in pages.get("/datasets/").text
    assert "New dataset" not in viewer_pages.get("/datasets/").text


def test_tasks_are_paged_by_key_without_duplicates(pages: Client):
    dataset = make_dataset([make_row(f"Question {n}") for n in range(PAGE_ROWS + 5)])
    first = pages.get(f"/datasets/{dataset.slug}/")
    assert [task.index for task in first.context["page"].rows] == list(range(PAGE_ROWS))
    after = first.context["page"].after
    assert f'href="?after={after}"' in first.text
    assert f'hx-get="?after={after}"' in first.text
    rest = pages.get(f"/datasets/{dataset.slug}/?after={after}", headers=HTMX)
    assert [task.index for task in rest.context["page"].rows] == list(range(PAGE_ROWS, PAGE_ROWS + 5))
    assert rest.text.lstrip().startswith('<section id="tasks"')


def test_tasks_are_found_by_words_and_by_id(pages: Client):
    dataset = make_dataset()
    dataset.tasks.filter(index=1).update(prompt_excerpt="A needle in hay", external_id="word-77")
    for words in ("needle", "WORD-77"):
        page = pages.get(f"/datasets/{dataset.slug}/?q={words}")
        assert [task.index for task in page.context["page"].rows] == [1]
    assert "No results" in pages.get(f"/datasets/{dataset.slug}/?q=absent").text


def test_an_older_version_can_be_read(pages: Client):
    dataset = make_dataset()
    DatasetVersion.objects.create(dataset=dataset, number=2, state=DatasetVersion.State.READY, task_count=0)
    assert pages.get(f"/datasets/{dataset.slug}/").context["version"].number == 2
    assert pages.get(f"/datasets/{dataset.slug}/?v=1").context["version"].number == 1
    for wrong in ("3", "x", "²", "9" * 30):
        assert pages.get(f"/datasets/{dataset.slug}/?v={wrong}").status_code == 404


def test_tasks_show_what_their_rollouts_were_worth(pages: Client):
    collection = make_collection()
    make_rollout(collection, reward=1.0)
    make_rollout(collection, reward=0.5)
    task = pages.get(f"/datasets/{collection.dataset.slug}/").context["page"].rows[0]
    assert (task.rollout_count, task.mean_reward) == (2, 0.75)


def test_a_task_shows_prompt_verifier_fields_tools_and_rollouts(pages: Client):
    tool = {"type": "function", "name": "look_up", "description": "Looks it up", "parameters": {"type": "object"}}
    row = make_row("How <b>tall</b>?", "330 m")
    row["responses_create_params"].update(tools=[tool], temperature=0.5)
    collection = make_collection(dataset=make_dataset([row, make_row()]), policy_model=make_policy_model())
    rollout = make_rollout(collection, reward=0.25)
    page = pages.get(f"/tasks/{rollout.task_id}/")
    assert "How &lt;b&gt;tall&lt;/b&gt;?" in page.text
    assert page.context["expected"] == "330 m"
    assert page.context["verifier_fields"] == {"expected_answer": "330 m"}
    assert page.context["row_settings"] == {"temperature": 0.5}
    assert "look_up" in page.text
    assert f"/rollouts/{rollout.pk}/" in page.text
    assert "◐" in page.text
    assert "0.25" in page.text
    assert [page.context["previous"], page.context["next"].index] == [None, 1]


def test_a_prompt_of_many_kinds_of_items_is_shown_whole(pages: Client):
    row = make_row()
    row["responses_create_params"]["input"] = [
        {"role": "developer", "content": "Be brief."},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]},
        {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{broken"},
        {"type": "function_call_output", "call_id": "1", "output": "plain"},
        {"role": "user", "content": [{"type": "input_image", "image_url": "https://img.example/x.png"}]},
        {"type": "computer_call", "action": "click"},
    ]
    task = make_dataset([row]).tasks.get()
    page = pages.get(f"/tasks/{task.pk}/").text
    for shown in (
        "Developer",
        "Be brief.",
        "Hm.",
        "{broken",
        "arguments are not JSON",
        "plain",
        "computer_call",
        "click",
    ):
        assert shown in page
    assert "https://img.example/x.png" in page
    assert '<img src="https' not in page


def test_a_task_of_a_version_that_is_still_loading_is_not_there(pages: Client):
    dataset = make_dataset()
    dataset.versions.update(state=DatasetVersion.State.LOADING)
    assert pages.get(f"/tasks/{dataset.tasks.first().pk}/").status_code == 404


def test_hostile_text_stays_text(pages: Client):
    hostile = '</pre></textarea><script>alert(1)</script>" onfocus="alert(2)'
    dataset = make_dataset([make_row(hostile, hostile)], name=hostile[:100], description=hostile)
    dataset.tasks.update(prompt_excerpt=hostile, external_id=hostile)
    for address in (
        "/datasets/",
        f"/datasets/{dataset.slug}/",
        f"/datasets/{dataset.slug}/?q=%22%3E%3Cscript%3Ealert(1)",
        f"/datasets/{dataset.slug}/upload/",
        f"/tasks/{dataset.tasks.get().pk}/",
    ):
        page = pages.get(address).text
        assert "<script>alert" not in page
        assert '" onfocus="' not in page


def test_tasks_are_filtered_by_split_tag_and_retirement(pages: Client):
    dataset = make_dataset()
    ids = list(dataset.tasks.order_by("index").values_list("pk", flat=True))
    mark_tasks(task_ids=ids[:1], split="test", add_tags=["a b"])
    mark_tasks(task_ids=ids[1:2], retired=True)

    def shown(query: str) -> list[int]:
        return [task.index for task in pages.get(f"/datasets/{dataset.slug}/?{query}").context["page"].rows]

    assert shown("q=%00&split=%00&tag=%00") == [0, 1, 2]
    assert [shown("split=test"), shown("tag=a%20b"), shown("retired=1"), shown("split=none"), shown("")] == [
        [0], [0], [1], [], [0, 1, 2],
    ]  # fmt: skip


def test_tasks_are_filtered_by_whether_their_rollouts_solved_them(pages: Client):
    collection = make_collection()
    dataset = collection.dataset
    never, sometimes, always = dataset.tasks.order_by("index")
    for task, rewards in ((never, [0.0, 0.5]), (sometimes, [0.0, 1.0]), (always, [1.0])):
        for reward in rewards:
            make_rollout(collection, task=task, reward=reward)
    deleted = make_collection(dataset=dataset)
    make_rollout(deleted, task=always, reward=0.0)
    Collection.objects.filter(pk=deleted.pk).update(is_being_deleted=True)

    def shown(solved: str) -> list[int]:
        rows = pages.get(f"/datasets/{dataset.slug}/?solved={solved}").context["page"].rows
        return [task.index for task in rows]

    assert [shown("never"), shown("sometimes"), shown("always"), shown("x")] == [[0], [1], [2], [0, 1, 2]]
    page = pages.get(f"/datasets/{dataset.slug}/")
    assert [task.mean_reward for task in page.context["page"].rows] == [0.25, 0.5, 1.0]
    assert list(page.context["collections"]) == [collection]
    assert f'href="/collections/?dataset={dataset.slug}"' in page.text


def test_chosen_tasks_are_marked_and_the_filters_stay(pages: Client):
    dataset, other = make_dataset(), make_dataset()
    first, _, third = dataset.tasks.order_by("index")
    address = f"/datasets/{dataset.slug}/mark/"
    chosen = {"task": [first.pk, third.pk, other.tasks.first().pk, "x", "9" * 30], "back": "q=What&v=1"}
    reply = pages.post(address, {**chosen, "action": "add_tag", "word": "hard"})
    assert reply["Location"] == f"/datasets/{dataset.slug}/?q=What&v=1"
    assert list(Task.objects.tagged("hard").order_by("pk")) == [first, third]
    assert "2 tasks changed." in pages.get(reply["Location"]).text
    for action, word in (("split", "test"), ("retire", ""), ("remove_tag", "hard")):
        pages.post(address, {"task": [first.pk], "action": action, "word": word})
    first.refresh_from_db()
    assert (first.split, first.is_retired, first.tags) == ("test", True, [])
    page = pages.get(f"/tasks/{first.pk}/").text
    assert "split test" in page
    assert "retired</span>" in page
    pages.post(address, {"task": [first.pk], "action": "restore"})
    first.refresh_from_db()
    assert first.is_retired is False
    assert "Select tasks" in pages.post(address, {"action": "add_tag"}, follow=True).text
    for wrong in ({"action": "add_tag", "task": [first.pk]}, {"action": "retire"}, {"action": "x", "task": [first.pk]}):
        pages.post(address, wrong)
    first.refresh_from_db()
    assert (first.is_retired, first.tags) == (False, [])


def test_what_changed_between_two_versions_is_shown(pages: Client):
    dataset = make_dataset([])
    for rows in ([("1", "4"), ("2", "4")], [("2", "5"), ("3", "4")]):
        lines = b"\n".join(dump_json(make_row(f"Question {key}", answer, id=key)).encode() for key, answer in rows)
        upload_file(dataset=dataset, stream=BytesIO(lines), filename="a.jsonl")
    page = pages.get(f"/datasets/{dataset.slug}/changes/")
    assert (page.context["counts"], page.context["unchanged"]) == ([("added", 1), ("removed", 1), ("changed", 1)], 0)
    assert [(task.external_id, fields) for task, _, fields in page.context["rows"]] == [("2", ["expected_answer"])]
    added = pages.get(f"/datasets/{dataset.slug}/changes/?v=3&from=2&kind=added", headers=HTMX)
    assert [task.external_id for task, _, _ in added.context["rows"]] == ["3"]
    assert "<html" not in added.text
    back = pages.get(f"/datasets/{dataset.slug}/changes/?v=2&from=3&kind=removed")
    assert [task.external_id for task, _, _ in back.context["rows"]] == ["3"]
    assert pages.get(f"/datasets/{dataset.slug}/changes/?from=9").status_code == 404
    assert "1 added, 1 changed, 1 removed" in pages.get(f"/datasets/{dataset.slug}/").text


def test_versions_are_shown_in_pages_too(pages: Client):
    dataset = make_dataset([])
    ready = DatasetVersion.State.READY
    DatasetVersion.objects.bulk_create(DatasetVersion(dataset=dataset, number=n, state=ready) for n in range(2, 26))
    page, shown = pages.get(f"/datasets/{dataset.slug}/"), list(range(25, 5, -1))
    assert [each.number for each in page.context["versions"].rows] == shown
    older = pages.get(f"/datasets/{dataset.slug}/?older={page.context['versions'].after}")
    assert [each.number for each in older.context["versions"].rows] == [5, 4, 3, 2, 1]
    assert (">Older →</a>" in page.text, ">Older →</a>" in older.text, "⇤ Newest</a>" in older.text) == (
        True,
        False,
        True,
    )


def test_the_metrics_of_a_version_are_a_page(pages: Client):
    dataset = make_dataset([])
    lines = b"\n".join(dump_json(make_row(level=n, tags=["x"])).encode() for n in range(3))
    upload_file(dataset=dataset, stream=BytesIO(lines), filename="a.jsonl")
    page = pages.get(f"/datasets/{dataset.slug}/metrics/")
    assert page.context["metrics"]["fields"]["level"]["numbers"]["mean"] == 1.0
    assert '<th scope="row" class="mono">level</th>' in page.text


def test_a_dataset_is_renamed(pages: Client):
    dataset = make_dataset()
    pages.post(f"/datasets/{dataset.slug}/edit/", {"name": "Other", "description": "New."})
    dataset.refresh_from_db()
    assert (dataset.name, dataset.description) == ("Other", "New.")
    assert pages.post(f"/datasets/{dataset.slug}/edit/", {"name": ""}).status_code == 422


def test_a_dataset_is_deleted_after_its_name_was_typed(pages: Client):
    dataset = make_dataset()
    address = f"/datasets/{dataset.slug}/delete/"
    assert "3 tasks, every version and every upload will be deleted" in pages.get(address).text
    assert pages.post(address, {"name": "other"}).status_code == 422
    reply = pages.post(address, {"name": dataset.slug}, headers=HTMX)
    deletion = reply["HX-Redirect"]
    assert "waiting for a worker" in pages.get(deletion).text
    assert f'<a href="{deletion}">being deleted</a>' in pages.get("/datasets/").text
    assert "is being deleted" in pages.get(f"/datasets/{dataset.slug}/").text
    delete_next()
    assert "Deletion complete." in pages.get(deletion).text
    assert pages.get(f"/datasets/{dataset.slug}/").status_code == 404


def test_a_version_is_deleted_by_itself(pages: Client):
    dataset = make_dataset()
    address = f"/datasets/{dataset.slug}/delete/?v=1"
    pages.post(address, {"name": f"{dataset.slug}@v1"})
    delete_next()
    assert (Dataset.objects.count(), dataset.versions.count(), Task.objects.count()) == (1, 0, 0)


def test_a_dataset_in_use_says_what_keeps_it(pages: Client):
    collection = make_collection()
    address = f"/datasets/{collection.dataset.slug}/delete/"
    assert "1 collection" in pages.get(address).text
    reply = pages.post(address, {"name": collection.dataset.slug})
    assert (reply.status_code, Dataset.objects.count()) == (422, 1)
    assert "Delete it first" in reply.text
