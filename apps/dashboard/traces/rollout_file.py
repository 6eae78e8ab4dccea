"""Export a rollout as complete JSON, or as a self-contained HTML page without scripts."""

import base64
import hashlib
from collections.abc import Iterator
from pathlib import Path

import orjson
from django.contrib.staticfiles import finders
from django.template.loader import render_to_string

from apps.dashboard.traces.cards import group_lanes
from apps.dashboard.traces.trace_reading import events_of, lanes_of, read_cards, read_spans
from apps.rollouts.models import Rollout
from apps.tasks.stored_images import with_images

_STYLES = ("css/gymweb.css", "css/trace.css")
_EVENTS_AT_ONCE = 100


def write_json(rollout: Rollout, attempt: int) -> Iterator[bytes]:
    """Yield JSON chunks with every stored field and event."""
    row = {field.attname: getattr(rollout, field.attname) for field in Rollout._meta.concrete_fields}
    yield b'{"rollout":' + orjson.dumps(row) + b',"attempt":' + str(attempt).encode() + b',"events":['
    after, comma = -1, b""
    while rows := list(
        events_of(rollout, attempt).filter(seq__gt=after).values_list("seq", "payload")[:_EVENTS_AT_ONCE]
    ):
        yield comma + b",".join(with_images(payload).encode() for _, payload in rows)
        after, comma = rows[-1][0], b","
    yield b"]}"


def write_html(rollout: Rollout, attempt: int) -> Iterator[bytes]:
    """Yield HTML chunks with every step in full.

    The content security policy of the file allows only its own styles, by hash, and images in the trace.
    """
    style = _style()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    context = {"shown_rollout": rollout, "attempt": attempt, "digest": digest}
    head, tail = render_to_string("rollouts/file.html", context).split("<!-- steps -->")
    before, after = head.split("<!-- style -->")
    yield f"{before}<style>{style}</style>{after}".encode(errors="replace")
    find_lanes = lanes_of(rollout, attempt)
    for span in read_spans(rollout, attempt):
        runs = group_lanes(read_cards(rollout, attempt, span, find_lanes))
        yield render_to_string("rollouts/_file_cards.html", {"runs": runs, "in_file": True}).encode(errors="replace")
    yield tail.encode()


def _style() -> str:
    """Return all stylesheets of the page, concatenated."""
    paths = [finders.find(name) for name in _STYLES]
    return "\n".join(Path(path).read_text() for path in paths if path)
