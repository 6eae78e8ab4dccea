"""What changes a text without being seen is shown where people judge by what they read."""

import re
from pathlib import Path

import pytest
from django.utils.html import escape

from apps.dashboard.templatetags.gymweb_format import revealed

SCRIPT = Path(__file__).resolve().parents[2] / "static" / "js" / "code.js"


@pytest.mark.parametrize(
    ("char", "code"),
    [
        ("\u202e", "U+202E"),
        ("\u2066", "U+2066"),
        ("\u200b", "U+200B"),
        ("\ufeff", "U+FEFF"),
        ("\x08", "U+0008"),
        ("\U000e0041", "U+E0041"),
    ],
)
def test_a_hidden_character_is_named_and_stays_in_the_text(char, code):
    shown = revealed(f"<b>{char}&{char}x")
    one = f'<span class="control" data-code="{code}">{char}</span>'
    assert shown == f"&lt;b&gt;{one}&amp;{one}x"
    assert re.sub(r"</?span[^>]*>", "", shown) == escape(f"<b>{char}&{char}x")


@pytest.mark.parametrize("text", ["plain", "", "<b>", "שלום", "👩\u200d💻", "\x1b[31mred", "a\tb\r\nc", "क्\u200dष"])
def test_what_scripts_and_terminals_need_is_left_alone(text):
    assert revealed(text) == text


def test_pages_and_their_scripts_mean_the_same_characters():
    [pattern] = re.findall(r"HIDDEN = /\[(.+)\]/gu;", SCRIPT.read_text())
    in_script = re.compile("[" + re.sub(r"\\u\{(\w+)\}", lambda m: f"\\U{m[1]:0>8}", pattern) + "]")
    every = [chr(number) for number in range(0x110000) if not 0xD800 <= number < 0xE000]
    assert [char for char in every if in_script.search(char)] == [char for char in every if revealed(char) != char]
