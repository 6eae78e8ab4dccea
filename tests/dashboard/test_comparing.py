import pytest
from django.urls import reverse

from apps.accounts.models import Role
from apps.dashboard.traces import side_by_side
from apps.gym.traces.alignment import Step
from apps.gym.traces.events import ModelCall, Prompt, ToolResult, TraceUnion, Verification
from apps.gym.traces.items import message
from apps.reviews.agreement.decisions import read_verdicts
from apps.reviews.models import Flag, Queue
from apps.rollouts import rollout_steps
from apps.rollouts.models import Collection, Rollout
from tests.dashboard.markup import faults, read
from tests.dashboard.pages import queries_with_one_and_three, signed_in, squeezed
from tests.factories import make_collection, make_rollout

pytestmark = pytest.mark.django_db


def call(expression: str) -> dict[str, object]:
    return {"type": "function_call", "call_id": "c", "name": "run", "arguments": f'{{"code": "{expression}"}}'}


def trace(expression: str, output: str, answer: str, reward: float) -> list[TraceUnion]:
    return [
        Prompt(items=[message("user", "What is 2 + 2?")]),
        ModelCall(seen=1, items=[call(expression)]),
        ToolResult(call_id="c", name="run", output=output, error="" if output == "4" else "failed"),
        ModelCall(seen=3, items=[message("assistant", answer)]),
        Verification(reward=reward, explanation="compared"),
    ]


def two() -> tuple[Rollout, Rollout]:
    collection = make_collection()
    good = make_rollout(collection, trace=trace("2+2", "4", "It is 4.", 1.0), turns=2, components={"exact": 1.0})
    bad = make_rollout(
        collection, trace=trace("2+2", "boom", "It is 5.", 0.0), turns=3, reward=0.0, components={"exact": 0.0}
    )
    return good, bad


def compared(*rollouts: Rollout, **query: object) -> str:
    return f"{reverse('dashboard:rollout_compare')}?r=" + ",".join(str(each.pk) for each in rollouts)


def test_what_all_have_in_common_is_folded_and_where_they_part_is_named():
    page = squeezed(signed_in(Role.VIEWER).get(compared(*two())).text)
    assert "2 equal steps before the divergence" in page
    # Numbered as in the trace.
    assert '<a href="#divergence">' in page
    assert "<strong>Diverges at</strong> step #2, result <code>run</code>" in page


def test_equal_steps_in_a_row_after_the_divergence_are_one_fold():
    collection = make_collection()
    ends = [message("user", "And 3?"), message("user", "And 4?")]
    good, bad = (
        make_rollout(collection, trace=[*trace("2+2", "4", said, 1.0)[:-1], *(Prompt(items=[end]) for end in ends)])
        for said in ("It is 4.", "It is 5.")
    )
    page = signed_in().get(compared(good, bad)).text
    assert page.count('<tr class="common">') == 1
    assert "2 steps" in page


def test_a_divergence_that_only_one_has_names_it():
    collection = make_collection()
    long = trace("2+2", "4", "It is 4.", 1.0)
    one, other = make_rollout(collection, trace=long), make_rollout(collection, trace=[long[0], *long[3:]])
    page = squeezed(signed_in().get(compared(other, one)).text)
    assert (f"only in B #{one.pk}" in page, page.count("No such step")) == (True, 2)
    assert page.count(f"<span>No such step in #{other.pk}") == 1


def test_words_that_only_one_has_are_marked():
    page = signed_in().get(compared(*two())).text
    assert "It is <del>4</del>." in page
    assert "It is <ins>5</ins>." in page


def test_what_colours_words_in_a_terminal_is_not_compared_unless_nothing_else_differs():
    def line(*texts: str) -> list[str]:
        (shared, lines) = side_by_side.compare_steps([[Step("result", "run", text, 1)] for text in texts])
        return ["".join(part.text for part in cell.parts) for cell in (shared or lines)[0].cells]

    assert line("\x1b[31mbad\x1b[0m", "\x1b[1;32mgood\x1b[m") == ["bad", "good"]
    assert line("\x1b[31mbad\x1b[0m", "\x1b[31mbad\x1b[0m") == ["bad"]
    assert line("\x1b[31mbad\x1b[0m", "\x1b[32mbad\x1b[0m") == ["\x1b[31mbad\x1b[0m", "\x1b[32mbad\x1b[0m"]


def test_outcomes_are_side_by_side_with_best_and_worst():
    good, bad = two()
    comparison = signed_in().get(compared(good, bad)).context["comparison"]
    outcomes = {each.name: each for each in [*comparison.outcomes, *comparison.facts]}
    # Two rollouts have no ranks: the difference shows which is better.
    assert outcomes["Reward"].cells == [(1.0, None, ""), (0.0, -1.0, "")]
    assert outcomes["exact"].cells == [(1.0, None, ""), (0.0, -1.0, "")]
    three = signed_in().get(compared(good, bad, make_rollout(good.collection, reward=0.5))).context["comparison"]
    assert [cell[2] for cell in three.outcomes[0].cells] == ["best", "worst", ""]
    assert outcomes["Turns"].cells == [(2, None, ""), (3, 1.0, "")]
    assert outcomes["Final answer"].values == ["It is 4.", "It is 5."]
    assert outcomes["Explanation"].values == ["compared", "compared"]
    # No rollout has a version here.
    assert "Version" not in outcomes


def test_the_first_is_what_the_others_are_compared_with():
    good, bad = two()
    client = signed_in()
    page = client.get(compared(good, bad)).text
    assert f'<a href="/rollouts/compare/?r={bad.pk},{good.pk}">use as baseline</a>' in page
    turned = client.get(f"/rollouts/compare/?r={bad.pk}&r={good.pk}").context["comparison"]
    assert [each.pk for each in turned.rollouts] == [bad.pk, good.pk]


def test_of_three_the_others_show_what_the_first_has_not_and_one_can_be_left_out():
    good, bad = two()
    third = make_rollout(good.collection, trace=trace("2+2", "4", "It is 6.", 0.0), reward=0.0)
    page = signed_in().get(compared(good, bad, third)).text
    assert ("<del>" in page, "It is <ins>6</ins>." in page) == (False, True)
    assert f'href="/rollouts/compare/?r={good.pk},{third.pk}" aria-label="Remove #{bad.pk}"' in page


def test_rollouts_that_did_the_same_say_so():
    collection = make_collection()
    page = signed_in().get(compared(make_rollout(collection), make_rollout(collection))).text
    assert "steps are equal" in page


def test_a_step_links_to_its_place_in_the_trace():
    good, bad = two()
    page = signed_in().get(compared(good, bad)).text
    assert f'href="/rollouts/{bad.pk}/#e2"' in page


def test_a_long_step_shows_how_much_is_hidden(monkeypatch):
    monkeypatch.setattr(side_by_side, "SHOWN", 10)
    collection = make_collection()
    made = [make_rollout(collection, trace=trace("2+2", "4", letter * 1_015, 1.0)) for letter in "ab"]
    page = signed_in().get(compared(*made)).text
    assert [page.count(text) for text in ("1,005 more characters. ", "Show all 1,015 in the trace")] == [2, 2]


def test_texts_that_part_late_are_shown_from_shortly_before():
    alike = "word " * 1_600
    (_, (line,)) = side_by_side.compare_steps(
        [[Step("prompt", "user", "Go."), Step("reply", "assistant", alike + end, 1)] for end in ("yes", "n" * 6_000)]
    )
    assert [(cell.place, cell.before, cell.hidden, cell.characters) for cell in line.cells] == [
        (1, 7_800, 0, 8_003),
        (1, 7_800, 2_200, 14_000),
    ]
    assert [part.text for part in line.cells[0].parts if part.kind == "removed"] == ["yes"]


@pytest.mark.parametrize(
    ("texts", "start"),
    [
        ([], 0),
        (["x" * 9_000], 0),
        (["x" * 9_000] * 3, 0),
        (["a" + "x" * 9_000, "b" + "x" * 9_000], 0),
        (["x" * 9_000, "x" * 9_000 + "y"], 8_800),
        (["x" * 9_000, "x" * 8_000, "x" * 9_000], 7_800),
        (["x" * 3_799, "x" * 3_799 + "y"], 0),
    ],
)
def test_the_excerpt_begins_where_the_texts_differ(texts, start):
    assert side_by_side.find_start(texts) == start


def test_of_endless_traces_the_beginnings_are_compared_and_the_rest_is_counted(monkeypatch):
    monkeypatch.setattr(rollout_steps, "STEPS", 3)
    monkeypatch.setattr(rollout_steps, "EVENTS", 6)
    good, bad = two()
    comparison = signed_in().get(compared(good, bad)).context["comparison"]
    assert len(comparison.common) + len(comparison.lines) == 3
    # The reply and the verification.
    assert [(rollout.pk, left) for rollout, left in comparison.left_out] == [(good.pk, 2), (bad.pk, 2)]


def test_texts_too_long_for_a_word_diff_are_shown_whole(monkeypatch):
    monkeypatch.setattr(side_by_side, "COMPARED", 1)
    page = signed_in().get(compared(*two())).text
    assert ("<del>" in page, "It is 5." in page) == (False, True)


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("?r=x", "1 was given"),
        ("?r=999999,999998", "Unknown rollouts: #999999, #999998."),
        ("?r=1,2,3,4,5,6,7", "7 were given"),
    ],
)
def test_what_cannot_be_compared_is_refused_with_the_way_on(query, says):
    reply = signed_in().get(reverse("dashboard:rollout_compare") + query)
    assert reply.status_code == 400
    assert says in reply.text
    assert "select 2 to 6 rollouts" in reply.text


def test_without_a_choice_the_page_shows_the_way_to_one():
    reply = signed_in().get(reverse("dashboard:rollout_compare"))
    assert (reply.status_code, "0 were given" in reply.text) == (200, True)


def test_rollouts_of_different_tasks_are_refused():
    collection = make_collection()
    one, other, _ = (make_rollout(collection, task=task) for task in collection.version.tasks.all())
    reply = signed_in().get(compared(one, other))
    assert (reply.status_code, "belong to different tasks" in reply.text) == (400, True)


def test_the_same_task_in_two_versions_is_one_task():
    first, second = make_collection(), make_collection()
    other_task = second.version.tasks.first()
    first.version.tasks.filter(index=0).update(key="k")
    type(other_task).objects.filter(pk=other_task.pk).update(key="k", dataset=first.dataset)
    assert signed_in().get(compared(make_rollout(first), make_rollout(second))).status_code == 200


def test_a_sequence_of_pairs_is_read_one_after_the_other():
    good, bad = two()
    third = make_rollout(good.collection, reward=0.5)
    pairs = f"{good.pk}-{bad.pk},{good.pk}-{third.pk}"
    client, address = signed_in(), reverse("dashboard:rollout_compare")
    first = client.get(address, {"pairs": pairs})
    assert [each.pk for each in first.context["comparison"].rollouts] == [good.pk, bad.pk]
    assert 'rel="prev"' not in first.text
    following = next(each for each in read(first.text).all("a") if each.attributes.get("rel") == "next")
    second = client.get(following.attributes["href"])
    assert [each.pk for each in second.context["comparison"].rollouts] == [good.pk, third.pk]
    assert ('rel="prev"' in second.text, 'rel="next"' in second.text, "2 of 2" in second.text) == (True, False, True)
    assert client.get(address, {"pairs": pairs, "at": 99}).context["at"] == 2


def test_hostile_words_stay_text():
    collection = make_collection()
    made = [make_rollout(collection, trace=trace("1", "4", f"<img src=x onerror={word}>", 1.0)) for word in ("a", "b")]
    page = signed_in().get(compared(*made)).text
    assert "<img src=x" not in page
    assert "&lt;img src=x onerror=<del>a</del>&gt;" in page


def test_comparing_takes_a_query_for_each_trace_and_as_many_for_long_ones():
    collection = make_collection()
    task = collection.version.tasks.first()
    made = [make_rollout(collection, task=task, trace=[]) for _ in range(2)]
    seqs = iter(range(100))

    def add() -> None:
        seq = next(seqs)
        for rollout in made:
            rollout.events.create(attempt=1, seq=seq, kind="prompt", payload='{"type": "prompt", "items": []}')

    one, three = queries_with_one_and_three(lambda: compared(*made), add)
    assert one == three


def test_a_verdict_on_the_comparison_page_ignores_the_order():
    good, bad = two()
    client, judge = signed_in(), reverse("dashboard:rollouts_judge")
    chosen = f"{good.pk},{bad.pk}"
    assert client.post(judge, {"r": chosen, "choice": "", "note": "Kept."}).status_code == 422
    assert Queue.objects.count() == 0
    done = client.post(judge, {"r": chosen, "choice": "a_much", "token": "t", "note": "Shorter."})
    assert done["Location"] == compared(good, bad)
    queue = Queue.objects.get()
    assert (queue.kind, queue.is_blind, queue.named_reviewers) == ("pairwise", False, True)
    stands = read_verdicts(rollout_ids=[good.pk, bad.pk])[good.pk, bad.pk]
    assert (stands.winner, stands.strength, stands.how) == (good.pk, 2, "single")
    # The other way round it is the same one, and is replaced there.
    turned = client.get(compared(bad, good)).text
    assert 'value="b_much" checked' in turned
    assert "Shorter." in turned
    client.post(judge, {"r": f"{bad.pk},{good.pk}", "choice": "a", "token": "u"})
    stands = read_verdicts(rollout_ids=[good.pk, bad.pk])[good.pk, bad.pk]
    assert (stands.winner, stands.strength, stands.how) == (bad.pk, 1, "single")
    assert client.get(judge)["Location"] == reverse("dashboard:rollout_compare")
    assert Queue.objects.count() == 1
    assert faults(client.get(compared(good, bad)).text) == []


def test_three_are_ranked_where_one_compares_and_a_sequence_goes_on():
    good, bad = two()
    third = make_rollout(good.collection, reward=0.5)
    ids = [third.pk, good.pk, bad.pk]
    ranks = {f"rank-{place}": rank for place, rank in enumerate((2, 1, 2))}
    client, judge = signed_in(), reverse("dashboard:rollouts_judge")
    client.post(judge, {"r": ",".join(map(str, ids)), **ranks, "token": "t"})
    stand = read_verdicts(rollout_ids=ids)
    assert [stand[pair].winner for pair in sorted(stand)] == [good.pk, good.pk, None]
    assert "Your verdict" in client.get(compared(third, good, bad)).text
    pairs = f"{good.pk}-{bad.pk},{good.pk}-{third.pk}"
    done = client.post(judge, {"pairs": pairs, "at": "1", "choice": "a", "token": "u"})
    assert done["Location"].endswith("&at=2")


def test_a_compared_group_can_be_queued_or_flagged():
    rollouts = [*two(), make_rollout(Collection.objects.get(), reward=0.5)]
    ids, client = [each.pk for each in rollouts], signed_in()
    sent = client.post(reverse("dashboard:selected_queue"), {"r": ids, "kind": "ranking", "size": "3", "per_task": "3"})
    form = client.get(sent["Location"]).context["form"]
    assert (form["kind"].value(), form["size"].value(), form["rollouts"].value()) == (
        "ranking",
        "3",
        " ".join(map(str, ids)),
    )
    flag = {"r": ",".join(map(str, ids)), "kind": "hallucinated", "note": "All guess."}
    assert client.post(reverse("dashboard:rollouts_flag"), flag)["Location"] == compared(*rollouts)
    assert sorted(Flag.objects.values_list("rollout", "kind", "note")) == [
        (pk, "hallucinated", "All guess.") for pk in ids
    ]
    viewer = signed_in(Role.VIEWER)
    for name in ("rollouts_flag", "rollouts_judge", "selected_queue"):
        assert viewer.post(reverse(f"dashboard:{name}"), flag).status_code == 403
    page = viewer.get(compared(*rollouts)).text
    assert [words in page for words in ("Choose winner", "Flag all", "Send to queue")] == [False] * 3
    page = client.get(compared(*rollouts)).text
    assert [words in page for words in ("Choose winner", "Flag all", "Send to queue")] == [True] * 3
