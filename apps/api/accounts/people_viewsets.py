"""Users and roles, for admins in a session: no key can change accounts."""

from http import HTTPStatus
from typing import Any

import django_filters
from django.urls import reverse
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.models import Role, User
from apps.accounts.permissions import Permission
from apps.accounts.second_factor.authenticator_codes import remove_second_factor_of
from apps.accounts.sessions.browser_sessions import end_sessions_of
from apps.accounts.sign_in import create_sign_in_link, create_user_with_link
from apps.accounts.user_accounts import edit_user
from apps.api.framework.base_viewsets import RowViewSet, operation
from apps.api.framework.declared_fields import DeclaredFields
from apps.api.framework.query_filters import filter_set


class PersonSerializer(DeclaredFields, serializers.ModelSerializer[User]):
    class Meta:
        model = User
        fields = ["id", "username", "email", "role", "is_active", "is_suspended", "last_login", "date_joined"]
        read_only_fields = ["is_suspended", "last_login", "date_joined"]


class PersonEditSerializer(PersonSerializer):
    class Meta(PersonSerializer.Meta):
        read_only_fields = [*PersonSerializer.Meta.read_only_fields, "username"]


class NewPersonSerializer(DeclaredFields, serializers.ModelSerializer[User]):
    class Meta:
        model = User
        fields = ["username", "email", "role"]


class LinkSerializer(serializers.Serializer[Any]):
    person = PersonSerializer()
    link = serializers.URLField(help_text="One-time sign-in link. It is shown only once.")


class EndedSessionsSerializer(serializers.Serializer[Any]):
    ended = serializers.IntegerField(help_text="Number of sessions that were ended")


class PersonViewSet(RowViewSet):
    queryset = User.objects.all()
    serializer_class = PersonSerializer
    filterset_class = filter_set(
        role=django_filters.ChoiceFilter(choices=Role.choices), is_active=django_filters.BooleanFilter()
    )
    permissions = dict.fromkeys(
        ["list", "retrieve", "create", "partial_update", "link", "end_sessions", "remove_second_factor"],
        Permission.ACCOUNTS,
    )
    # The response contains a sign-in link, which must not be stored.
    without_idempotency = frozenset({"create", "link"})

    @extend_schema(request=NewPersonSerializer, responses={201: LinkSerializer})
    def create(self, request: Request) -> Response:
        """Create a user: an account without a password, and a one-time sign-in link."""
        person, token = create_user_with_link(
            **{"role": Role.VIEWER, **self.read_body(NewPersonSerializer)}, by=self.user
        )
        return self._answer_link(person, token)

    @extend_schema(request=PersonEditSerializer, responses=PersonSerializer)
    def partial_update(self, request: Request, pk: str) -> Response:
        """Change the role or the e-mail address, or deactivate or reactivate the account."""
        person = self.get_object()
        wanted = self.read_body(PersonEditSerializer, person, partial=True)
        fields = {"role": person.role, **wanted}
        return Response(PersonSerializer(edit_user(person=person, **fields, by=self.user)).data)

    @operation(responses={201: LinkSerializer})
    def link(self, request: Request, pk: str) -> Response:
        """Create a one-time sign-in link for a user who forgot their password."""
        person = self.get_object()
        if not person.is_active:
            raise NotFound("This account is deactivated.")
        return self._answer_link(person, create_sign_in_link(user=person, by=self.user))

    @operation(responses=EndedSessionsSerializer)
    def end_sessions(self, request: Request, pk: str) -> Response:
        """End all sessions of a user. The session of this request stays."""
        keep = request._request.session.session_key
        return Response({"ended": end_sessions_of(person=self.get_object(), by=self.user, keep=keep)})

    @operation(responses=PersonSerializer)
    def remove_second_factor(self, request: Request, pk: str) -> Response:
        """Turn off two-factor authentication of another user who has lost the app and the recovery codes."""
        person = self.get_object()
        remove_second_factor_of(person=person, by=self.user)
        return Response(PersonSerializer(person).data)

    def _answer_link(self, person: User, token: str) -> Response:
        link = self.request.build_absolute_uri(reverse("dashboard:sign_in_link", args=[token]))
        body = {"person": PersonSerializer(person).data, "link": link}
        return Response(body, status=HTTPStatus.CREATED, headers={"Cache-Control": "no-store"})
