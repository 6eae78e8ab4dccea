"""What is too long is redacted before it is cut, wherever that happens."""

import ast
from pathlib import Path

import pytest

from apps.gym.redaction.redactor import Redactor
from apps.gym.redaction.shortening import (
    cut,
    cut_body,
    cut_clean,
    cut_middle,
    keep_end,
    set_shortening_redactor,
    shorten,
)
from apps.gym.storable import clean_line
from apps.gym.tasks.file_rows import RowRefused, read_row
from apps.gym.tasks.parameters import check_params, find_params

APPS = Path(__file__).resolve().parents[3] / "apps"
PASSWORD = "correct-horse-battery"
ADDRESS = f"https://somebody:{PASSWORD}@db.example.org/"
# Cut at 80 characters, the password has lost the @ by which it is known for one.
LONG = "x" * (80 - len("https://somebody:") - 9) + " " + ADDRESS
assert LONG[:80].endswith("https://somebody:correct-")


@pytest.mark.parametrize(
    "shown",
    [
        cut(LONG, 80),
        cut_clean(LONG, 80),
        shorten(LONG, 80),
        cut_body(LONG.encode(), 80),
        clean_line(LONG, 80),
        cut_middle(LONG + "y" * 80, 160),
        keep_end("y" * 80 + ADDRESS, 30),
    ],
)
def test_half_a_password_is_not_left_where_a_text_is_cut(shown: str) -> None:
    assert [part for part in ("correct", "battery", "horse") if part in shown] == []


def test_a_short_text_is_returned_unchanged() -> None:
    assert [one(ADDRESS, 80) for one in (cut, shorten, cut_middle, keep_end)] == [ADDRESS] * 4


def test_a_cut_text_has_a_mark() -> None:
    assert shorten("a" * 90, 80) == "a" * 80 + "…"
    assert shorten(f"https://a:{'b' * 90}@c", 80) == "https://a:[REDACTED:url_password]@c"


def test_a_secret_of_our_own_is_not_left_half_either() -> None:
    set_shortening_redactor(Redactor(known=["a-secret-of-ours-without-a-form"]))
    try:
        assert cut("the key a-secret-of-ours-without-a-form", 20) == "the key [REDACTED:ow"
    finally:
        set_shortening_redactor(Redactor())


@pytest.mark.parametrize("name", [LONG, ADDRESS], ids=["a long name", "a short name"])
@pytest.mark.parametrize(
    "line",
    [
        '{"input": 1, "NAME": 1, "NAME": 2}',
        '{"responses_create_params": {"input": "a", "NAME": 1}}',
        '{"responses_create_params": {"input": "a", "metadata": {"NAME": 1}}}',
    ],
    ids=["a name twice", "an unknown parameter", "metadata that is no text"],
)
def test_a_row_is_refused_without_half_a_password_in_the_name_that_is_quoted(line: str, name: str) -> None:
    with pytest.raises(RowRefused) as refused:
        _, row = read_row(line.replace("NAME", name).encode())
        check_params(find_params(row))
    said, _ = Redactor().redact_text(f"{refused.value.message} {refused.value.pointer}")
    assert "somebody:[REDACTE" in said
    assert "correct" not in said


IN_THEMSELVES = {"gym/redaction/redactor.py", "gym/redaction/shortening.py"}
HARMLESS = {("accounts/models.py", "self.key[:8]"), ("tracking/tracker_clients.py", "run.key.hex[:8]")}
"""What of a key is shown on purpose."""


def _is_cut(node: ast.AST) -> bool:
    """`text[:80]` or `text[:LIMIT]`, but of a checksum."""
    if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Slice):
        return False
    if isinstance(node.value, ast.Call) and ast.unparse(node.value.func).endswith(".hexdigest"):
        return False
    low, high = node.slice.lower, node.slice.upper
    if low is not None or high is None or node.slice.step is not None:
        return False
    return isinstance(high, ast.Name) or (isinstance(high, ast.Constant) and isinstance(high.value, int))


def _find_cut_quotes(path: Path) -> list[tuple[str, str]]:
    """Cuts within a sentence, and sentences that are cut."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FormattedValue) and _is_cut(node.value):
            found.append(ast.unparse(node.value))
        elif _is_cut(node) and isinstance(node, ast.Subscript) and isinstance(node.value, ast.JoinedStr):
            found.append(ast.unparse(node))
    return [(str(path.relative_to(APPS)), text) for text in found]


def test_no_sentence_quotes_a_text_that_was_cut_in_another_way() -> None:
    found = {one for path in sorted(APPS.rglob("*.py")) for one in _find_cut_quotes(path)}
    assert {one for one in found - HARMLESS if one[0] not in IN_THEMSELVES} == set()
