"""The grammar of filters: every filter can be written and read again; any other text is refused, with its place."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.rollouts.models import Rollout
from apps.rollouts.search.filters.filter_grammar import (
    Anything,
    Between,
    Filter,
    FilterRefused,
    Number,
    Pattern,
    Term,
    Text,
    Value,
)
from apps.rollouts.search.filters.filter_keys import ALIASES, FLAGS, KEYS, STATUSES, Key, Kind
from apps.rollouts.search.filters.filter_parser import MAX_LENGTH, MAX_TERMS, MAX_VALUES, parse_filter
from apps.rollouts.search.filters.filter_sql import FLAGS as COMPILED_FLAGS
from apps.rollouts.search.filters.filter_sql import OF_COLLECTIONS, OF_ROLLOUTS
from apps.rollouts.search.word_splitting import split_words

WHOLE = st.integers(-(10**15), 10**15).map(float)
FLOATS = st.floats(-1e15, 1e15, allow_nan=False).map(lambda number: number + 0.0)
ANY_TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=20).filter(
    str.strip
)
WORDY = ANY_TEXT.filter(lambda text: any(split_words(text)))
GLOBS = st.text("abc-.*ü7", min_size=2, max_size=12).filter(lambda text: 1 <= text.count("*") <= 4 and text != "*")


def values_of(key: Key) -> st.SearchStrategy[Value]:
    numbers = WHOLE if key.kind is Kind.COUNT else FLOATS
    match key.kind:
        case Kind.NUMBER | Kind.COUNT:
            between = st.tuples(numbers, numbers, st.booleans(), st.booleans()).map(
                lambda given: Between(min(given[:2]), max(given[:2]), *given[2:])
            )
            found = st.one_of(st.builds(Number, st.sampled_from(["=", ">", ">=", "<", "<="]), numbers), between)
        case Kind.CHOICE:
            found = st.sampled_from(key.choices).map(Text)
        case Kind.WORDS:
            found = st.one_of(WORDY.map(Text), WORDY.map(Pattern))
        case Kind.NAME:
            found = st.one_of(ANY_TEXT.map(Text), GLOBS.map(Pattern))
        case Kind.ANSWER:
            found = st.from_regex(r"[1-9][0-9]{0,5}(=[a-z \"]{0,9}[a-z]|>=[0-9]{1,3})?", fullmatch=True).map(Text)
        case _:
            found = ANY_TEXT.map(Text)
    return st.one_of(found, st.just(Anything())) if key.may_be_missing else found


TERMS = st.sampled_from(sorted(KEYS)).flatmap(
    lambda name: st.builds(
        Term, st.just(name), st.lists(values_of(KEYS[name]), min_size=1, max_size=3).map(tuple), st.booleans()
    )
)
FILTERS = st.lists(TERMS, max_size=5).map(lambda terms: Filter(tuple(terms)))


@given(FILTERS)
def test_a_filter_that_is_written_is_read_as_the_same(wanted):
    assert parse_filter(str(wanted)) == wanted


@given(
    st.one_of(
        st.text(max_size=80),
        st.lists(st.sampled_from([*KEYS, ":", '"', "-", ",", "*", ">", "..", "1", " ", "\\", "x"]), max_size=30).map(
            "".join
        ),
    )
)
def test_any_text_is_a_filter_or_refused_with_a_place_in_it(text):
    try:
        found = parse_filter(text)
    except FilterRefused as refusal:
        assert 0 <= refusal.start <= refusal.end <= len(text)
        assert str(refusal)
    else:
        assert parse_filter(str(found)) == found
        assert all(text[term.start : term.end].strip() == text[term.start : term.end] for term in found.terms)


def test_the_filter_of_the_manual_is_read_term_by_term():
    text = "reward:>0.5 stop:max_steps tool:search model:qwen* -flag:truncated tag:x steps:<10 tokens:>10k"
    text += ' text:"cannot find"'
    assert parse_filter(text).terms == (
        Term("reward", (Number(">", 0.5),)),
        Term("stop", (Text("max_steps"),)),
        Term("tool", (Text("search"),)),
        Term("model", (Pattern("qwen*"),)),
        Term("flag", (Text("truncated"),), negated=True),
        Term("tag", (Text("x"),)),
        Term("steps", (Number("<", 10.0),)),
        Term("tokens", (Number(">", 10_000.0),)),
        Term("text", (Text("cannot find"),)),
    )


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("find", "text:find"),
        ('"cannot find"', 'text:"cannot find"'),
        ("-find", "-text:find"),
        ("fin*", "text:fin*"),
        ("turns:3 error_kind:timed_out", "steps:3 error:timed_out"),
        ("tool-errors:>1", "tool_errors:>1"),
        ("status:FAILED", "status:failed"),
        ("reward:0.25..1", "reward:0.25..1"),
        ("reward:>0..<1", "reward:>0..<1"),
        ("-reward:*", "-reward:*"),
        ("status:failed,cancelled", "status:failed,cancelled"),
        ('tag:"two words",one', 'tag:"two words",one'),
        ("  ", ""),
    ],
)
def test_there_are_several_ways_to_say_the_same(text, same):
    assert str(parse_filter(text)) == same


@pytest.mark.parametrize(
    ("text", "place", "key", "suggestion", "said"),
    [
        ("rewrd:>1", (0, 5), "rewrd", "reward", "Did you mean reward:?"),
        ("status:failed xyzzy:1", (14, 19), "xyzzy", "", "Keys: text, reward"),
        ("-stats:x", (1, 6), "stats", "status", "Did you mean status:?"),
        ("status:faild", (7, 12), "", "failed", "Did you mean failed?"),
        ("reward:high", (7, 11), "", "", "reward: needs a number"),
        ("steps:1.5", (6, 9), "", "", "steps must be a whole number"),
        ("steps:*", (6, 7), "", "", "All rollouts have a value for steps"),
        ("reward:1..0", (7, 11), "", "", "smaller number first"),
        ("reward:", (7, 7), "", "", "reward: needs a value"),
        ("reward: 1", (7, 7), "", "", "reward: needs a value"),
        ('text:"open', (5, 10), "", "", "This quotation mark is not closed"),
        ('text:"a"b', (8, 9), "", "", "Add a space here, or put the whole value into quotation"),
        ('text:"  "', (5, 9), "", "", "These quotation marks are empty"),
        ("text:::", (5, 7), "", "", "This text has no letters or digits to search for"),
        ("text:a*b", (5, 8), "", "", "is allowed only at the end of a word"),
        ("tool:s*", (5, 7), "", "", "does not allow"),
        ("- x", (0, 1), "", "", "directly before the term to exclude"),
        ("reward:1e999", (7, 12), "", "", "too large"),
        ("user__password:x", (0, 14), "user__password", "", "To search for text, put it in quotation marks"),
    ],
)
def test_errors_name_place_and_suggestion(text, place, key, suggestion, said):
    with pytest.raises(FilterRefused) as refused:
        parse_filter(text)
    refusal = refused.value
    assert (refusal.start, refusal.end) == place
    assert (refusal.key, refusal.suggestion) == (key, suggestion)
    assert said in str(refusal)


def test_filters_are_bounded():
    for text in ("x" * (MAX_LENGTH + 1), "a " * (MAX_TERMS + 1), "id:" + ",".join("1" * (MAX_VALUES + 1))):
        with pytest.raises(FilterRefused, match="at most"):
            parse_filter(text)


def test_every_key_means_something_in_the_database_and_nothing_else_does():
    assert {*OF_COLLECTIONS, *OF_ROLLOUTS} == set(KEYS)
    assert set(ALIASES.values()) <= set(KEYS)
    assert set(COMPILED_FLAGS) == set(FLAGS)
    assert set(Rollout.Status.values) == set(STATUSES)
    assert [key.name for key in KEYS.values() if str(parse_filter(key.example)) == ""] == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Straße ÜBER Ärger", ["strasse", "uber", "arger"]),
        ("你好世界", ["你", "好", "世", "界"]),
        ("東京タワー", ["東", "京", "タ", "ワ", "ー"]),
        ("がぎ", ["が", "ぎ"]),
        ("ｶﾞ", ["ガ"]),
        ("done 🎉!", ["done", "u1f389"]),
        ('"x" AND NEAR(y) NOT col:z ^a* -b', ["x", "and", "near", "y", "not", "col", "z", "a", "b"]),
        ("don't foo_bar C++ a \ua66e b", ["don", "t", "foo", "bar", "c", "a", "b"]),
        ("x" * 100, ["x" * 64]),
        ("", []),
    ],
)
def test_words_are_the_same_in_every_database(text, words):
    assert split_words(text) == words


@given(st.text(max_size=200))
def test_words_are_letters_and_digits_alone(text):
    assert [word for word in split_words(text) if not word.isalnum()] == []
