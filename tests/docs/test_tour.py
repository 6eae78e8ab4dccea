"""The tour shows each picture that the script takes, and no other; together they stay small."""

import re
from pathlib import Path

from scripts.take_screenshots import LARGEST, pictures

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_each_picture_is_in_the_tour_once_with_alt_text():
    taken = {
        each.name for each in pictures(collection=1, later=2, rollout=1, group=[1, 4], pair=1, pair_set=1, queue=1)
    }
    shown = re.findall(r"!\[([^\]]+)\]\(\.\./images/tour/([\w-]+)\.webp\)", (DOCS / "use" / "tour.md").read_text())
    assert sorted(name for _, name in shown) == sorted(taken)
    assert {path.stem for path in (DOCS / "images" / "tour").iterdir()} == taken
    assert [words for words, _ in shown if len(words) < 10] == []


def test_the_pictures_take_little_room():
    assert sum(path.stat().st_size for path in (DOCS / "images" / "tour").iterdir()) < LARGEST
