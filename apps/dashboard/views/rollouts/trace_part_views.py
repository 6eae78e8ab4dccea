"""Parts of a trace: chunks of steps, the outline, one step, one text, one image, search results."""

from collections.abc import Callable, Iterator
from typing import TypeVar

from django.core.handlers.asgi import ASGIRequest
from django.http import Http404, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.http import content_disposition_header
from django.views.decorators.vary import vary_on_headers

from apps.accounts.keyset_reading import one_by_one
from apps.accounts.permissions import Permission, allow, user_may
from apps.dashboard.chrome.page_answers import wants_fragment
from apps.dashboard.chrome.page_request import PageRequest, read_number
from apps.dashboard.live.followed_attempt import followed_rollouts
from apps.dashboard.traces.captured_tokens import read_captured
from apps.dashboard.traces.card_building import decode
from apps.dashboard.traces.finding import find_words
from apps.dashboard.traces.images import read_image
from apps.dashboard.traces.rollout_file import write_html, write_json
from apps.dashboard.traces.step_exchange import read_step, read_text
from apps.dashboard.traces.trace_reading import events_of, open_chunk, open_outline
from apps.gym.image_data import ENDINGS
from apps.rollouts.models import Rollout
from apps.tasks.models import StoredImage

Answer = TypeVar("Answer", bound=HttpResponseBase)
Found = TypeVar("Found")

INERT = "default-src 'none'; sandbox"
"""Content security policy of files from a trace: nothing in them runs or loads."""


def or_404(found: Found | None, message: str) -> Found:
    if found is None:
        raise Http404(message)
    return found


def find_rollout(pk: int) -> Rollout:
    return get_object_or_404(followed_rollouts().select_related("task__version__dataset"), pk=pk)


def read_attempt(request: PageRequest, rollout: Rollout) -> int:
    """Return the attempt in the URL, else the latest."""
    given = read_number(request.GET.get("attempt", ""), digits=4)
    return rollout.attempt if given is None else given


def find_attempt(request: PageRequest, pk: int) -> tuple[Rollout, int]:
    rollout = find_rollout(pk)
    return rollout, read_attempt(request, rollout)


def read_place(request: PageRequest, name: str) -> int | None:
    """Return the event that the URL parameter `name` has."""
    return read_number(request.GET.get(name, ""), digits=9)


def attempt_context(request: PageRequest, rollout: Rollout, attempt: int) -> dict[str, object]:
    """Return the context for links within a trace, so that they stay with this attempt."""
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
    """Return the chunk with event `from` as a fragment for the page, or on a page of its own."""
    return _answer_part(request, pk, open_chunk, "rollouts/_chunk.html", name="chunk", anchor="e")


@allow(GET=Permission.READ)
@vary_on_headers("HX-Request")
def rollout_outline(request: PageRequest, pk: int) -> HttpResponse:
    return _answer_part(request, pk, open_outline, "rollouts/_outline.html", name="page", anchor="o")


def _answer_part(
    request: PageRequest,
    pk: int,
    open_part: Callable[[Rollout, int, int], Found | None],
    template: str,
    *,
    name: str,
    anchor: str,
) -> HttpResponse:
    rollout, attempt = find_attempt(request, pk)
    first = read_place(request, "from") or 0
    if not wants_fragment(request):
        page = reverse("dashboard:rollout_detail", args=[pk])
        return redirect(f"{page}?attempt={attempt}&step={first}#{anchor}{first}")
    part = or_404(open_part(rollout, attempt, first), "no such event in this attempt")
    return render(request, template, {**attempt_context(request, rollout, attempt), name: part})


@allow(GET=Permission.READ)
@vary_on_headers("HX-Request")
def rollout_step(request: PageRequest, pk: int, seq: int) -> HttpResponse:
    """Show one step with its figures, request, response and stored JSON; the inspector gets only the figures."""
    (rollout, attempt), whole = find_attempt(request, pk), not wants_fragment(request)
    step = or_404(read_step(rollout, attempt, seq, whole=whole), "no such event in this attempt")
    context = {**attempt_context(request, rollout, attempt), "step": step}
    return render(request, "rollouts/step.html" if whole else "rollouts/_inspected.html", context)


@allow(GET=Permission.READ)
def rollout_text(request: PageRequest, pk: int, seq: int, part: str) -> HttpResponse:
    """Return one full text of an event as stored; `?download=1` saves it."""
    body = or_404(read_text(*find_attempt(request, pk), seq, part), "the event has no such text")
    answer = HttpResponse(body.text.encode(errors="replace"), content_type="text/plain; charset=utf-8")
    ending = "json" if body.is_json else "txt"
    return _inert(answer, f"rollout-{pk}-{seq}-{part}.{ending}", saved=bool(request.GET.get("download")))


@allow(GET=Permission.READ)
def rollout_image(request: PageRequest, pk: int, seq: int, part: str) -> HttpResponse:
    """Return an image stored in the trace."""
    payload = events_of(*find_attempt(request, pk)).filter(seq=seq).values_list("payload", flat=True)
    event = decode(payload[0]) if payload else None
    found = or_404(read_image(event, part) if event is not None else None, "the event has no such image")
    kind, content = found
    answer = _inert(HttpResponse(content, content_type=kind), f"rollout-{pk}-{seq}.{kind.split('/')[1]}", saved=False)
    answer["Cache-Control"] = "private, max-age=3600"
    return answer


@allow(GET=Permission.READ_QUEUES)
def stored_image(request: PageRequest, sha256: str) -> HttpResponse:
    """Return a stored image. Annotators learn its hash only from their items."""
    image = get_object_or_404(StoredImage, sha256=sha256)
    name = f"{sha256}.{ENDINGS[image.kind]}"
    answer = _inert(HttpResponse(bytes(image.content), content_type=image.kind), name, saved=False)
    answer["Cache-Control"] = "private, max-age=31536000, immutable"
    return answer


@allow(GET=Permission.READ)
@vary_on_headers("HX-Request")
def rollout_find(request: PageRequest, pk: int) -> HttpResponse:
    rollout, attempt = find_attempt(request, pk)
    found = find_words(rollout, attempt, request.GET.get("q", "")[:200])
    context = {**attempt_context(request, rollout, attempt), "found": found}
    return render(request, "rollouts/_found.html" if wants_fragment(request) else "rollouts/find.html", context)


@allow(GET=Permission.READ)
def rollout_tokens(request: PageRequest, pk: int) -> HttpResponse:
    rollout, attempt = find_attempt(request, pk)
    captured = read_captured(rollout, attempt, call=read_place(request, "call"), first=read_place(request, "first"))
    as_table = request.GET.get("as") == "table"
    context = {**attempt_context(request, rollout, attempt), "captured": captured, "as_table": as_table}
    return render(request, "rollouts/tokens.html", context)


@allow(GET=Permission.READ)
def rollout_raw(request: PageRequest, pk: int) -> HttpResponseBase:
    """Return every stored field and event of one attempt as JSON; `?download=1` saves it."""
    pieces, saved = write_json(*find_attempt(request, pk)), bool(request.GET.get("download"))
    return _inert(_stream(request, pieces, "application/json"), f"rollout-{pk}.json", saved=saved)


@allow(GET=Permission.READ)
def rollout_file(request: PageRequest, pk: int) -> HttpResponseBase:
    """Download one attempt as a self-contained HTML page."""
    pieces = write_html(*find_attempt(request, pk))
    return _inert(_stream(request, pieces, "text/html; charset=utf-8"), f"rollout-{pk}.html", saved=True)


def _stream(request: PageRequest, pieces: Iterator[bytes], content_type: str) -> StreamingHttpResponse:
    # A WSGI request, for example from Django's test client, cannot consume an asynchronous body.
    body = one_by_one(pieces) if isinstance(request, ASGIRequest) else pieces
    return StreamingHttpResponse(body, content_type=content_type)


def _inert(answer: Answer, name: str, *, saved: bool) -> Answer:
    answer["Content-Disposition"] = content_disposition_header(saved, name) or "attachment"
    answer["Content-Security-Policy"] = INERT
    answer["X-Content-Type-Options"] = "nosniff"
    return answer
