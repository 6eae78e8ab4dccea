"""Texts of traces are found in any language, by their words alone, and once they are indexed."""

import pytest
from django.core.management import call_command
from django.db import connection

from apps.gym.traces.events import ModelCall, Prompt, ToolResult, Verification
from apps.gym.traces.items import message
from apps.rollouts.models import Rollout, RolloutWords, TraceEvent, UnindexedRollout
from apps.rollouts.search.filters.filter_sql import filter_rollouts
from apps.rollouts.search.filters.text_search import count_unindexed
from apps.rollouts.search.word_index import MAX_TRIES, PART, index_next_rollouts, mark_unindexed
from tests.factories import make_collection, make_rollout

pytestmark = pytest.mark.django_db


def said(*texts: str, **fields: object) -> Rollout:
    """A rollout whose model said this, indexed."""
    items = [message("assistant", text) for text in texts]
    trace = [Prompt(items=[message("user", "Please.")]), ModelCall(seen=1, items=items), Verification(reward=1.0)]
    rollout = make_rollout(fields.pop("collection", None) or make_collection(), trace=trace, **fields)
    mark_unindexed([rollout.pk])
    while index_next_rollouts():
        pass
    return rollout


def found(text: str) -> list[int]:
    return sorted(filter_rollouts(Rollout.objects.all(), text).values_list("pk", flat=True))


@pytest.mark.parametrize(
    ("stored", "asked"),
    [
        ("I cannot find the file.", 'text:"cannot find"'),
        ("I cannot find the file.", 'text:"CANNOT FIND"'),
        ("I cannot find the file.", "text:fin*"),
        ("I cannot find the file.", '"cannot fi"*'),
        ("I cannot find the file.", "cannot file"),
        ("我找不到文件，请再试一次。", "找不到"),
        ("我找不到文件，请再试一次。", 'text:"不到文"'),
        ("東京タワーはどこですか", "タワー"),
        ("Die Straße ist gesperrt, schöne Grüße", "STRASSE"),
        ("Die Straße ist gesperrt, schöne Grüße", 'text:"schone grusse"'),
        ("Die Straße ist gesperrt, schöne Grüße", 'text:"schöne Grüße"'),
        ("Сервер не отвечает", "сервер"),
        ("سلام دنیا", "دنیا"),
        ("नमस्ते दुनिया", "दुनिया"),
        ("한국어 문장", "국어"),
        ("All done 🎉 and dusted", "🎉"),
        ("All done 🎉 and dusted", '"done 🎉 and"'),
        ('He said "no" twice', 'text:"said \\"no\\" twice"'),
        ("a OR b NEAR(c, 3) NOT d", 'text:"OR b NEAR(c"'),
        ("rate = 3.5 * (x - 1)", 'text:"3.5 * (x"'),
        ("it's the tool's fault", "it's"),
        ("path/to/file.py:12", '"to/file.py:12"'),
    ],
)
def test_a_text_is_found(stored, asked):
    mine, other = said(stored), said("Something else entirely: nothing of that kind.")
    assert found(asked) == [mine.pk]
    assert other.pk not in found(asked)


@pytest.mark.parametrize(
    "asked",
    [
        'text:"find cannot"',
        'text:"cannot the"',
        "text:fi",
        "text:filex*",
        'text:"first second"',
        "不找",
        '"a OR cannot"',
        "か",
    ],
)
def test_absent_words_are_not_found(asked):
    said("I cannot find the file.", "It is the first", "second to none", "找不到", "が")
    assert found(asked) == []


@pytest.mark.parametrize(
    "text",
    [
        '" OR 1=1 --',
        "NEAR(",
        "cannot AND",
        "a') OR ('1'='1",
        "\\",
        "'",
        "col:x",
        "^a",
        "{a b}:c",
        "a & !b",
        "a <-> b",
        ":*",
    ],
)
def test_signs_of_a_search_language_are_text(text):
    rollout = said("plain words only")
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    try:
        assert rollout.pk not in found(f'text:"{quoted}"')
    except ValueError:
        pytest.fail("it became an operator")
    except Exception as refusal:
        assert "This text has no letters or digits to search for" in str(refusal)


@pytest.mark.parametrize(
    ("asked", "rewards"),
    [
        ("reward:0.5", [0.5]),
        ("reward:>0.5", [0.75, 1.0]),
        ("reward:<=0.5", [0.25, 0.5]),
        ("reward:0.5..1", [0.5, 0.75, 1.0]),
        ("reward:>0.5..1", [0.75, 1.0]),
        ("reward:0.5..<1", [0.5, 0.75]),
        ("-reward:0.5..1", [0.25, None]),
    ],
)
def test_numbers_are_compared_with_both_ends_of_a_range(asked, rewards):
    collection = make_collection()
    made = {make_rollout(collection, reward=reward).pk: reward for reward in (0.25, 0.5, 0.75, 1.0, None)}
    assert [made[pk] for pk in found(asked)] == rewards


def test_negated_words_leave_rollouts_out():
    has, lacks = said("alpha beta"), said("beta gamma")
    assert found("-alpha") == [lacks.pk]
    assert found("beta -text:gamma") == [has.pk]
    assert found("text:alpha,gamma") == [has.pk, lacks.pk]


def test_tools_and_their_output_are_found_and_figures_are_not():
    trace = [ToolResult(call_id="c1", name="search", output="no such street", error="boom")]
    rollout = make_rollout(make_collection(), trace=trace)
    mark_unindexed([rollout.pk])
    assert index_next_rollouts()
    assert [found(text) for text in ('"such street"', "search", "boom", "c1")] == [[rollout.pk]] * 3 + [[]]


def test_what_ended_is_found_only_when_it_is_indexed_and_that_can_be_told():
    rollout = make_rollout(make_collection())
    mark_unindexed([rollout.pk])
    mark_unindexed([rollout.pk])
    assert (count_unindexed(), RolloutWords.objects.count()) == (1, 0)
    assert index_next_rollouts()
    assert (count_unindexed(), RolloutWords.objects.count(), index_next_rollouts()) == (0, 1, False)


def test_a_rollout_that_ran_again_has_its_new_words_alone():
    rollout = said("the first attempt")
    TraceEvent.objects.create(
        rollout=rollout,
        attempt=2,
        seq=0,
        kind="tool_result",
        payload='{"type":"tool_result","call_id":"c","name":"n","output":"later words"}',
    )
    Rollout.objects.filter(pk=rollout.pk).update(attempt=2)
    mark_unindexed([rollout.pk])
    assert index_next_rollouts()
    assert (found("first"), found("later")) == ([], [rollout.pk])


def test_what_ends_anew_while_it_is_indexed_waits_for_another_turn(monkeypatch):
    rollout = make_rollout(make_collection())
    mark_unindexed([rollout.pk])
    from apps.rollouts.search import word_index

    read = word_index.read_words

    def read_and_end_again(payloads):
        words = read(payloads)
        mark_unindexed([rollout.pk])
        return words

    monkeypatch.setattr(word_index, "read_words", read_and_end_again)
    assert index_next_rollouts()
    assert (count_unindexed(), RolloutWords.objects.count()) == (1, 0)


def test_deleted_rollouts_are_found_by_nothing():
    rollout = said("alpha beta")
    rollout.delete()
    other = said("gamma")
    assert (found("alpha"), found("gamma"), RolloutWords.objects.count()) == ([], [other.pk], 1)


def test_what_never_began_or_still_runs_does_not_wait():
    collection = make_collection()
    unmade = {"reward": None, "stop_reason": "", "trace": [], "finished_at": None, "started_at": None}
    queued = make_rollout(collection, status="queued", attempt=0, **unmade)
    running = make_rollout(collection, status="running", lease=1, **unmade)
    mark_unindexed([queued.pk, running.pk])
    assert count_unindexed() == 0


def test_of_a_long_trace_the_first_words_are_kept_and_the_cut_is_marked(settings):
    settings.SEARCH_WORDS = 300
    rollout = said(" ".join(f"word{number}" for number in range(400)))
    assert [found(text) for text in ("word0", "word298", "word299", "word399")] == [[rollout.pk]] * 2 + [[]] * 2
    assert list(RolloutWords.objects.values_list("part", "is_cut")) == [(0, True)]


def test_phrases_are_found_across_the_parts_of_a_long_trace():
    rollout = said(" ".join(f"w{number}" for number in range(PART * 2 + 500)))
    around = [PART - 3, PART * 2 - 25, 10]
    assert [found(f'"w{at} w{at + 1} w{at + 2} w{at + 3} w{at + 4}"') for at in around] == [[rollout.pk]] * 3
    assert list(RolloutWords.objects.order_by("part").values_list("part", "is_cut")) == [
        (0, False),
        (1, False),
        (2, False),
    ]


def test_a_trace_that_cannot_be_read_holds_up_no_other(monkeypatch, caplog):
    broken = make_rollout(make_collection(), trace=[Prompt(items=[message("user", "broken")])])
    fine = make_rollout(make_collection())
    mark_unindexed([broken.pk, fine.pk])
    from apps.rollouts.search import word_index

    read = word_index.read_words

    def fail_one(payloads):
        if any("broken" in payload for payload in payloads):
            raise ValueError("no such words")
        return read(payloads)

    monkeypatch.setattr(word_index, "read_words", fail_one)
    assert index_next_rollouts()
    assert list(UnindexedRollout.objects.values_list("pk", "tries")) == [(broken.pk, 1)]
    UnindexedRollout.objects.update(tries=MAX_TRIES, taken_at=None)
    assert (index_next_rollouts(), count_unindexed()) == (False, 1)
    assert f"the words of rollout {broken.pk} could not be read" in caplog.text


def test_an_event_of_an_unknown_kind_is_searchable():
    rollout = make_rollout(make_collection(), trace=[])
    payload = '{"type":"from_the_future","note":"hidden treasure"}'
    TraceEvent.objects.create(rollout=rollout, attempt=1, seq=0, kind="from_the_future", payload=payload)
    mark_unindexed([rollout.pk])
    assert index_next_rollouts()
    assert found('"hidden treasure"') == [rollout.pk]


def test_the_command_rebuilds_the_index(capsys):
    rollout, other = said("alpha"), said("beta")
    RolloutWords.objects.all().delete()
    assert found("alpha") == []
    call_command("index_rollouts", "--again", "--collection", str(rollout.collection_id))
    assert (found("alpha"), found("beta")) == ([rollout.pk], [])
    call_command("index_rollouts", "--again")
    assert (found("alpha"), found("beta")) == ([rollout.pk], [other.pk])
    assert capsys.readouterr().out.endswith("\r2 rollouts indexed\n")


def test_a_payload_that_is_broken_leaves_only_its_own_rollout_out():
    rollouts = [said("alpha one"), said("alpha two"), said("alpha three")]
    with connection.cursor() as cursor:
        broken = memoryview(b"\x01not a frame")
        cursor.execute("UPDATE rollouts_traceevent SET payload = %s WHERE rollout_id = %s", [broken, rollouts[1].pk])
    RolloutWords.objects.all().delete()
    mark_unindexed([rollout.pk for rollout in rollouts])
    index_next_rollouts()
    assert found("alpha") == [rollouts[0].pk, rollouts[2].pk]
