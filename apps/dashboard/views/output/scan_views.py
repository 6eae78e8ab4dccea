"""Scans: ask a judge model one question about many rollouts, and read its answers."""

from itertools import groupby
from operator import itemgetter
from typing import Any

from django.db.models import Avg, Count
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse

from apps.accounts.permissions import Permission, allow
from apps.dashboard.chrome.page_answers import POLL_ENDED, answer, carry_out, posted, wants_fragment
from apps.dashboard.chrome.page_request import PageRequest
from apps.dashboard.chrome.row_views import action_view
from apps.dashboard.forms.fields import show_errors
from apps.dashboard.forms.scan_forms import ResumeForm, ScanForm, read_estimate
from apps.reviews.agreement.scan_accuracy import read_accuracy
from apps.rollouts.models import FAILED_WORD, Scan, ScanAnswer
from apps.rollouts.scans.scan_controls import cancel_scan, create_scan, resume_scan, start_scan
from apps.rollouts.search.filters.filter_grammar import Term, Text, write_term
from apps.rollouts.search.keyset_pages import page_by_id

MOST = 20
"""Answers that are counted: a number may have many values."""

LISTED = 3
"""Answers that the list shows of each scan."""

_ROWS = Scan.objects.select_related("judge_model", "created_by")

scan_start = action_view(Permission.COLLECT, start_scan, _ROWS, "scan", page="scan_detail")
scan_cancel = action_view(Permission.COLLECT, cancel_scan, _ROWS, "scan", page="scan_detail")


@allow(GET=Permission.READ)
def scan_list(request: PageRequest) -> HttpResponse:
    """List scans with their most frequent answers, except numbers: a number may have many values."""
    page = page_by_id(_ROWS.all(), request.GET.get("after", ""))
    worded = [scan for scan in page.rows if scan.kind != Scan.Kind.NUMBER]
    given = ScanAnswer.objects.filter(scan__in=worded, state=ScanAnswer.State.ANSWERED)
    counted = given.values_list("scan", "answer").annotate(number=Count("pk")).order_by("scan", "-number", "answer")
    counts = {pk: [each for _, *each in rows] for pk, rows in groupby(counted, key=itemgetter(0))}
    scans = [(scan, counts.get(scan.pk, [])) for scan in page.rows]
    return answer(request, "scans/list.html", {"page": page, "scans": scans, "listed": LISTED}, part="scans")


@allow(GET=Permission.COLLECT, POST=Permission.COLLECT)
def scan_create(request: PageRequest) -> HttpResponse:
    """Create a scan. GET with fields in the URL estimates it."""
    given = {name: request.GET[name] for name in ScanForm.base_fields if name in request.GET}
    form = ScanForm(posted(request), initial=given)
    if form.is_valid():
        with show_errors(form):
            return redirect("dashboard:scan_detail", pk=create_scan(form.spec, user=request.user).pk)
    context = {"form": form, **read_estimate(request.POST if form.is_bound else request.GET)}
    if form.is_bound:
        return render(request, "scans/create.html", context, status=422)
    return answer(request, "scans/create.html", context, part="estimate")


@allow(POST=Permission.COLLECT)
def scan_resume(request: PageRequest, pk: int) -> HttpResponse:
    scan, form = get_object_or_404(_ROWS, pk=pk), ResumeForm(request.POST)
    if not form.is_valid():
        return _show(request, scan, form, status=422)
    budget = form.cleaned_data["budget"]
    page = reverse("dashboard:scan_detail", args=[pk])
    return carry_out(request, lambda: resume_scan(scan=scan, budget=budget, user=request.user), then=page)


@allow(GET=Permission.READ)
def scan_detail(request: PageRequest, pk: int) -> HttpResponse:
    """Show the scan. The page polls its live part while workers ask the judge."""
    scan = get_object_or_404(_ROWS, pk=pk)
    return _show(request, scan, ResumeForm.of(scan))


def _show(request: PageRequest, scan: Scan, form: ResumeForm, *, status: int = 200) -> HttpResponse:
    chosen = request.GET.get("answer", "")
    rows = scan.answers.exclude(state=ScanAnswer.State.PENDING).select_related("rollout__task")
    if chosen:
        rows = rows.filter(state=ScanAnswer.State.FAILED) if chosen == FAILED_WORD else rows.filter(answer=chosen)
    context = {
        "scan": scan,
        "form": form,
        "chosen": chosen,
        "pending": scan.total - scan.done,
        "page": page_by_id(rows, request.GET.get("after", "")),
        "criteria": read_accuracy(scan).criteria,
        **_count(scan),
    }
    if status == 200 and scan.is_settled and wants_fragment(request):
        status = POLL_ENDED
    return answer(request, "scans/detail.html", context, part="live", status=status)


def _count(scan: Scan) -> dict[str, Any]:
    """Return the most frequent answers with their counts and filters, and the mean of numbers."""
    answered = scan.answers.filter(state=ScanAnswer.State.ANSWERED).order_by()
    counted = answered.values_list("answer").annotate(number=Count("pk")).order_by("-number", "answer")
    counts = [(each, number, _filter(scan, each)) for each, number in counted[:MOST]]
    if scan.failed:
        counts.append((FAILED_WORD, scan.failed, _filter(scan, FAILED_WORD)))
    return {"counts": counts, "mean": answered.aggregate(mean=Avg("number"))["mean"]}


def _filter(scan: Scan, given: str) -> str:
    return write_term(Term("scan", (Text(f"{scan.pk}={given}"),)))
