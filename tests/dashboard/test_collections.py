import re
from urllib.parse import parse_qsl, urlsplit

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from apps.accounts.models import Role
from apps.rollouts.models import Collection, Rollout
from apps.rollouts.steering.collection_deletion import delete_next_collection
from tests.dashboard.markup import read
from tests.dashboard.pages import queries_with_one_and_three, signed_in, squeezed
from tests.factories import (
    make_agent,
    make_collection,
    make_dataset,
    make_next_version,
    make_policy_model,
    make_rollout,
    make_row,
    make_user,
)

pytestmark = pytest.mark.django_db


def detail(collection: Collection, query: str = "") -> str:
    return reverse("dashboard:collection_detail", args=[collection.pk]) + query


def test_the_list_shows_plans_and_progress():
    user = make_user(username="ada")
    collection = make_collection(name="First try", total=10, completed=4, failed=1, rewarded=4, reward_sum=3.0)
    Collection.objects.filter(pk=collection.pk).update(created_by=user)
    page = squeezed(signed_in(Role.VIEWER).get(reverse("dashboard:collection_list")).text)
    assert 'value="5" aria-label="5 of 10 rollouts finished"' in page
    for part in ["First try", "0.750", str(collection.version), collection.agent.name, "ada", "1 failed"]:
        assert part in page
    assert reverse("dashboard:collection_create") not in page


def test_the_list_takes_as_many_queries_for_three_rows_as_for_one():
    one, three = queries_with_one_and_three(lambda: reverse("dashboard:collection_list"), make_collection)
    assert one == three


def test_the_list_pages_by_key():
    dataset, agent, model = make_dataset(), make_agent(), make_policy_model()
    made = [make_collection(dataset=dataset, agent=agent, policy_model=model, name=f"no {n}.") for n in range(51)]
    client = signed_in()
    first = client.get(reverse("dashboard:collection_list")).text
    assert ("no 50." in first, "no 0." in first, f"?after={made[1].pk}" in first) == (True, False, True)
    second = client.get(reverse("dashboard:collection_list"), {"after": made[1].pk}).text
    assert ("no 50." in second, "no 0." in second) == (False, True)


def test_the_plan_form_counts_tasks_times_repeats():
    dataset = make_dataset()
    url = reverse("dashboard:collection_create")
    page = signed_in().get(url, {"dataset": dataset.slug, "repeats": 8, "limit": 2}).text
    assert "<strong>16 rollouts</strong>" in page
    assert "= 2 tasks of" in page


def test_htmx_gets_the_count_alone():
    client = signed_in()
    page = client.get(
        reverse("dashboard:collection_create"),
        {"dataset": make_dataset().slug, "repeats": 4},
        headers={"HX-Request": "true"},
    )
    assert page.text.strip().startswith('<div id="plan"')
    assert "<strong>12 rollouts</strong>" in page.text


def test_a_plan_that_is_not_understood_yet_has_no_count():
    page = signed_in().get(reverse("dashboard:collection_create"), {"dataset": "none", "repeats": "x"}).text
    assert "Choose a dataset to see" in page


def plan_fields(**fields: object) -> dict[str, object]:
    given = {
        "agent": make_agent().slug,
        "policy_model": make_policy_model().slug,
        "repeats": 2,
        "seed": 7,
        "priority": 1,
        "rollout_timeout": "20 min",
        "max_attempts": 3,
        "max_seconds": "2 d",
    }
    return {**given, "sampling": '{"temperature": 0.5}', "name": "Mine", "idempotency_key": "k1", **fields}


def chosen(page: str) -> list[str]:
    return [
        each.attributes["value"]
        for each in read(page).all("option")
        if "selected" in each.attributes and each.attributes["value"]
    ]


def test_a_link_opens_the_form_with_its_dataset_agent_and_model_chosen():
    dataset, agent, model = make_dataset(), make_agent(), make_policy_model()
    given = {"dataset": dataset.slug, "agent": agent.slug, "policy_model": model.slug}
    page = signed_in().get(reverse("dashboard:collection_create"), given).text
    assert set(chosen(page)) == {dataset.slug, agent.slug, model.slug}
    link = f"{reverse('dashboard:collection_create')}?dataset={dataset.slug}"
    assert link in signed_in().get(reverse("dashboard:dataset_detail", args=[dataset.slug])).text


def test_without_scripts_a_plan_is_counted_and_then_started():
    client, address = signed_in(), reverse("dashboard:collection_create")
    fields = plan_fields(dataset=make_dataset().slug, sampling="{}", name="")
    sent = {**fields, "csrfmiddlewaretoken": "secret", "count": "1"}
    counted = client.post(address, sent)
    assert counted.status_code == 302
    assert set(dict(parse_qsl(urlsplit(counted["Location"]).query))) == {
        "dataset",
        "agent",
        "policy_model",
        "repeats",
        "seed",
        "sampling",
        "priority",
        "rollout_timeout",
        "max_attempts",
        "max_seconds",
    }
    opened = client.get(counted["Location"])
    page = opened.text
    assert "<strong>6 rollouts</strong>" in page
    assert "Sampling" not in opened.context["form"].other_summary
    shown = {each.attributes["name"]: each.text.strip() for each in read(page).all("textarea")}
    assert client.post(address, {**fields, **shown}).status_code == 302
    assert Collection.objects.get().sampling == {}


def test_counting_sends_neither_the_token_nor_the_key():
    page = signed_in().get(reverse("dashboard:collection_create")).text
    assert 'hx-params="not csrfmiddlewaretoken,idempotency_key"' in page
    assert 'formmethod="get"' not in page


def test_planning_makes_the_rollouts_and_shows_the_collection():
    client, dataset = signed_in(), make_dataset()
    fields = plan_fields(dataset=dataset.slug)
    done = client.post(reverse("dashboard:collection_create"), fields)
    collection = Collection.objects.get()
    assert (done.status_code, done["Location"]) == (302, detail(collection))
    assert (collection.name, collection.total, collection.seed, collection.priority) == ("Mine", 6, 7, 1)
    assert (collection.rollout_timeout, collection.max_attempts, collection.max_seconds) == (1200.0, 3, 2 * 86_400)
    assert (collection.concurrency, collection.max_tokens, collection.max_cost) == (None, None, None)
    assert (collection.sampling, collection.created_by.pk) == (
        {"temperature": 0.5},
        int(client.session["_auth_user_id"]),
    )
    client.post(reverse("dashboard:collection_create"), fields)
    assert Collection.objects.count() == 1


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"sampling": "[1]"}, "must be a JSON"),
        ({"sampling": "{"}, "Invalid JSON: "),
        ({"sampling": '{"stop": ["a\\u0000"]}'}, "is at /stop/0"),
        ({"repeats": 0}, "greater than or equal to 1"),
        ({"dataset": 999}, "Select a valid choice."),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused_with_its_reason(fields, complaint):
    answer = signed_in().post(
        reverse("dashboard:collection_create"), plan_fields(**{"dataset": make_dataset().slug, **fields})
    )
    assert answer.status_code == 422
    assert complaint in answer.text
    assert Collection.objects.count() == 0


def test_a_dataset_without_tasks_has_nothing_to_collect():
    answer = signed_in().post(reverse("dashboard:collection_create"), plan_fields(dataset=make_dataset(rows=[]).slug))
    assert answer.status_code == 422
    assert "per task gives no rollouts" in answer.text


def test_the_page_shows_progress_results_and_rollouts():
    collection = make_collection(total=4, completed=3, failed=0, rewarded=3, reward_sum=2.0)
    task = collection.version.tasks.first()
    for reward in (1.0, 1.0, 0.0):
        make_rollout(collection, task=task, reward=reward)
    make_rollout(
        collection,
        task=collection.version.tasks.last(),
        reward=None,
        status="failed",
        stop_reason="",
        error_kind="policy_error",
        trace=[],
    )
    page = squeezed(signed_in().get(detail(collection)).text)
    assert "3 of 4 rollouts" in page
    assert 'aria-label="3 completed, 0 failed, 0 cancelled, 0 running, 1 queued"' in page
    assert "<dt>Mean reward</dt><dd>0.667" in page
    here = detail(collection)
    assert f'id="solved-sometimes" href="{here}tasks/?bucket=sometimes">sometimes</a>' in page
    assert f'href="{here}?stop_reason=answered#rollout-table">answered</a></td><td class="num">3</td>' in page
    assert f'href="{here}?error_kind=policy_error#rollout-table">policy_error</a></td><td class="num">1</td>' in page
    bar = f'<a href="{here}?min_reward=0.9&amp;max_reward=1#rollout-table">2</a>'
    assert f'<td>0.90 to 1</td><td class="num">{bar}</td>' in page
    assert page.count('<th scope="row"><a href="/rollouts/') == 4
    assert "style=" not in page


def test_a_collection_of_failures_is_not_done_well_and_says_why():
    collection = make_collection(state="completed", total=4, failed=4, finished_at=timezone.now())
    broken = {"reward": None, "status": "failed", "stop_reason": "", "error_kind": "policy_error", "trace": []}
    for message in ("answered 401: no such key", "answered 401: no such key", "answered 500", "answered 401: <key>"):
        make_rollout(collection, **broken, error_message=message)
    page = squeezed(signed_in().get(detail(collection)).text)
    assert '<span class="chip bad"><span aria-hidden="true">✗</span> all failed</span> 4 of 4 rollouts' in page
    assert "answered 401: no such key <em>and others</em>" in page
    assert "all failed" in signed_in().get("/collections/").text


def test_low_rewards_are_counted_and_a_finished_collection_shows_its_mean_once():
    collection = make_collection(
        state="completed", total=3, completed=3, rewarded=3, reward_sum=1.5, finished_at=timezone.now()
    )
    for reward in (1.0, 0.5, 0.0):
        make_rollout(collection, reward=reward)
    reply = signed_in().get(detail(collection))
    assert (reply.context["results"]["low"], reply.text.count("<dt>Mean reward</dt>")) == (2, 1)


def test_the_page_of_an_empty_collection_reads():
    page = signed_in().get(detail(make_collection(state="planning"))).text
    assert "No rewards yet." in page
    assert "No rollouts yet." in page


def test_the_page_takes_as_many_queries_for_three_rollouts_as_for_one():
    collection = make_collection(total=3)
    one, three = queries_with_one_and_three(lambda: detail(collection), lambda: make_rollout(collection))
    assert one == three


def rows(page: str) -> list[int]:
    return [int(part.split("/")[0]) for part in page.split('<th scope="row"><a href="/rollouts/')[1:]]


def test_rollouts_are_filtered_and_sorted():
    collection = make_collection()
    low, high, none = (
        make_rollout(collection, reward=0.25),
        make_rollout(collection, reward=0.75, stop_reason="max_steps"),
        make_rollout(collection, reward=None, status="failed", stop_reason="", error_kind="timed_out"),
    )
    client = signed_in()

    def shown(query: str) -> list[int]:
        return rows(client.get(detail(collection, query)).text)

    assert shown("") == [low.pk, high.pk, none.pk]
    assert shown("?status=failed") == [none.pk]
    assert shown("?min_reward=0.5") == [high.pk]
    assert shown("?max_reward=0.5") == [low.pk]
    assert shown("?stop_reason=max_steps") == [high.pk]
    assert shown("?error_kind=timed_out") == [none.pk]
    assert shown("?sort=-reward") == [high.pk, low.pk, none.pk]
    assert shown("?sort=reward") == [low.pk, high.pk, none.pk]
    assert shown("?sort=-id") == [none.pk, high.pk, low.pk]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("?sort=collection__created_by__password", "Invalid sort order."),
        ("?status=x", "Invalid filter."),
        ("?min_reward=abc", "Invalid filter."),
    ],
)
def test_a_filter_that_is_not_understood_shows_nothing_and_says_so(query, said):
    collection = make_collection()
    make_rollout(collection)
    page = signed_in().get(detail(collection, query)).text
    assert rows(page) == []
    assert said in page


PARTS = ["collection-progress", "collection-results", "breakdown", "rollout-table"]


def part_of(client: Client, collection: Collection, target: str, query: str = "") -> str:
    reply = client.get(detail(collection) + query, headers={"HX-Request": "true", "HX-Target": target})
    assert reply.status_code == 200
    return reply.text


@pytest.mark.parametrize(
    ("target", "parts"),
    [("rollout-table", PARTS[3:]), ("collection-figures", PARTS[:3]), ("collection-live", PARTS)],
)
def test_htmx_gets_only_the_part_it_targets(target, parts):
    page = part_of(signed_in(), make_collection(total=1), target)
    assert "<html" not in page
    assert [each for each in PARTS if f'id="{each}"' in page] == parts


def test_the_figures_of_one_reply_name_one_time_and_agree():
    collection = make_collection(total=3, completed=2, rewarded=2, reward_sum=1.0)
    for reward in (1.0, 0.0):
        make_rollout(collection, reward=reward)
    client = signed_in()
    for page in (part_of(client, collection, "collection-live"), client.get(detail(collection)).text):
        times = re.findall(r'<time datetime="([^"]+)" data-as-of>', page)
        assert (len(times), len(set(times))) == (4, 1)
        assert page.count("<dt>Mean reward</dt><dd>0.500") == 2


def test_fresh_figures_bring_the_worker_pill_along():
    client, collection = signed_in(), make_collection(total=1)
    swap = 'hx-swap-oob="outerHTML:.worker-pill"'
    fresh = part_of(client, collection, "collection-figures")
    assert (fresh.count(swap), client.get(detail(collection)).text.count(swap)) == (1, 0)


def test_the_page_breaks_its_figures_down_by_what_the_address_names():
    client, collection = signed_in(), make_collection(total=1)
    assert 'id="by-split" data-by="split"' in client.get(detail(collection)).text
    tabs = squeezed(part_of(client, collection, "collection-figures", "?by=tag")).partition("</nav>")[0]
    assert 'aria-current="true">Tag</a>' in tabs


def in_flight(collection: Collection) -> Rollout:
    return make_rollout(collection, status="running", lease=1, reward=None, stop_reason="", trace=[], finished_at=None)


def test_a_cancelled_collection_is_listened_to_until_nothing_runs():
    collection = make_collection(total=2, cancelled=1, state="cancelled")
    rollout = in_flight(collection)
    client = signed_in()
    flying = part_of(client, collection, "collection-figures")
    assert 'data-settled="false"' in flying
    assert "cancelling running rollouts" in flying
    assert 'data-live="/ws/' in client.get(detail(collection)).text
    Rollout.objects.filter(pk=rollout.pk).update(status="cancelled", lease=None)
    Collection.objects.update(cancelled=2)
    assert 'data-settled="true"' in part_of(client, collection, "collection-figures")
    assert 'data-live="/ws/' not in client.get(detail(collection)).text


def test_what_runs_does_not_wait_for_a_worker():
    collection = make_collection(total=2)
    client = signed_in()
    assert "waiting for a worker" in client.get(detail(collection)).text
    in_flight(collection)
    page = client.get(detail(collection)).text
    assert ("waiting for a worker" in page, "first rollouts running" in page) == (False, True)
    assert 'title="running or being stored"' in page


def test_a_collection_without_a_worker_says_so_instead_of_guessing_an_end():
    assert "waiting for a worker" in signed_in().get(detail(make_collection(total=4, completed=1))).text


def test_cancelling_a_finished_collection_is_explained():
    collection = make_collection(state="completed")
    done = signed_in().post(reverse("dashboard:collection_cancel", args=[collection.pk]), follow=True)
    assert "already ended" in done.text


def test_cancelling_drops_queued_rollouts():
    collection = make_collection(total=1)
    make_rollout(collection, status="queued", reward=None, stop_reason="", trace=[])
    done = signed_in().post(reverse("dashboard:collection_cancel", args=[collection.pk]), follow=True)
    assert "and its queued rollouts are cancelled" in done.text
    assert Rollout.objects.get().status == "cancelled"
    assert reverse("dashboard:collection_cancel", args=[collection.pk]) not in done.text


def test_a_viewer_may_neither_plan_nor_cancel():
    collection = make_collection()
    client = signed_in(Role.VIEWER)
    assert client.get(reverse("dashboard:collection_create")).status_code == 403
    assert client.post(reverse("dashboard:collection_cancel", args=[collection.pk])).status_code == 403
    collection.refresh_from_db()
    assert collection.state == "running"


def test_hostile_names_are_escaped():
    collection = make_collection(name="<script>alert(1)</script>", snapshot={"x": "<script>"})
    make_rollout(collection, components={"<script>": 1.0, "items": 0.5})
    client = signed_in()
    for page in (client.get(detail(collection)).text, client.get(reverse("dashboard:collection_list")).text):
        assert "<script>" not in page
    assert '<th scope="row">items<svg' in client.get(detail(collection)).text


def test_the_form_chooses_tasks_and_says_what_they_would_take():
    dataset = make_dataset()
    dataset.tasks.filter(index=0).update(split="train", tags_text="\nhard\n")
    given = {
        "dataset": dataset.slug,
        "agent": make_agent().slug,
        "policy_model": make_policy_model(output_price=1.0).slug,
        "repeats": 2,
        "split_repeats": "train=5",
    }
    client, address = signed_in(), reverse("dashboard:collection_create")
    page = squeezed(client.get(address, given).text)
    assert "<strong>9 rollouts</strong>" in page
    assert "× 2 rollouts per task (train: 5)" in page
    assert re.search(r"About <strong>[\d,]+ tokens</strong>, \$0\.00\d+\.", page)
    assert "Rough estimate" in page
    assert "<strong>5 rollouts</strong>" in client.get(address, {**given, "tags": "hard"}).text
    free = squeezed(client.get(address, {**given, "policy_model": make_policy_model().slug}).text)
    assert ("cost unknown" in free, "cost unknown" in page) == (True, False)


@pytest.mark.parametrize(
    ("provider", "tokens", "cost", "known"),
    [
        ("compatible", 40, 0.0, False),
        ("compatible", 40, 0.5, True),
        ("compatible", 0, 0.0, True),
        ("scripted", 40, 0.0, True),
    ],
)
def test_the_cost_of_a_model_without_prices_is_unknown(provider, tokens, cost, known):
    model = make_policy_model(provider=provider, base_url="http://192.0.2.7/v1", model_name="m")
    collection = make_collection(total=4, completed=3, input_tokens=tokens, cost=cost, policy_model=model)
    assert ("<small>no prices</small>" in signed_in().get(detail(collection)).text) is not known


def test_a_plan_from_the_form_has_its_choice_and_template():
    dataset = make_dataset()
    dataset.tasks.update(split="train", tags_text="\na\nb\n")
    fields = plan_fields(
        dataset=dataset.slug, split_repeats="train=3", splits="train", tags="a, b", search="What", limit=2
    )
    templates = {"system_template": "", "user_template": "One.\r\n{prompt}"}
    assert signed_in().post(reverse("dashboard:collection_create"), {**fields, **templates}).status_code == 302
    collection = Collection.objects.get()
    assert (collection.total, collection.split_repeats, collection.splits) == (6, {"train": 3}, ["train"])
    assert (collection.tags, collection.search, collection.limit) == (["a", "b"], "What", 2)
    assert collection.prompt_template == {"user": "One.\n{prompt}"}
    page = squeezed(signed_in().get(detail(collection)).text)
    for part in ["(train: 3)", "the first 2 of train, tagged a, b, with “What”", collection.snapshot_digest[:16]]:
        assert part in page


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"split_repeats": "train"}, "for example train=8"),
        ({"split_repeats": "train=0"}, "10,000 for train"),
        ({"user_template": "{"}, "Write a literal brace twice"),
        ({"resume_from": 999}, "Select a valid choice."),
        ({"only_failed": "on"}, "Choose an earlier collection"),
        ({"tags": "nobody"}, "matches the filters"),
    ],
)
def test_a_choice_that_makes_no_sense_is_refused_beside_its_field(fields, complaint):
    answer = signed_in().post(
        reverse("dashboard:collection_create"), plan_fields(dataset=make_dataset().slug, **fields)
    )
    assert (answer.status_code, complaint in answer.text, Collection.objects.count()) == (422, True, 0)


def test_a_clone_opens_the_form_as_the_earlier_plan_was():
    dataset = make_dataset()
    dataset.tasks.update(split="train")
    fields = plan_fields(dataset=dataset.slug, tags="", split_repeats="train=3", user_template="Again: {prompt}")
    client, address = signed_in(), reverse("dashboard:collection_create")
    client.post(address, fields)
    collection = Collection.objects.get()
    page = read(client.get(address, {"clone": collection.pk}).text)
    shown = {each.attributes.get("name"): each.attributes.get("value") for each in page.all("input")}
    assert {name: shown[name] for name in ("repeats", "seed", "split_repeats", "rollout_timeout", "max_seconds")} == {
        "repeats": "2",
        "seed": "7",
        "split_repeats": "train=3",
        "rollout_timeout": "20 min",
        "max_seconds": "2 d",
    }
    form = client.get(address, {"clone": collection.pk}).context["form"]
    assert form.other_summary == 'Seed 7 · Sampling { "temperature": 0.5 }'
    assert "Priority 1" in form.limits_summary
    texts = {each.attributes["name"]: each.text.strip() for each in page.all("textarea")}
    assert (texts["user_template"], texts["sampling"]) == ("Again: {prompt}", '{\n  "temperature": 0.5\n}')
    rest = client.get(address, {"rest": collection.pk}).text
    assert f'name="resume_from" value="{collection.pk}"' in rest
    assert client.get(address, {"clone": 999}).status_code == 404


def test_the_form_plans_an_older_version_and_a_clone_shows_it():
    dataset = make_dataset()
    make_next_version(dataset, [make_row()])
    client, address = signed_in(), reverse("dashboard:collection_create")
    page = client.get(reverse("dashboard:dataset_detail", args=[dataset.slug]), {"v": 1}).text
    assert f"{address}?dataset={dataset.slug}&amp;version=1" in page
    fields = plan_fields(dataset=dataset.slug, limit="", tags="")
    client.post(address, {**fields, "version": "1"})
    collection = Collection.objects.get()
    assert (collection.version.number, str(collection.version) in client.get(detail(collection)).text) == (1, True)
    shown = client.get(address, {"clone": collection.pk}).text
    assert 'name="version" value="1"' in shown
    assert f"tasks of {collection.version} ×" in shown
    offered = [each for each in read(shown).all("option") if each.text.startswith("v")]
    assert [each.attributes["value"] for each in offered] == ["2", "1"]
    refused = client.post(address, {**fields, "version": "7"})
    assert (refused.status_code, "has no version 7" in refused.text, "2, 1" in refused.text) == (422, True, True)


def test_an_archived_collection_leaves_the_list_and_comes_back():
    client, collection = signed_in(), make_collection(name="Old one", state="completed")
    address = reverse("dashboard:collection_list")

    def listed(**query):
        return "Old one" in client.get(address, query).text

    client.post(reverse("dashboard:collection_archive", args=[collection.pk]), follow=True)
    assert (listed(), listed(archived="true")) == (False, True)
    assert "Restore</button>" in client.get(detail(collection)).text
    client.post(reverse("dashboard:collection_restore", args=[collection.pk]))
    client.get(detail(collection))
    assert (listed(), listed(archived="true")) == (True, False)


def test_a_collection_is_deleted_once_its_number_was_typed():
    client, collection = signed_in(), make_collection(state="completed", total=1)
    make_rollout(collection)
    address = reverse("dashboard:collection_delete", args=[collection.pk])
    assert "Type #" in client.get(address).text
    assert client.post(address, {"name": "1"}).status_code == 422
    going = client.post(address, {"name": f"#{collection.pk}"})["Location"]
    assert client.get(detail(collection)).status_code == 404
    assert "A worker deletes" in client.get(going).text
    delete_next_collection()
    page = squeezed(client.get(going).text)
    assert ("Deletion complete." in page, "<dd>1 <small>of 1</small></dd>" in page) == (True, True)


def test_a_running_collection_is_neither_archived_nor_deleted():
    client, collection = signed_in(), make_collection()
    answer = client.post(reverse("dashboard:collection_archive", args=[collection.pk]), follow=True)
    assert "only finished collections can be archived" in answer.text
    refused = client.post(reverse("dashboard:collection_delete", args=[collection.pk]), {"name": f"#{collection.pk}"})
    assert (refused.status_code, "Cancel it first" in refused.text) == (422, True)
