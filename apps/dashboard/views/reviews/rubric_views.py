"""Rubrics: what reviewers score."""

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse

from apps.accounts.permissions import Permission, allow
from apps.dashboard.chrome.page_answers import answer, answer_form, carry_out, go, posted
from apps.dashboard.chrome.page_request import PageRequest
from apps.dashboard.forms.fields import show_errors
from apps.dashboard.forms.review_forms import RubricChangeForm, RubricForm
from apps.reviews.models import Rubric
from apps.reviews.reviews.rubric_changes import delete_rubric, is_used, save_rubric
from apps.rollouts.search.keyset_pages import page_by_id


@allow(GET=Permission.READ)
def rubric_list(request: PageRequest) -> HttpResponse:
    page = page_by_id(Rubric.objects.select_related("created_by"), request.GET.get("after", ""))
    return answer(request, "rubrics/list.html", {"page": page}, part="rubrics")


@allow(GET=Permission.LEAD, POST=Permission.LEAD)
def rubric_create(request: PageRequest) -> HttpResponse:
    form = RubricForm(posted(request))
    if form.is_valid():
        rubric = form.save(commit=False)
        rubric.created_by = request.user
        with show_errors(form):
            save_rubric(rubric=rubric, user=request.user)
            messages.success(request, f"“{rubric.name}” can be used in queues and on traces.")
            return go(request, "dashboard:rubric_list")
    return answer_form(request, "rubrics/form.html", {"form": form})


@allow(GET=Permission.LEAD, POST=Permission.LEAD)
def rubric_edit(request: PageRequest, slug: str) -> HttpResponse:
    rubric = get_object_or_404(Rubric, slug=slug)
    used = is_used(rubric)
    form = RubricChangeForm(posted(request), instance=rubric, keeps_criteria=used)
    if form.is_valid():
        with show_errors(form):
            save_rubric(rubric=form.save(commit=False), user=request.user)
            messages.success(request, "Changed.")
            return go(request, "dashboard:rubric_list")
    return answer_form(request, "rubrics/form.html", {"form": form, "rubric": rubric, "used": used})


@allow(POST=Permission.LEAD)
def rubric_delete(request: PageRequest, slug: str) -> HttpResponse:
    rubric = get_object_or_404(Rubric, slug=slug)
    return carry_out(
        request,
        lambda: delete_rubric(rubric=rubric, user=request.user),
        said=f"“{rubric.name}” is deleted.",
        then="dashboard:rubric_list",
        refused=reverse("dashboard:rubric_edit", args=[slug]),
    )
