"""Saved column mappings: list and delete."""

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect

from apps.accounts.permissions import Permission, allow
from apps.dashboard.chrome.page_answers import answer
from apps.dashboard.chrome.page_request import PageRequest
from apps.tasks.column_mapping_changes import delete_mapping
from apps.tasks.models import ColumnMapping


@allow(GET=Permission.READ)
def mapping_list(request: PageRequest) -> HttpResponse:
    mappings = ColumnMapping.objects.select_related("created_by")
    return answer(request, "uploads/mappings.html", {"mappings": mappings}, part="rows")


@allow(POST=Permission.UPLOAD)
def mapping_delete(request: PageRequest, slug: str) -> HttpResponse:
    mapping = get_object_or_404(ColumnMapping, slug=slug)
    delete_mapping(mapping=mapping, user=request.user)
    messages.success(request, f"The mapping {mapping.name} is deleted. Earlier uploads are unchanged.")
    return redirect("dashboard:mapping_list")
