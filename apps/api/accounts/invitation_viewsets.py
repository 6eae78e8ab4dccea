"""Invitations, for admins in a session: no key can invite users."""

from http import HTTPStatus
from typing import Any

from django.urls import reverse
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.invitations import DEFAULT_DAYS, MOST_DAYS, create_invitation, revoke_invitation
from apps.accounts.models import INVITATION_STATES, Invitation, Role, User
from apps.accounts.permissions import Permission
from apps.api.framework.base_viewsets import RowViewSet
from apps.api.framework.declared_fields import DeclaredFields


class InvitationSerializer(DeclaredFields, serializers.ModelSerializer[Invitation]):
    role = serializers.ChoiceField(choices=Role.choices, default=Role.VIEWER, help_text="Role of the new account")
    state = serializers.ChoiceField(choices=INVITATION_STATES, read_only=True)
    created_by: serializers.SlugRelatedField[User] = serializers.SlugRelatedField(
        slug_field="username", read_only=True, allow_null=True
    )
    accepted_by: serializers.SlugRelatedField[User] = serializers.SlugRelatedField(
        slug_field="username", read_only=True, allow_null=True
    )
    days = serializers.IntegerField(
        write_only=True,
        required=False,
        default=DEFAULT_DAYS,
        min_value=1,
        max_value=MOST_DAYS,
        help_text="Days until the invitation expires",
    )

    class Meta:
        model = Invitation
        fields = [
            *("id", "email", "role", "state", "days", "created_at", "created_by"),
            *("expires_at", "accepted_at", "accepted_by", "revoked_at"),
        ]
        read_only_fields = ["expires_at", "accepted_at", "revoked_at"]


class NewInvitationSerializer(serializers.Serializer[Any]):
    invitation = InvitationSerializer()
    link = serializers.URLField(help_text="One-time invitation link. It is shown only once.")


class InvitationViewSet(RowViewSet):
    queryset = Invitation.objects.select_related("created_by", "accepted_by").order_by("-id")
    serializer_class = InvitationSerializer
    permissions = dict.fromkeys(["list", "retrieve", "create", "destroy"], Permission.ACCOUNTS)
    # The response contains the link, which must not be stored.
    without_idempotency = frozenset({"create"})

    @extend_schema(request=InvitationSerializer, responses={201: NewInvitationSerializer})
    def create(self, request: Request) -> Response:
        """Invite a user. The link lets them choose a name and a password; the role is fixed."""
        invitation, token = create_invitation(**self.read_body(InvitationSerializer), by=self.user)
        link = request.build_absolute_uri(reverse("dashboard:invitation_accept", args=[token]))
        body = {"invitation": InvitationSerializer(invitation).data, "link": link}
        return Response(body, status=HTTPStatus.CREATED, headers={"Cache-Control": "no-store"})

    @extend_schema(responses=InvitationSerializer)
    def destroy(self, request: Request, pk: str) -> Response:
        """Revoke an invitation. Its link stops working, and it stays in the list."""
        return Response(InvitationSerializer(revoke_invitation(invitation=self.get_object(), user=self.user)).data)
