"""The two steps from the command line."""

import hashlib
import json
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from apps.accounts.models import Role
from apps.exports.models import Export
from apps.pairs.models import PairSet
from apps.pairs.pair_set_jobs import make_queued_pair_set
from apps.reviews.models import Queue
from tests.factories import make_collection, make_rollout, make_trace, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def collection():
    made = make_collection()
    make_rollout(made, reward=1.0, trace=make_trace("4", 1.0))
    make_rollout(made, reward=0.0, trace=make_trace("5", 0.0))
    return made


def command(*arguments):
    out = StringIO()
    call_command(*map(str, arguments), stdout=out)
    return out.getvalue()


def test_build_pairs_prints_what_it_built(collection):
    found = json.loads(command("build_pairs", "--collection", collection.pk, "--margin", 0.5, "--json"))
    pair_set = PairSet.objects.get()
    assert (found["pair_set"], found["pairs"], found["groups"]["paired"]) == (pair_set.pk, 1, 1)
    assert pair_set.margin == 0.5
    assert "1 pairs" in command("build_pairs", "--collection", collection.pk)


def test_export_writes_a_file_that_matches_what_it_prints(collection, tmp_path):
    out = tmp_path / "sft.jsonl"
    found = json.loads(command("export", "--collection", collection.pk, "--format", "trl_sft", "--out", out, "--json"))
    assert (found["rows"], found["sha256"]) == (1, hashlib.sha256(out.read_bytes()).hexdigest())
    assert found["export"] == Export.objects.get().pk


def test_export_without_json_reads_as_a_summary(collection, tmp_path):
    out = tmp_path / "all.jsonl"
    said = command(
        "export", "--collection", collection.pk, "--format", "nemo_gym_rollouts", "--out", out, "--min-reward", 0.5
    )
    assert f"{out}: 1 rows" in said
    assert "dropped: 1 below min reward" in said


def test_build_pairs_counts_without_making_and_makes_by_every_part_of_the_rule(collection):
    words = ["build_pairs", "--collection", collection.pk, "--mode", "all", "--per-task", 2, "--max-length-ratio", 9]
    words += ["--level", "step", "--min-chosen-reward", 0.5, "--same", "completions", "--reward-from", "override"]
    words += ["--include-truncated", "--include-redacted", "--json"]
    counted = json.loads(command(*words, "--count"))
    assert PairSet.objects.count() == 0
    queued = json.loads(command(*words, "--name", "sums", "--forget-decisions", "--queue"))
    assert (queued["state"], queued["name"], queued["version"]) == ("queued", "sums", 1)
    assert make_queued_pair_set() is True
    pair_set = PairSet.objects.get()
    assert (pair_set.pair_count, pair_set.counts) == (counted["pairs"], counted["groups"])
    assert (pair_set.keeps_decisions, pair_set.rule) == (
        False,
        {
            "mode": "all",
            "level": "step",
            "margin": 0.1,
            "min_chosen_reward": 0.5,
            "per_task": 2,
            "max_length_ratio": 9.0,
            "same": "completions",
            "include_truncated": True,
            "include_redacted": True,
            "reward_from": "override",
        },
    )


def test_a_dpo_export_takes_the_newest_pair_set(collection, tmp_path):
    command("build_pairs", "--collection", collection.pk)
    command("build_pairs", "--collection", collection.pk)
    command("export", "--collection", collection.pk, "--format", "trl_dpo", "--out", tmp_path / "dpo.jsonl")
    assert Export.objects.get().pair_set == PairSet.objects.order_by("id").last()


def export_aside(collection, format, out):
    """What goes to standard error while the command writes."""
    err = StringIO()
    arguments = ["--collection", str(collection.pk), "--format", format, "--out", str(out)]
    call_command("export", *arguments, stdout=StringIO(), stderr=err)
    return err.getvalue()


def test_a_dpo_export_says_which_pair_set_it_took(collection, tmp_path):
    command("build_pairs", "--collection", collection.pk)
    newest = PairSet.objects.get()
    said = export_aside(collection, "trl_dpo", tmp_path / "dpo.jsonl")
    assert said == f"Exporting {newest}, its newest; --pair-set names another.\n"
    assert str(newest) == f"pair set #{newest.pk} of #{collection.pk} {collection.name}"


def test_a_pair_set_without_pairs_makes_no_file(tmp_path):
    made = make_collection()
    command("build_pairs", "--collection", made.pk)
    with pytest.raises(CommandError, match="holds no pairs"):
        export_aside(made, "trl_dpo", tmp_path / "dpo.jsonl")
    assert list(tmp_path.iterdir()) == []


def test_without_rows_there_is_no_file_and_it_is_said_what_became_of_them(tmp_path):
    made = make_collection()
    make_rollout(made, reward=0.0, trace=make_trace("5", 0.0))
    (tmp_path / "sft.jsonl").write_text("of an earlier one")
    said = export_aside(made, "trl_sft", tmp_path / "sft.jsonl")
    assert said == "No row is left, so no file: considered 1, dropped: 1 below min reward.\n"
    assert [one.name for one in tmp_path.iterdir()] == ["sft.jsonl.manifest.json"]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["build_pairs", "--collection", "0"], "no collection 0"),
        (["build_pairs", "--collection", "{id}", "--margin", "-1"], "margin"),
        (["export", "--collection", "0", "--format", "trl_sft", "--out", "x"], "no collection 0"),
        (["export", "--collection", "{id}", "--format", "trl_dpo", "--out", "x"], "needs a pair set"),
        (["export", "--collection", "{id}", "--format", "trl_dpo", "--out", "x", "--pair-set", "0"], "no pair set 0"),
        (["export", "--collection", "{id}", "--format", "trl_sft", "--out", "/dev/null/x"], "ended failed"),
    ],
)
def test_what_cannot_be_done_ends_in_a_sentence(collection, arguments, why):
    with pytest.raises(CommandError, match=why):
        command(*(one.format(id=collection.pk) for one in arguments))
    assert not Path("x").exists()


def test_pairs_are_accepted_and_rejected_from_the_command_line(collection):
    make_user(username="erika")
    command("build_pairs", "--collection", collection.pk)
    pair_set = PairSet.objects.get()
    pair = pair_set.pairs.get()
    words = ["decide_pairs", pair_set.pk]
    make_user(Role.ANNOTATOR, username="ann")
    with pytest.raises(CommandError, match="ann may not build pairs: that takes the role of an engineer"):
        command(*words, "accept", "--all", "--by", "ann")
    with pytest.raises(CommandError, match="Say who"):
        command(*words, "accept", "--all")
    with pytest.raises(CommandError, match="Say why"):
        command(*words, "reject", "--all", "--by", "erika")
    with pytest.raises(CommandError, match="has no pair 999999"):
        command(*words, "accept", "--pair", 999_999, "--by", "erika")
    assert "1 changed" in command(*words, "reject", "--pair", pair.pk, "--reason", "Both guess.", "--by", "erika")
    told = json.loads(command(*words, "accept", "--all", "--below-margin", "0.5", "--by", "erika", "--json"))
    assert told == {"pair_set": pair_set.pk, "changed": 0, "spared": 0, "proposed": 0, "accepted": 0, "rejected": 1}
    assert "1 accepted" in command(*words, "accept", "--all", "--source", "reward", "--by", "erika")
    assert [(one.status, one.user.username) for one in pair.decisions.order_by("id")] == [
        ("rejected", "erika"),
        ("accepted", "erika"),
    ]
    assert "1 accepted" in command(*words, "show")


def test_the_first_pairs_that_a_rule_would_make_are_printed_with_their_number(collection):
    words = ["build_pairs", "--collection", collection.pk, "--count", "--preview", 5]
    best, worst = collection.rollouts.order_by("-reward").values_list("pk", flat=True)
    told = json.loads(command(*words, "--json"))["first"]
    assert [(one["chosen"], one["rejected"], one["margin"], one["source"]) for one in told] == [
        (best, worst, 1.0, "reward")
    ]
    assert f"{best} over {worst}, margin 1.0, by reward" in command(*words)
    assert PairSet.objects.count() == 0


def test_sets_and_their_pairs_are_listed_and_what_changed_between_two_versions_is_told(collection):
    make_user(username="erika")
    command("build_pairs", "--collection", collection.pk, "--name", "sums", "--by", "erika")
    command("build_pairs", "--collection", collection.pk, "--name", "sums", "--margin", 0.5)
    command("build_pairs", "--collection", collection.pk, "--name", "none", "--margin", 9)
    first, second, none = PairSet.objects.order_by("pk")
    assert (first.created_by.username, second.created_by) == ("erika", None)
    listed = [json.loads(line) for line in command("list_pairs", "--name", "sums", "--json").splitlines()]
    assert [(one["pair_set"], one["version"], one["pairs"]) for one in listed] == [(first.pk, 1, 1), (second.pk, 2, 1)]
    assert command("list_pairs").splitlines()[2] == f"{none.pk}: none v1, of collection {collection.pk}, ready, 0 pairs"
    pair = first.pairs.get()
    shown = f"{pair.pk}: {pair.chosen_id} over {pair.rejected_id}, margin 1, by reward, proposed\n"
    assert command("list_pairs", first.pk, "--status", "proposed", "--below-margin", 2) == shown
    assert command("list_pairs", first.pk, "--flag", "long") == ""
    told = json.loads(command("list_pairs", second.pk, "--task", pair.task_id, "--json"))
    assert (told["rewards"], told["verifier_rewards"], told["lengths"]) == ([1.0, 0.0], {}, [22, 22])
    assert (told["strength"], told["reviewers"], told["agreement"], told["adjudicated"]) == (0, 0, None, False)
    assert command("list_pairs", "--pair", pair.pk) == f"Nobody has decided of pair {pair.pk}: it is proposed.\n"
    assert command("list_pairs", "--pair", pair.pk, "--json") == ""
    command("decide_pairs", first.pk, "reject", "--all", "--reason", "Both guess.", "--by", "erika")
    assert command("list_pairs", "--pair", pair.pk).startswith("rejected by erika, ")
    assert json.loads(command("list_pairs", "--pair", pair.pk, "--json"))["reason"] == "Both guess."
    changes = command("lead_pairs", second.pk, "changes").splitlines()
    assert changes == ["sums v2 since v1: 0 added, 0 removed, 1 kept, 0 turned round", "  margin was 0.1, is 0.5"]
    told = json.loads(command("lead_pairs", second.pk, "changes", "--since", 1, "--json"))
    assert (told["before"], told["after"], told["kept"]) == (first.pk, second.pk, 1)
    assert told["settings"] == {"margin": [0.1, 0.5]}


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["list_pairs", 999_999], "There is no pair set 999999"),
        (["list_pairs", "--pair", 999_999], "There is no pair 999999"),
        (["list_pairs", "--status", "proposed"], "--status does not go with what you list"),
        (["lead_pairs", 999_999, "changes"], "There is no pair set 999999"),
        (["lead_pairs", "{set}", "changes"], "has no earlier version that is ready"),
        (["lead_pairs", "{set}", "changes", "--since", 7], "has no earlier version 7 that is ready"),
        (["lead_pairs", "{set}", "cancel", "--by", "erika"], "only one that is being made can be cancelled"),
        (["lead_pairs", "{set}", "ask", "--limit", 0, "--by", "erika"], "People are asked about 1 to 1,000 pairs"),
        (["lead_pairs", "{set}", "ask", "--overlap", 99, "--by", "erika"], "less than or equal to 20"),
        (["lead_pairs", "{set}", "ask", "--by", "ann"], "ann may not lead queues"),
        (["lead_pairs", "{set}", "delete", "--by", "nobody"], "There is nobody called nobody"),
    ],
)
def test_what_cannot_be_done_with_a_pair_set_ends_in_a_sentence(collection, words, why):
    make_user(username="erika"), make_user(Role.ANNOTATOR, username="ann")
    command("build_pairs", "--collection", collection.pk)
    given = [str(one).format(set=PairSet.objects.get().pk) for one in words]
    with pytest.raises(CommandError, match=why):
        command(*given)
    assert (PairSet.objects.count(), Queue.objects.count()) == (1, 0)


def test_people_are_asked_about_pairs_and_a_set_is_cancelled_and_deleted_from_the_command_line(collection):
    erika = make_user(username="erika")
    command("build_pairs", "--collection", collection.pk, "--name", "sums")
    pair_set = PairSet.objects.get()
    words = ["lead_pairs", pair_set.pk, "ask", "--limit", 5, "--overlap", 2, "--name", "Close ones", "--by", "erika"]
    told = json.loads(command(*words, "--json"))
    queue = Queue.objects.get()
    assert told == {"queue": queue.pk, "items": 1}
    assert (queue.name, queue.kind, queue.overlap, queue.created_by) == ("Close ones", "pairwise", 2, erika)
    with pytest.raises(CommandError, match="has no proposed pair that nobody has judged and no open queue asks about"):
        command(*words)
    command("build_pairs", "--collection", collection.pk, "--name", "sums", "--queue")
    second = PairSet.objects.get(version=2)
    assert "sums v2 is cancelled" in command("lead_pairs", second.pk, "cancel", "--by", "erika")
    assert json.loads(command("lead_pairs", second.pk, "delete", "--by", "erika", "--json")) == {"deleted": second.pk}
    assert list(PairSet.objects.all()) == [pair_set]
