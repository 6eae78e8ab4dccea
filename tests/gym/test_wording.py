import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.gym.traces.word_differences import MOST_EDITS, Part, compare_words
from tests.deadlines import cpu_deadline

TEXTS = st.text(alphabet="ab .\n", max_size=40) | st.text(max_size=40)


@given(TEXTS, TEXTS)
def test_a_diff_restores_both_texts(old, new):
    parts = compare_words(old, new)
    assert "".join(part.text for part in parts if part.kind != "new") == old
    assert "".join(part.text for part in parts if part.kind != "removed") == new
    assert all(part.text for part in parts)


@given(TEXTS)
def test_a_text_differs_in_nothing_from_itself(text):
    assert compare_words(text, text) == ([Part("same", text)] if text else [])


@pytest.mark.parametrize(
    ("old", "new", "parts"),
    [
        ("sum is 41.", "sum is 42.", [("same", "sum is "), ("removed", "41"), ("new", "42"), ("same", ".")]),
        ("add it", "add it up", [("same", "add it"), ("new", " up")]),
        ("a b c", "x y c", [("removed", "a b"), ("new", "x y"), ("same", " c")]),
        ("1.0", "0.25", [("removed", "1.0"), ("new", "0.25")]),
        ("", "all", [("new", "all")]),
        ("all", "", [("removed", "all")]),
    ],
)
def test_changes_are_whole_words(old, new, parts):
    assert compare_words(old, new) == [Part(*part) for part in parts]


def test_a_long_text_with_many_changes_is_compared_by_lines():
    old = [f"{number} one" for number in range(MOST_EDITS)] + ["kept"]
    new = [f"{number} two" for number in range(MOST_EDITS)] + ["kept"]
    new[7] = old[7]
    # 798 words are others, and as many lines: too many for both.
    assert compare_words("\n".join(old[:150]), "\n".join(new[:150]))[:2] == [Part("same", "0 "), Part("removed", "one")]
    head, *middle, tail = compare_words("\n".join(old), "\n".join(new))
    assert (head, tail) == (Part("same", "0 "), Part("same", "\nkept"))
    assert [part.kind for part in middle] == ["removed", "new"]


def test_a_long_text_with_few_changed_lines_is_compared_by_lines():
    old = [" ".join(f"{number}.{word}" for word in range(20)) for number in range(200)]
    new = [f"rewritten {number}" if 20 <= number < 40 else line for number, line in enumerate(old)]
    new[0], new[-1] = "first", "last"
    kinds = [part.kind for part in compare_words("\n".join(old), "\n".join(new))]
    assert kinds == ["removed", "new", "same", "removed", "new", "same", "removed", "new"]


@pytest.mark.parametrize("times", [300, 20_000])
def test_texts_that_differ_too_much_are_not_compared_by_words(times):
    """Beyond MOST_EDITS, and beyond MOST_TOKENS, where comparing would take minutes."""
    old, new = " ".join(["a", "b", "c"] * times), " ".join(["d", "c", "a", "b"] * times)
    with cpu_deadline():
        assert [part.kind for part in compare_words(old, new)] == ["removed", "new"]


@given(st.text(alphabet=".,;!", max_size=15), st.text(alphabet=".,;!", max_size=15))
def test_no_shorter_edit_is_overlooked(old, new):
    alike = [[0] * (len(new) + 1) for _ in range(len(old) + 1)]
    for i, one in enumerate(old):
        for j, other in enumerate(new):
            alike[i + 1][j + 1] = alike[i][j] + 1 if one == other else max(alike[i][j + 1], alike[i + 1][j])
    changed = sum(len(part.text) for part in compare_words(old, new) if part.kind != "same")
    assert changed == len(old) + len(new) - 2 * alike[-1][-1]
