"""The user's own sessions."""

from http import HTTPStatus

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.models import BrowserSession
from apps.accounts.permissions import Permission
from apps.accounts.sessions.browser_sessions import end_session, sessions_of
from apps.api.framework.base_viewsets import RowViewSet
from apps.api.framework.declared_fields import DeclaredFields


class SessionSerializer(DeclaredFields, serializers.ModelSerializer[BrowserSession]):
    is_current = serializers.SerializerMethodField(help_text="Whether this request belongs to the session")

    class Meta:
        model = BrowserSession
        fields = ["id", "device", "address", "method", "is_current", "created_at", "last_seen_at"]

    def get_is_current(self, session: BrowserSession) -> bool:
        request = self.context.get("request")
        return request is not None and session.session_id == request.session.session_key


class SessionViewSet(RowViewSet):
    """The user's sessions. Requires a session: a key can neither list nor end sessions."""

    queryset = BrowserSession.objects.none()
    serializer_class = SessionSerializer
    permissions = dict.fromkeys(["list", "retrieve", "destroy"], Permission.OWN_ACCOUNT)

    def get_queryset(self) -> QuerySet[BrowserSession]:
        return sessions_of(self.user) if self.request.user.is_authenticated else self.queryset

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, pk: str) -> Response:
        """End a session. Its browser is signed out, and its live pages stop."""
        end_session(session=self.get_object(), user=self.user)
        return Response(status=HTTPStatus.NO_CONTENT)
