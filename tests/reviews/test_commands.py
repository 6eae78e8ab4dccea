"""A queue is made, and its reviews are written, from the command line."""

import csv
import io
import json

import pytest
from django.core.management import CommandError, call_command

from apps.reviews.models import Queue
from tests.factories import make_collection, make_rollout
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
