"""Validate custom headers and body fields of a policy model."""

import re
from typing import Any

from apps.gym.calls.outbound_policy import FRAMING
from apps.gym.wires.dialect import FIXED
from apps.policies.models import KEY_PLACEHOLDER, PolicyModel, Wire

_FRAMING_HEADERS = FRAMING | {"accept-encoding", "content-encoding"}
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# Headers with these endings count as secrets. Headers are visible on pages and in the API; keys never are.
_SECRET_HEADER = re.compile(
    r"(?:.*[-_.])?(?:authorization|auth|apikey|key|token|secret|password|passwd|credentials?|cookie|jwt)",
    re.IGNORECASE,
)


def find_request_problems(policy_model: PolicyModel) -> dict[str, list[str]]:
    """Return errors by field that make requests invalid.

    Checked when saving and before use, because rows may be older than a rule.
    """
    found = {
        "base_url": find_address_problems(policy_model.base_url),
        "more_base_urls": _problems_of_more_addresses(policy_model.more_base_urls),
        "extra_headers": _problems_of_headers(policy_model.extra_headers),
        "extra_body": _problems_of_body(policy_model),
        "renamed_fields": _problems_of_names(policy_model.renamed_fields),
    }
    return {field: problems for field, problems in found.items() if problems}


def find_address_problems(base_url: str) -> list[str]:
    # Paths are appended to the URL, and all users can see it.
    has_more = bool(set("?#") & set(base_url))
    return ["A base URL must not have a query or fragment. Put keys into the API key field."] if has_more else []


def _problems_of_more_addresses(more: Any) -> list[str]:
    if not isinstance(more, list) or not all(isinstance(url, str) and url.strip() for url in more):
        return ["This must be a list of base URLs."]
    return [problem for url in more for problem in find_address_problems(url)]


def _problems_of_headers(headers: Any) -> list[str]:
    if not isinstance(headers, dict) or not all(isinstance(value, str) for value in headers.values()):
        return ["This must be a JSON object of texts."]
    wrong = [name for name in headers if not _HEADER_NAME.fullmatch(name)]
    secret = [
        name for name, value in headers.items() if _SECRET_HEADER.fullmatch(name) and KEY_PLACEHOLDER not in value
    ]
    framing = [name for name in headers if name.lower() in _FRAMING_HEADERS]
    broken = [name for name, value in headers.items() if not (value.isascii() and value.isprintable())]
    return [
        *(f"{name!r} is not a valid header name." for name in wrong),
        *(
            f"{name} is secret. Enter it as the API key, which is stored encrypted, and "
            f"write {KEY_PLACEHOLDER} into the value."
            for name in secret
        ),
        *(f"{name} is set by the HTTP client and cannot be changed." for name in framing),
        *(f"The value of {name} must be one line of ASCII characters." for name in broken),
    ]


def _problems_of_body(policy_model: PolicyModel) -> list[str]:
    body = policy_model.extra_body
    if not isinstance(body, dict):
        return ["This must be a JSON object."]
    problems = [f"{name} is set by the rollout and cannot be changed." for name in sorted(FIXED & body.keys())]
    if body.get("stream") and policy_model.wire == Wire.RESPONSES:
        problems.append("Streaming needs Chat Completions.")
    return problems


def _problems_of_names(names: Any) -> list[str]:
    if not isinstance(names, dict) or not all(isinstance(name, str) and name for name in names.values()):
        return ["This must be a JSON object of field names and new names."]
    targets = list(names.values())
    taken = sorted({name for name in targets if name in FIXED or targets.count(name) > 1})
    return [f"No field can be renamed to {name}, because this name is in use." for name in taken]
