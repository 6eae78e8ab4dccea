"""The check of assertions names sentences, and leaves values, phrases and test data alone."""

from scripts.check_assertions import find_sentences

ALLOWED = """
box.fill("This is typed, so it may be long.")
assert "at most 8 MB" in page
assert page.version == "0.2.0 of the long-lived branch"
expect(box).to_have_value("Written at home.")
"""
REFUSED = """
assert f"The file has {size} bytes. Choose another." in page
expect(box).not_to_contain_text("Your draft was stored in this browser.")
"""


def test_sentences_are_named_with_their_line(tmp_path):
    path = tmp_path / "test_page.py"
    path.write_text(ALLOWED)
    assert list(find_sentences(path)) == []
    path.write_text(REFUSED)
    assert [message.split(": ")[0] for message in find_sentences(path)] == [f"{path}:2", f"{path}:3"]
