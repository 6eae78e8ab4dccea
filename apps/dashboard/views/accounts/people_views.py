"""Other people: who may come in, and as what. For admins."""

from typing import cast

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.db.models import Count, Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.views.decorators.cache import never_cache

from apps.accounts.invitations import invite_person
from apps.accounts.models import Role, User
from apps.accounts.permissions import ROLE_PERMISSIONS, Permission, allow
from apps.accounts.sign_in import create_sign_in_link
from apps.accounts.user_accounts import LastAdmin, edit_user
from apps.dashboard.chrome.page_answers import answer, answer_form, go, posted
from apps.dashboard.forms.account_forms import PersonCreateForm, PersonEditForm
from apps.dashboard.forms.fields import add_errors

_LINK_MINUTES = 60


def _link_page(request: HttpRequest, person: User, token: str) -> HttpResponse:
    """Shows the link, the only time that it can be seen."""
    link = request.build_absolute_uri(reverse("dashboard:sign_in_link", args=[token]))
    return answer(request, "people/link.html", {"person": person, "link": link}, part="link", status=201)


@allow(GET=Permission.ACCOUNTS)
def people(request: HttpRequest) -> HttpResponse:
    rows = User.objects.annotate(
        keys=Count("api_keys", filter=Q(api_keys__revoked_at__isnull=True)),
    ).order_by("-is_active", "username")
    roles = [
        (role.label, sorted(permission.value.replace("_", " ") for permission in ROLE_PERMISSIONS[role]))
        for role in Role
    ]
    return answer(request, "people/list.html", {"people": rows, "roles": roles}, part="rows")


@never_cache
@allow(GET=Permission.ACCOUNTS, POST=Permission.ACCOUNTS)
def person_create(request: HttpRequest) -> HttpResponse:
    form = PersonCreateForm(posted(request))
    if form.is_valid():
        try:
            person, token = invite_person(**form.cleaned_data, by=cast(User, request.user))
        except ValidationError as wrong:
            add_errors(form, wrong)
        else:
            return _link_page(request, person, token)
    return answer_form(request, "people/create.html", {"form": form})


@allow(GET=Permission.ACCOUNTS, POST=Permission.ACCOUNTS)
def person_edit(request: HttpRequest, pk: int) -> HttpResponse:
    person = get_object_or_404(User, pk=pk)
    initial = {"email": person.email, "role": person.role, "is_active": person.is_active}
    form = PersonEditForm(posted(request), initial=initial)
    if form.is_valid():
        try:
            edit_user(person=person, **form.cleaned_data, by=cast(User, request.user))
        except (LastAdmin, ValidationError) as wrong:
            add_errors(form, wrong)
        else:
            messages.success(request, f"{person.username} is saved.")
            return go(request, "dashboard:people")
    return answer_form(
        request, "people/edit.html", {"form": form, "person": person, "keys": person.api_keys.order_by("-id")}
    )


@never_cache
@allow(POST=Permission.ACCOUNTS)
def person_link(request: HttpRequest, pk: int) -> HttpResponse:
    """A new one-time link, for who forgot the password."""
    person = get_object_or_404(User, pk=pk, is_active=True)
    return _link_page(
        request, person, create_sign_in_link(user=person, minutes=_LINK_MINUTES, by=cast(User, request.user))
    )
