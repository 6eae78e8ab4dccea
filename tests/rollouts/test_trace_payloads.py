"""Trace payloads are stored compressed, and read as they were, whatever version stored them."""

import random
import threading

import pytest
from django.db import connection

from apps.gym.traces.events import encode_event
from apps.rollouts import trace_payloads
from apps.rollouts.models import TraceEvent
from apps.rollouts.trace_payloads import STORED, pack, unpack, unpack_each
from tests.factories import make_collection, make_rollout, make_trace

REPETITIVE = '{"type":"prompt","items":[' + ",".join(['{"role":"user","content":"again"}'] * 40_000) + "]}"
RANDOM = random.Random(1).randbytes(3_000).decode("latin-1")
PAYLOADS = ["", "x", "\x01", "é", "字" * 900, '{"type":"error"}', REPETITIVE, RANDOM, "\x1f" + RANDOM, "not an event"]


@pytest.mark.parametrize("payloads", [[], *([each] for each in PAYLOADS), PAYLOADS, PAYLOADS[::-1] * 3, ["", ""]])
def test_payloads_are_unpacked_unchanged(payloads):
    stored = pack(payloads)
    assert list(unpack_each(stored)) == payloads
    assert [unpack(memoryview(each)) for each in stored] == payloads


def test_usual_payloads_take_less_than_half_of_their_size():
    payloads = [encode_event(event) for event in make_trace()]
    assert sum(map(len, pack(payloads))) < sum(map(len, payloads)) / 2
    assert len(pack([REPETITIVE])[0]) < len(REPETITIVE) / 100


def test_what_compression_would_not_make_smaller_is_stored_as_text():
    assert pack(["x", "né"]) == [b"x", "né".encode()]


def test_text_of_earlier_versions_is_read():
    assert unpack('{"type":"error"}') == '{"type":"error"}'
    assert unpack('{"type":"é"}'.encode()) == '{"type":"é"}'


def test_a_later_dictionary_leaves_earlier_payloads_readable(monkeypatch, tmp_path):
    before = pack(PAYLOADS)
    for name in ("1.zdict", "2.zdict"):
        (tmp_path / name).write_bytes((trace_payloads.FOLDER / "1.zdict").read_bytes())
    monkeypatch.setattr(trace_payloads, "FOLDER", tmp_path)
    monkeypatch.setattr(trace_payloads, "NUMBER", 2)
    monkeypatch.setattr(trace_payloads, "_of_thread", threading.local())
    after = pack(PAYLOADS)
    assert {each[0] for each in after if len(each) > 100 and each[0] < 32} == {2}
    assert list(unpack_each(before + after)) == PAYLOADS * 2


def test_every_dictionary_that_stored_payloads_may_name_is_kept():
    numbers = {int(path.stem) for path in trace_payloads.FOLDER.glob("*.zdict")}
    assert numbers == set(range(1, trace_payloads.NUMBER + 1))


@pytest.mark.django_db
def test_the_database_has_the_compressed_form_and_rows_have_the_text():
    rollout = make_rollout(make_collection())
    with connection.cursor() as cursor:
        cursor.execute("SELECT payload FROM rollouts_traceevent ORDER BY seq")
        raw = [bytes(payload) for (payload,) in cursor.fetchall()]
    assert raw == [bytes(payload) for payload in rollout.events.order_by("seq").values_list(STORED, flat=True)]
    texts = [event.payload for event in rollout.events.order_by("seq")]
    assert texts == [encode_event(event) for event in make_trace()]
    assert sum(map(len, raw)) < sum(map(len, texts)) / 2


@pytest.mark.django_db
def test_a_text_in_the_column_is_read():
    """Rows of earlier versions: SQLite has them as text, PostgreSQL as the bytes of the text."""
    rollout = make_rollout(make_collection(), trace=[])
    payload = '{"type":"error","kind":"timed_out","message":"slow"}'
    with connection.cursor() as cursor:
        value = "convert_to(%s, 'UTF8')" if connection.vendor == "postgresql" else "%s"
        cursor.execute(
            "INSERT INTO rollouts_traceevent (rollout_id, attempt, seq, kind, payload)"
            f" VALUES (%s, 1, 0, 'error', {value})",
            [rollout.pk, payload],
        )
    assert TraceEvent.objects.get().payload == payload
    assert rollout.trace()[0].message == "slow"
