"""Swagger UI, from the files that drf-spectacular's sidecar ships, under our own content security policy."""

from django.views.generic import TemplateView

from apps.accounts.permissions import Permission, allow

docs = allow(GET=Permission.MEMBER)(TemplateView.as_view(template_name="api/docs.html"))
