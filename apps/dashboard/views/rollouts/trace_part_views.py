"""The trace of a rollout in parts: chunks of steps, the outline, one step, one text, one picture, what was found."""

from collections.abc import AsyncIterator, Iterator
from typing import TypeVar

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.http import Http404, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.http import content_disposition_header
from django.views.decorators.vary import vary_on_headers

from apps.accounts.permissions import Permission, allow, user_may
from apps.dashboard.chrome.page_answers import wants_fragment
from apps.dashboard.chrome.page_request import PageRequest
from apps.dashboard.live.followed_attempt import followed_rollouts
from apps.dashboard.traces.captured_tokens import read_captured
from apps.dashboard.traces.card_building import decode
from apps.dashboard.traces.finding import find_words
from apps.dashboard.traces.images import read_image
from apps.dashboard.traces.rollout_file import write_html, write_json
from apps.dashboard.traces.step_exchange import read_step, read_text
from apps.dashboard.traces.trace_reading import events_of, open_chunk, open_outline
from apps.rollouts.models import Rollout

Answer = TypeVar("Answer", bound=HttpResponseBase)

INERT = "default-src 'none'; sandbox"
"""The policy of a file that comes out of a trace: whatever opens it, nothing in it runs or loads."""


def find_rollout(pk: int) -> Rollout:
    return get_object_or_404(followed_rollouts().select_related("task__version__dataset"), pk=pk)


def read_attempt(request: PageRequest, rollout: Rollout) -> int:
    """The attempt that the address names, or the latest."""
    return _number(request.GET.get("attempt", ""), below=10_000, default=rollout.attempt)


def read_place(request: PageRequest, name: str) -> int | None:
    """The event that the address names as `name`."""
    place = _number(request.GET.get(name, ""), below=10**9, default=-1)
    return None if place < 0 else place


def attempt_context(request: PageRequest, rollout: Rollout, attempt: int) -> dict[str, object]:
    """What links within a trace need, so that they stay with this attempt."""
    is_latest = attempt == rollout.attempt
    return {
        "rollout": rollout,
        "attempt": attempt,
        "is_latest": is_latest,
        "attempt_query": "" if is_latest else f"?attempt={attempt}",
        "attempt_more": "" if is_latest else f"&attempt={attempt}",
        "may_comment": is_latest and user_may(request.user, Permission.COMMENT),
    }


@allow(GET=Permission.READ)
@vary_on_headers("HX-Request")
def rollout_steps(request: PageRequest, pk: int) -> HttpResponse:
    """The chunk that holds event `from`, for the page that has its place; by itself the page that shows it."""
    rollout = find_rollout(pk)
    attempt, first = read_attempt(request, rollout), read_place(request, "from") or 0
    if not wants_fragment(request):
        return redirect(f"{reverse('dashboard:rollout_detail', args=[pk])}?attempt={attempt}&step={first}#e{first}")
    chunk = open_chunk(rollout, attempt, first)
    if chunk is None:
        raise Http404("the attempt has no such event")
    context = attempt_context(request, rollout, attempt)
    return render(request, "rollouts/_chunk.html", {**context, "chunk": chunk})


@allow(GET=Permission.READ)
@vary_on_headers("HX-Request")
def rollout_outline(request: PageRequest, pk: int) -> HttpResponse:
    rollout = find_rollout(pk)
    attempt, first = read_attempt(request, rollout), read_place(request, "from") or 0
    if not wants_fragment(request):
        return redirect(f"{reverse('dashboard:rollout_detail', args=[pk])}?attempt={attempt}&step={first}#o{first}")
    page = open_outline(rollout, attempt, first)
    if page is None:
        raise Http404("the attempt has no such event")
    return render(request, "rollouts/_outline.html", {"rollout": rollout, "attempt": attempt, "page": page})


@allow(GET=Permission.READ)
@vary_on_headers("HX-Request")
def rollout_step(request: PageRequest, pk: int, seq: int) -> HttpResponse:
    """One step with its figures, request, response and stored JSON; for the inspector the figures alone."""
    rollout = find_rollout(pk)
    attempt, whole = read_attempt(request, rollout), not wants_fragment(request)
    step = read_step(rollout, attempt, seq, whole=whole)
    if step is None:
        raise Http404("the attempt has no such event")
    context = {**attempt_context(request, rollout, attempt), "step": step}
    return render(request, "rollouts/step.html" if whole else "rollouts/_inspected.html", context)


@allow(GET=Permission.READ)
def rollout_text(request: PageRequest, pk: int, seq: int, part: str) -> HttpResponse:
    """One text of an event, whole and as it is stored; `?download=1` saves it."""
    rollout = find_rollout(pk)
    body = read_text(rollout, read_attempt(request, rollout), seq, part)
    if body is None:
        raise Http404("the event has no such text")
    answer = HttpResponse(body.text.encode(errors="replace"), content_type="text/plain; charset=utf-8")
    ending = "json" if body.is_json else "txt"
    return _inert(answer, f"rollout-{pk}-{seq}-{part}.{ending}", saved=bool(request.GET.get("download")))


@allow(GET=Permission.READ)
def rollout_image(request: PageRequest, pk: int, seq: int, part: str) -> HttpResponse:
    """A picture that the trace itself holds."""
    rollout = find_rollout(pk)
    payload = events_of(rollout, read_attempt(request, rollout)).filter(seq=seq).values_list("payload", flat=True)
    event = decode(payload[0]) if payload else None
    found = read_image(event, part) if event is not None else None
    if found is None:
        raise Http404("the event has no such picture")
    kind, content = found
    answer = _inert(HttpResponse(content, content_type=kind), f"rollout-{pk}-{seq}.{kind.split('/')[1]}", saved=False)
    answer["Cache-Control"] = "private, max-age=3600"
    return answer


@allow(GET=Permission.READ)
@vary_on_headers("HX-Request")
def rollout_find(request: PageRequest, pk: int) -> HttpResponse:
    rollout = find_rollout(pk)
    attempt = read_attempt(request, rollout)
    found = find_words(rollout, attempt, request.GET.get("q", "")[:200])
    context = {**attempt_context(request, rollout, attempt), "found": found}
    return render(request, "rollouts/_found.html" if wants_fragment(request) else "rollouts/find.html", context)


@allow(GET=Permission.READ)
def rollout_tokens(request: PageRequest, pk: int) -> HttpResponse:
    rollout = find_rollout(pk)
    attempt = read_attempt(request, rollout)
    captured = read_captured(rollout, attempt, call=read_place(request, "call"), first=read_place(request, "first"))
    as_table = request.GET.get("as") == "table"
    context = {**attempt_context(request, rollout, attempt), "captured": captured, "as_table": as_table}
    return render(request, "rollouts/tokens.html", context)


@allow(GET=Permission.READ)
def rollout_raw(request: PageRequest, pk: int) -> HttpResponseBase:
    """Every stored field and event of one attempt, as JSON; `?download=1` saves it."""
    rollout = find_rollout(pk)
    pieces = write_json(rollout, read_attempt(request, rollout))
    saved = bool(request.GET.get("download"))
    return _inert(_stream(request, pieces, "application/json"), f"rollout-{pk}.json", saved=saved)


@allow(GET=Permission.READ)
def rollout_file(request: PageRequest, pk: int) -> HttpResponseBase:
    """One attempt as a page of HTML by itself, always to be saved."""
    rollout = find_rollout(pk)
    pieces = write_html(rollout, read_attempt(request, rollout))
    return _inert(_stream(request, pieces, "text/html; charset=utf-8"), f"rollout-{pk}.html", saved=True)


def _stream(request: PageRequest, pieces: Iterator[bytes], content_type: str) -> StreamingHttpResponse:
    # A request that came over WSGI (Django's own test client) cannot consume an asynchronous body.
    body = _one_by_one(pieces) if isinstance(request, ASGIRequest) else pieces
    return StreamingHttpResponse(body, content_type=content_type)


async def _one_by_one(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """The same pieces, each made in the thread that has the request's database connection."""

    def make() -> bytes:
        return next(pieces, b"")

    while piece := await sync_to_async(make, thread_sensitive=True)():
        yield piece


def _inert(answer: Answer, name: str, *, saved: bool) -> Answer:
    answer["Content-Disposition"] = content_disposition_header(saved, name) or "attachment"
    answer["Content-Security-Policy"] = INERT
    answer["X-Content-Type-Options"] = "nosniff"
    return answer


def _number(text: str, *, below: int, default: int) -> int:
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1
    return number if 0 <= number < below else default
