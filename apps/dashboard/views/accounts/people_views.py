"""Users and roles, for admins."""

from django.contrib import messages
from django.db.models import Count, Q
from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.views.decorators.cache import never_cache

from apps.accounts.models import Invitation, Role, User
from apps.accounts.permissions import ROLE_PERMISSIONS, Permission, allow
from apps.accounts.second_factor.authenticator_codes import needs_code
from apps.accounts.sessions.browser_sessions import sessions_of
from apps.accounts.sign_in import create_sign_in_link, create_user_with_link
from apps.accounts.user_accounts import edit_user, is_managed
from apps.dashboard.chrome.page_answers import answer, answer_form, go, posted, show_refusal
from apps.dashboard.chrome.page_request import PageRequest
from apps.dashboard.forms.accounts.account_forms import PersonCreateForm, PersonEditForm
from apps.dashboard.forms.fields import show_errors

_LINK_MINUTES = 60
_PERMISSIONS = {
    Permission.READ_TASKS: "read datasets and tasks",
    Permission.READ_QUEUES: "read queues and reviews",
    Permission.READ: "read everything else except secrets and users",
    Permission.OWN_ACCOUNT: "manage their own sign-in and API keys",
    Permission.VIEWS: "save table views",
    Permission.COMMENT: "comment, flag and score",
    Permission.REVIEW: "review",
    Permission.LEAD: "create and manage queues",
    Permission.UPLOAD: "upload tasks",
    Permission.CONFIGURE: "edit environments, agents, alerts, trackers, trace destinations and redaction",
    Permission.COLLECT: "run collections",
    Permission.WORKERS: "drain workers",
    Permission.PAIR: "build pairs",
    Permission.EXPORT: "export",
    Permission.ENDPOINTS: "start collections on any model server, given its URL",
    Permission.MODELS: "edit policy models and their API keys",
    Permission.RETENTION: "see disk use and delete old data",
    Permission.AUDIT: "read the audit log",
    Permission.ACCOUNTS: "manage users",
}


def _link_page(request: PageRequest, person: User, token: str) -> HttpResponse:
    """Show the sign-in link once."""
    link = request.build_absolute_uri(reverse("dashboard:sign_in_link", args=[token]))
    return answer(request, "people/link.html", {"person": person, "link": link}, part="link", status=201)


@allow(GET=Permission.ACCOUNTS)
def people(request: PageRequest) -> HttpResponse:
    rows = User.objects.annotate(
        keys=Count("api_keys", filter=Q(api_keys__revoked_at__isnull=True)),
    ).order_by("-is_active", "username")
    roles = [
        (role.label, [label for permission, label in _PERMISSIONS.items() if permission in ROLE_PERMISSIONS[role]])
        for role in Role
    ]
    context = {"people": rows, "roles": roles, "invitations": Invitation.objects.open().order_by("-id")}
    return answer(request, "people/list.html", context, part="rows")


@never_cache
@allow(GET=Permission.ACCOUNTS, POST=Permission.ACCOUNTS)
def person_create(request: PageRequest) -> HttpResponse:
    form = PersonCreateForm(posted(request))
    if form.is_valid():
        with show_errors(form):
            person, token = create_user_with_link(**form.cleaned_data, by=request.user)
            return _link_page(request, person, token)
    return answer_form(request, "people/create.html", {"form": form})


@allow(GET=Permission.ACCOUNTS, POST=Permission.ACCOUNTS)
def person_edit(request: PageRequest, pk: int) -> HttpResponse:
    person = get_object_or_404(User, pk=pk)
    form = PersonEditForm(posted(request), person=person)
    if form.is_valid():
        with show_errors(form):
            edit_user(person=person, **form.changes(), by=request.user)
            messages.success(request, f"{person.username} is saved.")
            return go(request, "dashboard:people")
    context = {
        "form": form,
        "person": person,
        "keys": person.api_keys.order_by("-id"),
        "sessions": sessions_of(person),
        "current_session": request.session.session_key,
        "has_second_factor": needs_code(person),
        "is_managed": is_managed(person),
    }
    return answer_form(request, "people/edit.html", context)


@never_cache
@allow(POST=Permission.ACCOUNTS)
def person_link(request: PageRequest, pk: int) -> HttpResponse:
    """Create a one-time sign-in link for a user who forgot their password."""
    person = get_object_or_404(User, pk=pk, is_active=True)
    with show_refusal(request):
        return _link_page(request, person, create_sign_in_link(user=person, minutes=_LINK_MINUTES, by=request.user))
    return go(request, "dashboard:person_edit", pk)
