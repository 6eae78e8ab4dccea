"""Views of the audit log, for admins."""

from typing import Any

import orjson
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse

from apps.accounts.audit_files import FORMATS
from apps.accounts.keyset_reading import one_by_one
from apps.accounts.models import AuditEntry
from apps.accounts.permissions import Permission, allow
from apps.dashboard.chrome.page_answers import answer
from apps.dashboard.forms.accounts.audit_forms import AuditSearchForm
from apps.rollouts.search.keyset_pages import page_by_id


@allow(GET=Permission.AUDIT)
def audit(request: HttpRequest) -> HttpResponse:
    filters = AuditSearchForm(request.GET)
    page = page_by_id(filters.entries(), request.GET.get("after", ""))
    for entry in page.rows:
        entry.lines = _lines(entry)  # type: ignore[attr-defined]
    context = {"filters": filters, "page": page, "formats": list(FORMATS)}
    return answer(request, "audit/list.html", context, part="entries")


@allow(GET=Permission.AUDIT)
def audit_export(request: HttpRequest) -> HttpResponseBase:
    """Download the filtered entries in one of FORMATS."""
    name = request.GET.get("format", "")
    if name not in FORMATS:
        raise Http404
    content_type, read = FORMATS[name]
    entries = AuditSearchForm(request.GET).entries()
    response = StreamingHttpResponse(one_by_one(read(entries)), content_type=content_type)
    response["Content-Disposition"] = f'attachment; filename="audit.{name}"'
    return response


def _lines(entry: AuditEntry) -> list[tuple[str, str, str]]:
    """Return (name, old value, new value) of each field. Without an old value it is not a change."""
    names = {**entry.before, **entry.after}
    changes = [(name, _shown(entry.before.get(name)), _shown(entry.after.get(name))) for name in names]
    return [*changes, *((name, "", _shown(value)) for name, value in entry.detail.items())]


def _shown(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else orjson.dumps(value).decode()
