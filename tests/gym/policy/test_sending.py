"""Requests that wait for a reply take no more memory than their text."""

import tracemalloc

import pytest

from apps.gym.wires.sending import PlainSender


@pytest.mark.parametrize("characters", [500, 1_200, 70_000])
def test_a_packed_request_occupies_its_length(characters):
    sender = PlainSender(
        None, base_urls=["http://127.0.0.1:9"], path="/", headers={}, call_timeout=1, connect_timeout=1
    )
    body = {"messages": [{"role": "user", "content": "a" * characters}]}
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        packed = [sender.pack(body) for _ in range(100)]
        used = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert used < 100 * (len(packed[0]) + 100)
