"""A queue is made, and its reviews are written, from the command line."""

import csv
import io
import json

import pytest
from django.core.management import CommandError, call_command

from apps.reviews.models import Queue, QueueItem, RewardOverride
from tests.factories import make_collection, make_rollout, make_user
from tests.reviews.queues import annotator, judge, make_queue, make_rubric

pytestmark = pytest.mark.django_db


def run(*words: str) -> str:
    out = io.StringIO()
    call_command(*words, stdout=out)
    return out.getvalue()


def test_a_queue_is_made_of_a_collection_of_numbers_or_of_a_file(tmp_path):
    collection, ann = make_collection(), annotator(username="ann")
    ids = [make_rollout(collection).pk for _ in range(4)]
    told = json.loads(run("make_queue", "All", "--collection", str(collection.pk), "--per-task", "6", "--json"))
    assert told["items"] == 6
    make_rubric(slug="clarity")
    words = ["--kind", "rubric", "--rubric", "clarity", "--rollouts", f"{ids[0]},{ids[1]}", "--reviewer", "ann"]
    assert "2 items" in run("make_queue", "Two", *words)
    assert [each.user for each in Queue.objects.get(name="Two").reviewers.all()] == [ann]
    file = tmp_path / "pairs.jsonl"
    file.write_text(f"[{ids[0]}, {ids[1]}]\n\n[{ids[2]}, {ids[3]}]\n")
    assert "2 items, seed 9" in run("make_queue", "Pairs", "--items", str(file), "--seed", "9")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--collection", "999999"], "There is no collection"),
        (["--rollouts", "a,b"], "by their numbers"),
        (["--rollouts", "1", "--reviewer", "nobody"], "nobody called nobody"),
        (["--rollouts", "999998,999999"], "nothing to review"),
        (["--kind", "rubric", "--rubric", "none", "--rollouts", "1"], "There is no rubric"),
    ],
)
def test_what_cannot_be_made_is_said(words, said):
    with pytest.raises(CommandError, match=said):
        run("make_queue", "No", *words)


def test_reviews_are_written_as_json_lines_and_csv(tmp_path):
    queue = make_queue(pairs=2)
    ann = annotator(username="ann")
    first = judge(queue, ann, "a_much")
    judge(queue, ann, "both_bad")
    rows = [json.loads(line) for line in run("export_reviews", str(queue.pk)).splitlines()]
    assert [(row["reviewer"], row["choice"], row["winner"], row["strength"]) for row in rows] == [
        ("ann", "a_much", first.arrangement[0], 2),
        ("ann", "both_bad", None, 0),
    ]
    out = tmp_path / "reviews.csv"
    run("export_reviews", str(queue.pk), "--format", "csv", "--out", str(out))
    lines = list(csv.DictReader(io.StringIO(out.read_text())))
    assert [line["rollouts"] for line in lines] == [json.dumps(row["rollouts"], separators=(",", ":")) for row in rows]


def test_a_queue_is_led_from_the_command_line():
    queue, erika = make_queue(pairs=2, overlap=2), make_user(username="erika")
    first = judge(queue, annotator(username="ann"), "a")
    judge(queue, annotator(username="ben"), "both_bad")
    told = json.loads(run("lead_queue", str(queue.pk), "figures", "--json"))
    assert (told["progress"]["reviews"], told["agreement"][0]["percent"]) == (2, 0.0)
    assert [each["username"] for each in told["reviewers"]] == ["ann", "ben"]
    assert "1 disputed" in run("lead_queue", str(queue.pk), "figures")
    assert f"item {first.item_id}: rollouts" in run("lead_queue", str(queue.pk), "disputes")
    settle = ["lead_queue", str(queue.pk), "settle", str(first.item_id), "--by", "erika"]
    with pytest.raises(CommandError, match="Say which is better"):
        run(*settle)
    run(*settle, "--choice", "b_much", "--reason", "safety")
    assert QueueItem.objects.get(pk=first.item_id).is_adjudicated is True
    assert json.loads(run("lead_queue", str(queue.pk), "disputes", "--json")) == {"disputed": []}
    change = ["lead_queue", str(queue.pk), "change", "--by", "erika"]
    run(*change, "--overlap", "3", "--instructions", "New.", "--reviewer", "ann")
    queue.refresh_from_db()
    assert (queue.overlap, queue.instructions, queue.named_reviewers, queue.name) == (3, "New.", True, "Queue")
    run("lead_queue", str(queue.pk), "close", "--by", "erika")
    with pytest.raises(CommandError, match="close it instead"):
        run("lead_queue", str(queue.pk), "delete", "--by", "erika")
    with pytest.raises(CommandError, match="may not lead queues"):
        run("lead_queue", str(queue.pk), "open", "--by", "ann")
    assert Queue.objects.get().is_open is False
    assert erika.reviews.get().choice == "b_much"


def test_rewards_that_people_set_are_given_withdrawn_and_written_from_the_command_line():
    rollout = make_rollout(make_collection(), reward=1.0)
    make_user(username="erika")
    for reward, reason in (("0.5", "Half."), ("0.25", "Less.")):
        run("override_reward", str(rollout.pk), "--reward", reward, "--reason", reason, "--by", "erika")
    told = json.loads(run("override_reward", str(rollout.pk), "--withdraw", "--by", "erika", "--json"))
    said = [(each["reward"], each["reason"], each["ended_how"]) for each in told["overrides"]]
    assert (told["verifier_reward"], said) == (1.0, [(0.5, "Half.", "replaced"), (0.25, "Less.", "withdrawn")])
    lines = run("override_reward", "--collection", str(rollout.collection_id)).splitlines()
    assert [json.loads(line)["author"] for line in lines] == ["erika", "erika"]
    assert "0.25 by erika" in run("override_reward", str(rollout.pk))
    with pytest.raises(CommandError, match="Say why"):
        run("override_reward", str(rollout.pk), "--reward", "0", "--by", "erika")
    with pytest.raises(CommandError, match="Say who"):
        run("override_reward", str(rollout.pk), "--withdraw")
    assert RewardOverride.objects.count() == 2
