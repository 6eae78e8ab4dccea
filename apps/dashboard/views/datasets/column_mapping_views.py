"""Saved column mappings: which there are, and the end of one."""

from typing import cast

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect

from apps.accounts.models import User
from apps.accounts.permissions import Permission, allow
from apps.dashboard.chrome.page_answers import answer
from apps.tasks.column_mapping_changes import delete_mapping
from apps.tasks.models import ColumnMapping


@allow(GET=Permission.READ)
def mapping_list(request: HttpRequest) -> HttpResponse:
    mappings = ColumnMapping.objects.select_related("created_by")
    return answer(request, "uploads/mappings.html", {"mappings": mappings}, part="rows")


@allow(POST=Permission.UPLOAD)
def mapping_delete(request: HttpRequest, slug: str) -> HttpResponse:
    mapping = get_object_or_404(ColumnMapping, slug=slug)
    delete_mapping(mapping=mapping, user=cast(User, request.user))
    messages.success(request, f"The mapping {mapping.name} is deleted. Uploads keep the one they were made with.")
    return redirect("dashboard:mapping_list")
