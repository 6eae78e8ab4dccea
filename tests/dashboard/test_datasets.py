import pytest
from django.test import Client
from django.urls import reverse

from apps.dashboard.keyset import PAGE_ROWS
from apps.environments.models import Environment
from apps.tasks.models import Dataset, DatasetVersion
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
    shown = pages.get("/datasets/").context["datasets"].get()
    assert (shown.newest_number, shown.newest_task_count) == (1, 3)


def test_without_datasets_the_page_says_what_to_do(pages: Client, viewer_pages: Client):
    assert "Create the first dataset" in pages.get("/datasets/").text
    assert "Create the first dataset" not in viewer_pages.get("/datasets/").text


def test_tasks_are_paged_by_key_and_each_appears_once(pages: Client):
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
    assert "Nothing found" in pages.get(f"/datasets/{dataset.slug}/?q=absent").text


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


@pytest.mark.parametrize("count", [1, 3])
def test_the_list_takes_the_same_queries_for_one_and_for_many(pages: Client, count: int, django_assert_max_num_queries):
    environment = Environment.objects.get(slug="calculator")
    for _ in range(count):
        make_dataset(environment=environment)
    with django_assert_max_num_queries(4):
        pages.get("/datasets/")
