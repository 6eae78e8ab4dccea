"""`manage.py export`."""

import hashlib
import json
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from apps.exports.models import Export
from apps.pairs.pair_sets import PairOrder, build_pairs
from tests.factories import make_collection, make_rollout, make_trace

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
    assert "left out: 1 below the minimum reward" in said


def test_a_dpo_export_takes_the_newest_pair_set(collection, tmp_path):
    first, newest = (build_pairs(PairOrder(collection=collection)) for _ in range(2))
    command("export", "--collection", collection.pk, "--format", "trl_dpo", "--out", tmp_path / "dpo.jsonl")
    assert Export.objects.get().pair_set == newest != first


def export_aside(collection, format, out):
    """What goes to standard error while the command writes."""
    err = StringIO()
    arguments = ["--collection", str(collection.pk), "--format", format, "--out", str(out)]
    call_command("export", *arguments, stdout=StringIO(), stderr=err)
    return err.getvalue()


def test_a_dpo_export_says_which_pair_set_it_took(collection, tmp_path):
    newest = build_pairs(PairOrder(collection=collection))
    said = export_aside(collection, "trl_dpo", tmp_path / "dpo.jsonl")
    assert [part in said for part in (str(newest), "--pair-set")] == [True, True]
    assert str(newest) == f"pair set #{newest.pk} of #{collection.pk} {collection.name}"


def test_a_pair_set_without_pairs_makes_no_file(tmp_path):
    made = make_collection()
    build_pairs(PairOrder(collection=made))
    with pytest.raises(CommandError, match="has no pairs"):
        export_aside(made, "trl_dpo", tmp_path / "dpo.jsonl")
    assert list(tmp_path.iterdir()) == []


def test_without_rows_there_is_no_file_and_it_is_said_what_became_of_them(tmp_path):
    made = make_collection()
    make_rollout(made, reward=0.0, trace=make_trace("5", 0.0))
    (tmp_path / "sft.jsonl").write_text("An existing name creates its next version")
    said = export_aside(made, "trl_sft", tmp_path / "sft.jsonl")
    assert [part in said for part in ("no file", "considered 1", "1 below the minimum reward")] == [True] * 3
    assert [one.name for one in tmp_path.iterdir()] == ["sft.jsonl.manifest.json"]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["export", "--collection", "0", "--format", "trl_sft", "--out", "x"], "Unknown collection 0"),
        (["export", "--collection", "{id}", "--format", "trl_dpo", "--out", "x"], "gymweb pairs build {id}"),
        (
            ["export", "--collection", "{id}", "--format", "trl_dpo", "--out", "x", "--pair-set", "0"],
            "Unknown pair set 0",
        ),
        (["export", "--collection", "{id}", "--format", "trl_sft", "--out", "/dev/null/x"], "ended failed"),
    ],
)
def test_what_cannot_be_done_ends_in_a_sentence(collection, arguments, why):
    with pytest.raises(CommandError, match=why.format(id=collection.pk)):
        command(*(one.format(id=collection.pk) for one in arguments))
    assert not Path("x").exists()
