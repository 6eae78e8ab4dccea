"""Annotations on the page of a rollout: flags, reward overrides, scores, resolved comments."""

import uuid

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse

from apps.accounts.permissions import Permission, allow
from apps.dashboard.chrome.page_answers import carry_out
from apps.dashboard.chrome.page_request import PageRequest
from apps.dashboard.chrome.row_views import action_view
from apps.dashboard.forms.review_forms import FlagForm, OverrideForm, ScoreForm, read_posted_answer
from apps.dashboard.views.rollouts.trace_part_views import find_rollout
from apps.reviews.comments.commenting import resolve_comment
from apps.reviews.models import Comment, Flag, RewardOverride, Rubric
from apps.reviews.queues.item_leases import CannotReview
from apps.reviews.reviews.flags import raise_flag, withdraw_flag
from apps.reviews.reviews.review_answers import AnswerRefused
from apps.reviews.reviews.reward_overrides import override_reward, withdraw_override
from apps.reviews.reviews.submission import score_rollout


def _back(rollout_id: int) -> str:
    return f"{reverse('dashboard:rollout_detail', args=[rollout_id])}#judged"


@allow(POST=Permission.COMMENT)
def rollout_flag(request: PageRequest, pk: int) -> HttpResponse:
    rollout, form = find_rollout(pk), FlagForm(request.POST)
    if not form.is_valid():
        messages.error(
            request, "Not flagged. Choose a problem. Enter the number of an existing step, or leave it empty."
        )
        return redirect(_back(pk))
    given = {**form.cleaned_data, "rollout": rollout, "author": request.user}
    return carry_out(request, lambda: raise_flag(**given), success="Flagged.", then=_back(pk))


flag_withdraw = action_view(
    Permission.COMMENT, withdraw_flag, Flag, "flag", page=lambda flag: _back(flag.rollout_id), success="Flag withdrawn."
)


@allow(POST=Permission.LEAD)
def rollout_override(request: PageRequest, pk: int) -> HttpResponse:
    rollout, form = find_rollout(pk), OverrideForm(request.POST)
    if not form.is_valid():
        messages.error(request, "Enter a reward (a number) and a reason.")
        return redirect(_back(pk))
    given = {**form.cleaned_data, "rollout": rollout, "author": request.user}
    success = "Reward overridden. The reward of the verifier is kept."
    return carry_out(request, lambda: override_reward(**given), success=success, then=_back(pk))


override_withdraw = action_view(
    Permission.LEAD,
    withdraw_override,
    RewardOverride.objects.select_related("rollout"),
    "override",
    page=lambda override: _back(override.rollout_id),
    success="Override withdrawn. The reward of the verifier counts again.",
)


@allow(POST=Permission.COMMENT)
def rollout_score(request: PageRequest, pk: int) -> HttpResponse:
    rollout = find_rollout(pk)
    rubric = get_object_or_404(Rubric, slug=request.POST.get("rubric", "")[:64])
    form = ScoreForm(request.POST)
    if not form.is_valid():
        messages.error(request, "Comment not saved. Enter the number of an existing step, or leave it empty.")
        return redirect(_back(pk))
    said = read_posted_answer(request.POST, rubric.criteria, 0)
    scores = {key: value for key, value in said.scores.items() if value is not None}
    token = request.POST.get("token", "")[:64] or uuid.uuid4().hex
    try:
        score_rollout(
            rollout=rollout, rubric=rubric, scores=scores, reviewer=request.user, token=token, **form.cleaned_data
        )
    except (AnswerRefused, CannotReview) as refusal:
        messages.error(request, f"Not stored: {refusal}")
    else:
        messages.success(request, f"Scored by “{rubric.name}”.")
    return redirect(_back(pk))


@allow(POST=Permission.COMMENT)
def comment_resolve(request: PageRequest, pk: int) -> HttpResponse:
    """Resolve the thread, or reopen it."""
    comment = get_object_or_404(Comment, pk=pk)
    resolve_comment(comment=comment, user=request.user, resolved=request.POST.get("resolved") != "0")
    return redirect(f"{reverse('dashboard:rollout_detail', args=[comment.rollout_id])}#comments")
