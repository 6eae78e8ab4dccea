"""Exports of captured agents: the main path, the longest one, or a row for each, with every sampled token once."""

import json

import pytest

from apps.gym.exporters.protocol import Attempt, OptionRefused, Options, resolve_options
from apps.gym.exporters.registry import FORMATS, find_format
from apps.gym.traces.items import message
from tests.gym.captured_calls import SYSTEM, Recorder, answered, asked, said
from tests.gym.exporters.attempts import paris
from tests.gym.traces import row

TASK = message("user", "Count the files, please.")
OTHER = message("system", "You are a subagent.")
OF_MESSAGES = [slug for slug, format in FORMATS.items() if "branches" in format.choices and not format.needs_tokens]


def forked():
    """A call with two continuations, and a subagent between them."""
    recorder = Recorder(with_tokens=True)
    recorder.call([SYSTEM, TASK], [asked("c1")])
    recorder.call([OTHER, TASK], [said("Sub.")])
    recorder.call([SYSTEM, TASK, asked("c1"), answered("c1", "3")], [said("Three.")])
    recorder.call([SYSTEM, TASK, asked("c1"), answered("c1", "4")], [asked("c2")])
    recorder.call([SYSTEM, TASK, asked("c1"), answered("c1", "4"), asked("c2"), answered("c2")], [said("Four.")])
    return recorder.events


def rows(format, branches, events):
    attempt = Attempt(events=events, task=row(), reward=1.0, columns={"rollout_id": 7})
    made = find_format(format)
    options = resolve_options(made, {"branches": branches})
    found = list(made.rows(attempt, options))
    for one in found:
        features = made.features(options)
        assert "lineage" not in one or set(one) <= {*features, *attempt.columns}
    return found


def answers(found):
    return [one["messages"][-1]["content"] for one in found]


@pytest.mark.parametrize(
    ("branches", "said_last"), [("main", ["Four."]), ("longest", ["Four."]), ("all", ["Sub.", "Three.", "Four."])]
)
def test_messages_equal_the_chosen_paths(branches, said_last):
    assert answers(rows("trl_sft", branches, forked())) == said_last


def test_all_branches_tell_their_lineage_and_weigh_one_together():
    found = rows("trl_sft", "all", forked())
    assert [(one["rollout_id"], one["segment"], one["lineage"]) for one in found] == [(7, 0, 2), (7, 1, 1), (7, 2, 3)]
    assert sum(one["weight"] for one in found) == pytest.approx(1.0)


def test_formats_without_columns_of_their_own_get_rows_but_no_columns():
    found = rows("openai_sft", "all", forked())
    assert (len(found), {"lineage", "weight", "segment"} & set(found[0])) == (3, set())


@pytest.mark.parametrize("format", ["trl_sft_tokens", "scored_rollouts"])
def test_every_sampled_token_is_trained_once(format):
    found = rows(format, "all", forked())
    trained = [
        one["input_ids"][place]
        for one in found
        for place, kept in enumerate(one.get("loss_mask") or [label != -100 for label in one["labels"]])
        if kept
    ]
    assert len(trained) == len(set(trained)) == 5 * 4
    assert [one["segment"] for one in found] == [0, 1, 2]
    assert all(one.get("segments", 3) == 3 for one in found)


@pytest.mark.parametrize("format", OF_MESSAGES)
def test_a_line_is_exported_unchanged(format):
    attempt = Attempt(events=paris(), task=row(), reward=1.0, columns={"rollout_id": 7})
    made = find_format(format)
    options = resolve_options(made, {})
    main = list(made.rows(attempt, options))
    for branches in ("longest", "all"):
        found = list(made.rows(attempt, resolve_options(made, {"branches": branches})))
        plain = [{key: value for key, value in one.items() if key not in ("lineage", "weight")} for one in found]
        for one, before in zip(plain, main, strict=True):
            before.pop("weight", None)
            assert json.dumps({**one, "segment": 0}) == json.dumps({**before, "segment": 0})


@pytest.mark.parametrize("format", ["trl_dpo", "trl_grpo", "nemo_gym_rollouts"])
def test_pairs_tasks_and_archives_have_no_branches(format):
    with pytest.raises(OptionRefused, match="no option branches"):
        resolve_options(find_format(format), {"branches": "all"})
    assert Options().branches == "main"
