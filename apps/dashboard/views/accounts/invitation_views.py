"""Invite users, for admins."""

from django.http import HttpResponse
from django.urls import reverse
from django.views.decorators.cache import never_cache

from apps.accounts.invitations import create_invitation, revoke_invitation
from apps.accounts.models import Invitation
from apps.accounts.permissions import Permission, allow
from apps.dashboard.chrome.page_answers import answer, answer_form, posted
from apps.dashboard.chrome.page_request import PageRequest
from apps.dashboard.chrome.row_views import action_view
from apps.dashboard.forms.accounts.sign_in_forms import InvitationForm
from apps.dashboard.forms.fields import show_errors


@never_cache
@allow(GET=Permission.ACCOUNTS, POST=Permission.ACCOUNTS)
def invitation_create(request: PageRequest) -> HttpResponse:
    """Create an invitation and show its link once."""
    form = InvitationForm(posted(request))
    if form.is_valid():
        with show_errors(form):
            invitation, token = create_invitation(**form.cleaned_data, by=request.user)
            link = request.build_absolute_uri(reverse("dashboard:invitation_accept", args=[token]))
            context = {"invitation": invitation, "link": link}
            return answer(request, "people/invitation_link.html", context, part="link", status=201)
    return answer_form(request, "people/invite.html", {"form": form})


invitation_revoke = action_view(
    Permission.ACCOUNTS,
    revoke_invitation,
    Invitation,
    "invitation",
    then="people",
    success="The invitation is revoked. Its link no longer works.",
)
