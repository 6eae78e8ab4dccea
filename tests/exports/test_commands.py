"""The two steps from the command line."""

import hashlib
import json
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from apps.exports.making import make_queued_pair_set
from apps.exports.models import Export, PairSet
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


def test_a_file_without_rows_says_what_became_of_them(tmp_path):
    made = make_collection()
    make_rollout(made, reward=0.0, trace=make_trace("5", 0.0))
    said = export_aside(made, "trl_sft", tmp_path / "sft.jsonl")
    assert said == "The file holds no rows: considered 1, dropped: 1 below min reward.\n"


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
    with pytest.raises(CommandError, match="Say why"):
        command(*words, "reject", "--all", "--by", "erika")
    with pytest.raises(CommandError, match="has no pair 999999"):
        command(*words, "accept", "--pair", 999_999, "--by", "erika")
    assert "1 changed" in command(*words, "reject", "--pair", pair.pk, "--reason", "Both guess.", "--by", "erika")
    told = json.loads(command(*words, "accept", "--all", "--below-margin", "0.5", "--by", "erika", "--json"))
    assert told == {"pair_set": pair_set.pk, "changed": 0, "proposed": 0, "accepted": 0, "rejected": 1}
    assert "1 accepted" in command(*words, "accept", "--all", "--source", "reward", "--by", "erika")
    assert [(one.status, one.user.username) for one in pair.decisions.order_by("id")] == [
        ("rejected", "erika"),
        ("accepted", "erika"),
    ]
    assert "1 accepted" in command(*words, "show")
