"""The ids of a prompt are the same whether or not its beginning is known from the previous call."""

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.gym.traces.known_ids import KnownIds
from apps.gym.traces.tokens import TokensMissing, pack_ids

IDS = st.lists(st.integers(0, 200), min_size=1, max_size=4)


def after(prompt, generation):
    """The ids known after a call."""
    known = KnownIds()
    assert known.read(orjson.dumps(prompt), orjson.dumps(generation)) == (pack_ids(prompt), pack_ids(generation))
    return known


@given(IDS, IDS, IDS, st.integers(0, 9), st.sampled_from([",", ", "]))
def test_the_next_prompt_has_its_own_ids(prompt, generation, further, kept, comma):
    whole = [*prompt, *generation, *further]
    for ids in (whole, whole[:kept] + further, [*whole[:kept], 7, *whole[kept:]], [int(f"{whole[0]}1"), *whole[1:]]):
        text = f"[{comma.join(map(str, ids))}]".encode()
        assert after(prompt, generation).read(text, b"[5]") == (pack_ids(ids), pack_ids([5]))


@pytest.mark.parametrize("bad", [b'[1,2,"3"]', b"[1,2,null]", b"[1,2,3", b"{}", b"[1,2,-1]", b"[1,2,4294967296]"])
def test_an_invalid_prompt_is_refused(bad):
    with pytest.raises((msgspec.DecodeError, TokensMissing)):
        after([1], [2]).read(bad, b"[5]")


def test_a_prompt_without_ids_forgets_none():
    known = after([1], [2])
    assert known.read(b"null", b"[3]") == (b"", pack_ids([3]))
    assert known.read(b"[1,2,9]", b"null") == (pack_ids([1, 2, 9]), b"")
