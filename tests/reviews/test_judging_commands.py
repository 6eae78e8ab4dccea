"""What a reviewer does on pages is done from the command line, too, by the same rules."""

import io
import json

import pytest
from django.core.management import CommandError, call_command

from apps.accounts.models import Role
from apps.reviews.models import Comment, Flag, Queue, Review, Rubric
from apps.reviews.queues.queue_changes import close_queue, create_queue
from apps.reviews.queues.queue_items import fill_from_sets
from apps.rollouts.models import Rollout
from tests.factories import (
    make_collection,
    make_dataset,
    make_policy_model,
    make_rollout,
    make_row,
    make_trace,
    make_user,
)
from tests.reviews.queues import CRITERIA, annotator, judge, make_queue, make_rubric

pytestmark = pytest.mark.django_db


def run(*words: object) -> str:
    out = io.StringIO()
    call_command(*map(str, words), stdout=out)
    return out.getvalue()


def told(*words: object) -> dict:
    return json.loads(run(*words, "--json"))


def test_a_queue_is_reviewed_skipped_and_taken_back_from_the_command_line():
    queue, ann = make_queue(pairs=2), annotator(username="ann")
    words = ["review_queue", queue.pk]
    with pytest.raises(CommandError, match="ann holds no item of queue “Queue”"):
        run(*words, "submit", "--choice", "a", "--by", "ann")
    first = told(*words, "next", "--by", "ann")
    assert told(*words, "next", "--by", "ann")["review"] == first["review"]
    kept = told(*words, "keep", "--draft", '{"note": "So far."}', "--by", "ann")
    assert (kept["draft"], kept["leased_until"] > first["leased_until"]) == ({"note": "So far."}, True)
    assert "note: So far." in run(*words, "next", "--by", "ann")
    with pytest.raises(CommandError, match="Say which is better"):
        run(*words, "submit", "--by", "ann")
    submit = [*words, "submit", "--review", first["review"], "--token", "mine", "--choice", "b_much", "--by", "ann"]
    for _ in range(2):
        assert told(*submit, "--confidence", 3, "--reason", "safety")["status"] == "submitted"
    with pytest.raises(CommandError, match="is not the last"):
        run(*words, "undo", "--review", first["review"] + 1, "--by", "ann")
    for _ in range(2):
        assert told(*words, "undo", "--review", first["review"], "--by", "ann")["draft"]["confidence"] == 3
    following = told(*words, "submit", "--choice", "equal", "--next", "--by", "ann")["next"]
    assert following == told(*words, "next", "--by", "ann") | {"leased_until": following["leased_until"]}
    assert "is skipped" in run(*words, "skip", "--reason", "Too long.", "--by", "ann")
    assert "Nothing is left" in run(*words, "next", "--by", "ann")
    assert told(*words, "next", "--by", "ann") == {"review": None}
    reviews = ann.reviews.order_by("pk").values_list("status", "choice", "skip_reason")
    assert list(reviews) == [("submitted", "equal", ""), ("skipped", "", "Too long.")]


def test_two_reviewers_on_the_command_line_never_hold_the_same_item_and_nobody_submits_anothers():
    queue = make_queue(pairs=2)
    for name in ("ann", "ben"):
        annotator(username=name)
    held = {name: told("review_queue", queue.pk, "next", "--by", name)["review"] for name in ("ann", "ben")}
    assert Review.objects.filter(pk__in=held.values()).values("item").distinct().count() == 2
    with pytest.raises(CommandError, match=f"ben has no review {held['ann']}"):
        run("review_queue", queue.pk, "submit", "--review", held["ann"], "--choice", "a", "--by", "ben")
    make_user(Role.VIEWER, username="vera")
    with pytest.raises(CommandError, match="vera may not review: that takes the role of an annotator"):
        run("review_queue", queue.pk, "next", "--by", "vera")


def test_what_a_queue_hides_stands_in_nothing_that_its_next_item_prints():
    dataset = make_dataset([make_row(answer="SECRET")])
    collection = make_collection(dataset=dataset, policy_model=make_policy_model(name="HIDDEN"))
    pair = [make_rollout(collection, trace=make_trace("4\x1b[2J", 0.8125), reward=0.8125).pk for _ in range(2)]
    blind = create_queue(
        queue=Queue(name="Blind", kind="pairwise"), items=fill_from_sets([pair], kind="pairwise"), user=None
    )
    annotator(username="ann")
    texts = [run("review_queue", blind.pk, "next", "--by", "ann", *how) for how in ((), ("--json",))]
    assert [word for word in ("SECRET", "0.8125", "HIDDEN") for text in texts if word in text] == []
    assert [("\x1b" in text, "[2J" in text) for text in texts] == [(False, True)] * 2


def test_a_queue_that_reveals_tells_what_was_behind_the_sides_once_it_is_submitted():
    queue, ann = make_queue(pairs=1, reveals=True), annotator(username="ann")
    run("review_queue", queue.pk, "next", "--by", "ann")
    said = told("review_queue", queue.pk, "submit", "--choice", "a", "--by", "ann")
    assert [each["rollout"] for each in said["revealed"]] == ann.reviews.get().arrangement
    assert sorted(each["reward"] for each in said["revealed"]) == [0.0, 1.0]


def test_queues_are_listed_with_how_far_they_are_and_with_what_waits_for_somebody():
    first, second = make_queue(pairs=3, overlap=2, repeat_share=0.34), make_queue(pairs=1, size=1)
    ann = annotator(username="ann")
    judge(first, ann)
    close_queue(queue=second, user=None)
    assert run("list_queues").splitlines() == [
        f"{first.pk}: Queue, pairwise, open, 3 items, 1 of 6 reviews",
        f"{second.pk}: Queue, rubric, closed, 1 items, 0 of 1 reviews",
    ]
    assert run("list_queues", "--kind", "rubric", "--open") == ""
    closed = told("list_queues", "--closed")
    assert (closed["queue"], closed["rubric"], closed["is_open"]) == (second.pk, second.rubric.slug, False)
    waiting = told("list_queues", "--waiting-for", "ann")
    assert (waiting["queue"], waiting["left"]) == (first.pk, 3)
    assert run("list_queues", "--waiting-for", "ann").endswith("1 of 6 reviews, 3 left\n")


def test_the_items_of_a_queue_are_listed_with_what_is_settled():
    queue = make_queue(pairs=2, overlap=2)
    ann, ben = annotator(username="ann"), annotator(username="ben")
    one = judge(queue, ann, "a")
    judge(queue, ben, "both_bad")
    items = told("lead_queue", queue.pk, "items")["items"]
    assert [(each["reviews"], each["is_adjudicated"]) for each in items if each["item"] == one.item_id] == [(2, False)]
    assert [sorted(each["rollouts"]) for each in items if each["item"] == one.item_id] == [sorted(one.arrangement)]
    line = next(line for line in run("lead_queue", queue.pk, "items").splitlines() if f"item {one.item_id}:" in line)
    assert line.endswith("2 reviews, 100% differ")


def test_a_rubric_is_made_shown_changed_and_deleted_from_the_command_line(tmp_path):
    make_user(username="erika")
    file = tmp_path / "criteria.json"
    file.write_text(json.dumps(CRITERIA))
    create = ["rubrics", "create", "clarity", "--name", "Clarity", "--criteria", file, "--by", "erika"]
    assert run(*create) == "clarity: Clarity, right, clear, why\n"
    with pytest.raises(CommandError, match="There is a rubric clarity already"):
        run(*create)
    assert json.loads(run("rubrics", "show", "clarity")) == CRITERIA
    file.write_text(json.dumps(CRITERIA[:1]))
    run("rubrics", "change", "clarity", "--description", "How it reads.", "--criteria", file, "--by", "erika")
    rubric = Rubric.objects.get()
    assert (rubric.name, rubric.description, rubric.criteria) == ("Clarity", "How it reads.", CRITERIA[:1])
    assert rubric.created_by.username == "erika"
    assert [each["slug"] for each in told("rubrics", "list")["rubrics"]] == ["clarity"]
    make_queue(pairs=1, size=1, rubric=rubric)
    for words in (["delete", "clarity"], ["change", "clarity", "--criteria", tmp_path / "more.json"]):
        (tmp_path / "more.json").write_text(json.dumps(CRITERIA))
        with pytest.raises(CommandError, match="is used by reviews or queues"):
            run("rubrics", *words, "--by", "erika")
    Queue.objects.all().delete()
    assert told("rubrics", "delete", "clarity", "--by", "erika") == {"deleted": "clarity"}
    assert run("rubrics", "list") == "There are no rubrics.\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["rubrics", "show", "none"], "There is no rubric none"),
        (["rubrics", "create", "x", "--name", "X", "--criteria", "missing.json", "--by", "erika"], "is no JSON file"),
        (["rubrics", "delete", "none", "--by", "ann"], "ann may not lead queues"),
        (["judge_rollout", 999_999, "show"], "There is no rollout 999999"),
        (["judge_rollout", "{rollout}", "flag", "other", "--step", 99, "--by", "erika"], "has no event 99"),
        (["judge_rollout", "{rollout}", "withdraw-flag", 7, "--by", "erika"], "has no flag 7"),
        (
            ["judge_rollout", "{rollout}", "score", "none", "--scores", "{{}}", "--by", "erika"],
            "There is no rubric none",
        ),
        (["judge_rollout", "{rollout}", "score", "fine", "--scores", "{{}}", "--by", "erika"], "required"),
        (["judge_rollout", "{rollout}", "score", "fine", "--scores", "[1]", "--by", "erika"], "is a JSON object"),
        (["judge_rollout", "{rollout}", "comment", " ", "--by", "erika"], "needs a text"),
        (
            ["judge_rollout", "{rollout}", "comment", "Hm.", "--by", "vera"],
            "vera may not comment on, flag or score rollouts",
        ),
        (["judge_rollout", "{rollout}", "comment", "Hm.", "--by", ""], "Say who"),
        (
            ["judge_rollout", "{rollout}", "flag", "other", "--by", "ann"],
            "ann may not comment on, flag or score rollouts",
        ),
        (["list_judgements", "flags", "--collection", 999_999], "There is no collection 999999"),
        (["review_queue", 999_999, "next", "--by", "ann"], "There is no queue 999999"),
    ],
)
def test_what_cannot_be_said_ends_in_a_sentence(words, said):
    make_user(username="erika"), annotator(username="ann"), make_user(Role.VIEWER, username="vera")
    rollout, _ = make_rollout(make_collection()), make_rubric(slug="fine")
    with pytest.raises(CommandError, match=said):
        run(*(str(one).format(rollout=rollout.pk) for one in words))
    assert (Flag.objects.count(), Comment.objects.count(), Review.objects.count()) == (0, 0, 0)


def test_a_rollout_is_flagged_scored_and_commented_on_from_the_command_line():
    rollout, _ = make_rollout(make_collection()), make_rubric(slug="fine")
    make_user(username="ann"), make_user(username="erika")
    words = ["judge_rollout", rollout.pk]
    flag = told(*words, "flag", "wrong_tool", "--step", 2, "--note", "Not this one.", "--by", "ann")
    assert (flag["kind"], flag["seq"], flag["author"]) == ("wrong_tool", 2, "ann")
    for clear in (3, 4):
        run(*words, "score", "fine", "--scores", json.dumps({"right": True, "clear": clear}), "--by", "ann")
    asked = told(*words, "comment", "Why?", "--step", 4, "--quote", "4", "--start", 0, "--by", "ann")
    answer = told(*words, "comment", "It is right.", "--answers", asked["comment"], "--by", "erika")
    assert (answer["parent"], answer["seq"]) == (asked["comment"], 4)
    assert told(*words, "settle", asked["comment"], "--by", "erika")["resolved_by"] == "erika"
    shown = told(*words, "show")
    assert [each["scores"] for each in shown["scores"]] == [{"right": True, "clear": 4}]
    assert [each["text"] for each in shown["comments"]] == ["Why?", "It is right."]
    assert told(*words, "reopen", answer["comment"], "--by", "ann")["resolved_at"] is None
    run(*words, "withdraw-flag", flag["flag"], "--by", "erika")
    assert run(*words, "show").splitlines() == [
        f"flag {flag['flag']}: wrong_tool at step 2 by ann, withdrawn: Not this one.",
        f"review {shown['scores'][0]['review']} by fine by ann: right True, clear 4",
        f"comment {asked['comment']} at step 4 by ann: Why?",
        f"comment {answer['comment']} at step 4 by erika, answers {asked['comment']}: It is right.",
    ]
    of = ["--collection", rollout.collection_id]
    assert [json.loads(line)["flag"] for line in run("list_judgements", "flags", *of).splitlines()] == [flag["flag"]]
    lines = run("list_judgements", "comments", "--text", *of).splitlines()
    assert [line.split(":")[-1] for line in lines] == [" Why?", " It is right."]
    assert json.loads(run("list_judgements", "scores", *of))["reviewer"] == "ann"
    assert "Nobody has said anything" in run("judge_rollout", make_rollout(make_collection()).pk, "show")


def test_the_verdicts_that_stand_between_rollouts_are_written():
    queue = make_queue(pairs=1)
    review = judge(queue, annotator(), "a")
    low, high = sorted(review.arrangement)
    collection = Rollout.objects.get(pk=low).collection_id
    said = json.loads(run("list_judgements", "verdicts", "--collection", collection))
    assert (said["low"], said["high"], said["winner"], said["how"]) == (low, high, review.arrangement[0], "single")
    words = f"{low} and {high}: {review.arrangement[0]} is better, single, 1 of 1 say so\n"
    assert run("list_judgements", "verdicts", "--text", "--collection", collection) == words
