"""The ledger of what may be trained on."""

import ast
from pathlib import Path

import pytest

from apps.gym.exporters.registry import FORMATS
from apps.gym.outcomes import MASKED
from apps.gym.pairs.pair_rule import OUTCOMES, Attempt, Exclusion
from apps.gym.trainability import REASONS, Dropped, find_reason
from apps.gym.training_ledger import Ledger, count_trained, describe, summarize
from apps.rollouts.search.filters.filter_parser import parse_filter
from tests.gymweb.serving import ROOT

SOURCES = [path for app in ("gym", "exports", "pairs", "rollouts") for path in (ROOT / "apps" / app).rglob("*.py")]


def named_reasons(path: Path):
    """The literal reasons of `Dropped(…)` and `….drop(…)` in a file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not (isinstance(node, ast.Call) and node.args):
            continue
        drops = isinstance(node.func, ast.Name) and node.func.id == "Dropped"
        if drops or (isinstance(node.func, ast.Attribute) and node.func.attr == "drop"):
            yield from (
                each.value
                for each in ast.walk(node.args[0])
                if isinstance(each, ast.Constant) and isinstance(each.value, str)
            )


def test_every_reason_that_code_names_is_registered_and_every_registered_one_is_named():
    named = {reason for path in SOURCES for reason in named_reasons(path)}
    assert len(named) > 30
    assert named <= set(REASONS)
    text = "".join(path.read_text() for path in SOURCES if path.name != "trainability.py")
    # The status `cancelled` is a reason, and the ledger itself names `foreign_turn`.
    assert {reason for reason in REASONS if f'"{reason}"' not in text} <= {"cancelled", "foreign_turn"}


def test_no_code_counts_left_out_sources_beside_the_ledger():
    """Exporters raise Dropped, readers call the ledger: nothing else may hold a counter of reasons."""
    beside = [
        str(path.relative_to(ROOT))
        for path in SOURCES
        if path.name != "training_ledger.py" and ("dropped[" in path.read_text() or "excluded[" in path.read_text())
    ]
    assert beside == ["apps/rollouts/metrics/trainable_rollouts.py"]


def test_outcomes_and_exclusions_of_pairs_are_reasons():
    assert set(OUTCOMES) - {"paired"} <= set(REASONS)
    assert set(Exclusion.__args__) <= set(REASONS)


def test_an_unknown_reason_is_refused():
    with pytest.raises(KeyError):
        Dropped("because")
    with pytest.raises(KeyError):
        Ledger().drop("because")


@pytest.mark.parametrize("reason", [one for one in REASONS.values() if one.filter], ids=lambda one: one.name)
def test_the_filter_of_a_reason_is_valid(reason):
    parse_filter(reason.filter)


@pytest.mark.parametrize("reason", REASONS.values(), ids=lambda one: one.name)
def test_a_reason_reads_well(reason):
    assert reason.sentence.endswith(".")
    assert reason.sentence[0].isupper() or reason.sentence[0] == "`"
    assert len(reason.sentence.split()) <= 25
    assert not reason.label.endswith(".")


@pytest.mark.parametrize(
    ("fields", "reason", "kept_with"),
    [
        ({"status": "running"}, "not_finished", {}),
        ({"status": "failed"}, "failed", {}),
        ({"status": "cancelled"}, "cancelled", {}),
        ({"reward": None, "masked": "provider_oom_killed"}, MASKED, {"include_masked": True}),
        ({"reward": None, "masked": "x", "flagged": True}, MASKED, {"include_masked": True, "include_flagged": True}),
        ({"flagged": True}, "flagged", {"include_flagged": True}),
        ({"reward": 0.5}, "below_min_reward", {"min_reward": 0.5}),
        ({"stop_reason": "max_steps"}, "truncated", {"include_truncated": True}),
        ({"reward": None}, "no_reward", {}),
        ({}, "", {}),
    ],
)
def test_a_rollout_is_left_out_for_the_first_reason(fields, reason, kept_with):
    attempt = Attempt(id=1, **{"reward": 1.0, **fields})
    assert find_reason(attempt, **{"min_reward": 0.7}) == reason
    if kept_with:
        assert find_reason(attempt, **kept_with) == ""


def test_the_summary_adds_up_and_lists_the_most_frequent_reason_first():
    ledger = Ledger()
    ledger.drop("truncated")
    ledger.drop(MASKED, 3)
    ledger.drop("failed", 0)
    ledger.use(2)
    ledger.count_tokens(sampled=10, trainable=4)
    found = ledger.summarize("rollouts")
    assert (found.considered, found.used, found.rows) == (5, 1, 2)
    assert [(one.reason, one.count, one.level) for one in found.left_out] == [
        (MASKED, 3, "rollout"),
        ("truncated", 1, "rollout"),
        ("grammar", 6, "token"),
    ]
    assert found.considered == found.used + sum(one.count for one in found.left_out if one.level != "token")
    assert (found.notice, found.grammar) == ("", "")
    assert describe(found) == (
        "Rows: 2, from 1 of 5 rollouts, with 4 trainable tokens; "
        "left out: 3 masked by the verifier, 1 cut off by a limit"
    )


@pytest.mark.parametrize(
    ("sampled", "trainable", "grammar", "notice"),
    [
        (12_345, 0, "strict tools", "0 of 12,345 sampled tokens are trainable: strict tools."),
        (5, 0, "", "0 of 5 sampled tokens are trainable: a grammar."),
        (5, 1, "strict tools", ""),
        (0, 0, "", ""),
        (None, None, "", ""),
    ],
)
def test_nothing_trainable_is_said_with_its_cause(sampled, trainable, grammar, notice):
    found = summarize(
        "rollouts",
        considered=1,
        used=1,
        dropped={},
        sampled_tokens=sampled,
        trainable_tokens=trainable,
        grammar=grammar,
    )
    assert found.notice.startswith(notice) if notice else found.notice == ""
    assert found.grammar == (grammar if notice else "")


def test_tokens_in_the_loss_are_counted_in_every_format_of_tokens():
    assert count_trained([{"input_ids": [1, 2, 3], "labels": [-100, 2, 3]}]) == 2
    assert count_trained([{"input_ids": [1, 2], "loss_mask": [0, 1]}, {"input_ids": [3], "loss_mask": [0]}]) == 1
    item = {"type": "message", "generation_token_ids": [4, 5]}
    assert count_trained([{"response": {"output": [item, {"type": "message"}]}}]) == 2
    assert count_trained([{"input_ids": [], "loss_mask": []}]) is None
    assert count_trained([{"messages": []}]) is None
    assert [slug for slug, one in FORMATS.items() if one.needs_tokens] == ["trl_sft_tokens"]
