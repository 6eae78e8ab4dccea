"""Options of an upload request, from query parameters or form fields."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from drf_spectacular.utils import OpenApiParameter
from rest_framework.exceptions import ErrorDetail, ValidationError
from rest_framework.request import Request

from apps.api.framework.declared_fields import suggest_name
from apps.api.framework.problems import bad_query
from apps.api.framework.request_bodies import is_form, refuse_large_body

# Browser forms may include their CSRF token, which is checked before.
_CSRF_FIELD = "csrfmiddlewaretoken"


class Options(dict[str, str]):
    """Upload options by name. Errors point to the form field or query parameter of the value."""

    def __init__(self, query: Mapping[str, str], fields: Mapping[str, str]) -> None:
        super().__init__({**query, **fields})
        self._form_fields = frozenset(fields)

    def pointer(self, name: str) -> str:
        return f"/{name}" if name in self._form_fields else f"?{name}"

    def refuse(self, name: str, message: str) -> Exception:
        if name in self._form_fields:
            return ValidationError({name: message})
        return bad_query(name, message)

    def flag(self, name: str) -> bool:
        value = self.get(name, "false").lower()
        if value not in {"true", "false", "1", "0"}:
            raise self.refuse(name, "Give true or false.")
        return value in {"true", "1"}


_TYPES = {str: "string", bool: "boolean", int: "integer"}


def describe_form(file: Mapping[str, Any], parameters: Iterable[OpenApiParameter]) -> dict[str, Any]:
    """Return the schema of a form with a file and the query parameters as fields."""
    fields = {one.name: _schema_of(one) for one in parameters}
    return {"type": "object", "properties": {"file": dict(file), **fields}, "additionalProperties": False}


def _schema_of(parameter: OpenApiParameter) -> dict[str, Any]:
    kind: Any = parameter.type
    schema = dict(kind) if isinstance(kind, dict) else {"type": _TYPES[kind]}
    return schema | ({"enum": list(parameter.enum)} if parameter.enum else {})


def read_options(request: Request, known: Collection[str], *, multiple: bool = False) -> Options:
    """Return the options of an upload request. `multiple` allows several files.

    Raise ValidationError for unknown or repeated form fields.
    """
    query: dict[str, str] = request.query_params.dict()
    if not is_form(request):
        return Options(query, {})
    refuse_large_body(request)
    fields = {name: values for name, values in request.POST.lists() if name != _CSRF_FIELD}
    errors: dict[str, Any] = {}
    for name in sorted({*fields, *request.FILES}):
        given = [*fields.get(name, ()), *request.FILES.getlist(name)]
        if name not in {*known, "file"}:
            errors[name] = ErrorDetail(
                f"Unknown field “{name}”. {suggest_name(name, [*known, 'file'])}", code="unknown"
            )
        elif name == "file" and name in fields:
            errors[name] = ErrorDetail("Send it as a file, with a file name.", code="invalid")
        elif name != "file" and name in request.FILES:
            errors[name] = ErrorDetail("This is not a file. Send it as a text field.", code="invalid")
        elif name == "file" and len(given) > 1 and not multiple:
            errors[name] = ErrorDetail("Send one file at a time.", code="repeated")
        elif name != "file" and len(given) + (name in query) > 1:
            errors[name] = ErrorDetail("This is given more than once.", code="repeated")
    if errors:
        raise ValidationError(errors)
    return Options(query, {name: values[0] for name, values in fields.items()})
