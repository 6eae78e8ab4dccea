"""What a policy model's row puts into every request, and what of it no request may have."""

import re
from typing import Any

from apps.gym.wires.dialect import FIXED
from apps.policies.models import KEY_PLACE, PolicyModel, Wire

# What frames a request or says where it goes is the HTTP client's to write: a second one of it smuggles requests.
_FRAMING_HEADERS = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# Whatever ends in one of these is taken for a secret: headers are shown on pages and by the API, keys never.
_SECRET_HEADER = re.compile(
    r"(?:.*[-_.])?(?:authorization|auth|apikey|key|token|secret|password|passwd|credentials?|cookie|jwt)",
    re.IGNORECASE,
)


def find_request_problems(policy_model: PolicyModel) -> dict[str, list[str]]:
    """By field, what keeps requests from being made of a row. It is looked at when a row is saved, and again before it
    is used: rows may be older than a rule."""
    found = {
        "base_url": find_address_problems(policy_model.base_url),
        "more_base_urls": _problems_of_more_addresses(policy_model.more_base_urls),
        "extra_headers": _problems_of_headers(policy_model.extra_headers),
        "extra_body": _problems_of_body(policy_model),
        "renamed_fields": _problems_of_names(policy_model.renamed_fields),
    }
    return {field: problems for field, problems in found.items() if problems}


def find_address_problems(base_url: str) -> list[str]:
    # Paths are put after it, and what stands in an address is shown to everybody who may read.
    has_more = bool(set("?#") & set(base_url))
    return ["A base URL has no query and no fragment; a key belongs into the API key."] if has_more else []


def _problems_of_more_addresses(more: Any) -> list[str]:
    if not isinstance(more, list) or not all(isinstance(url, str) and url.strip() for url in more):
        return ["This must be a list of base URLs."]
    return [problem for url in more for problem in find_address_problems(url)]


def _problems_of_headers(headers: Any) -> list[str]:
    if not isinstance(headers, dict) or not all(isinstance(value, str) for value in headers.values()):
        return ["This must be a JSON object of texts."]
    wrong = [name for name in headers if not _HEADER_NAME.fullmatch(name)]
    secret = [name for name, value in headers.items() if _SECRET_HEADER.fullmatch(name) and KEY_PLACE not in value]
    framing = [name for name in headers if name.lower() in _FRAMING_HEADERS]
    broken = [name for name, value in headers.items() if not (value.isascii() and value.isprintable())]
    return [
        *(f"{name!r} is no name of a header." for name in wrong),
        *(
            f"{name} belongs into the API key, which is kept encrypted: write {KEY_PLACE} where its value needs it."
            for name in secret
        ),
        *(f"{name} is written by the HTTP client, and cannot be set." for name in framing),
        *(f"The value of {name} must be one line of ASCII characters." for name in broken),
    ]


def _problems_of_body(policy_model: PolicyModel) -> list[str]:
    body = policy_model.extra_body
    if not isinstance(body, dict):
        return ["This must be a JSON object."]
    problems = [f"{name} is what the rollout itself sends, and cannot be set." for name in sorted(FIXED & body.keys())]
    if body.get("stream") and policy_model.wire == Wire.RESPONSES:
        problems.append("A streamed reply is read over Chat Completions only.")
    return problems


def _problems_of_names(names: Any) -> list[str]:
    if not isinstance(names, dict) or not all(isinstance(name, str) and name for name in names.values()):
        return ["This must be a JSON object from the names of fields to other names."]
    targets = list(names.values())
    taken = sorted({name for name in targets if name in FIXED or targets.count(name) > 1})
    return [f"No field can be renamed to {name}: another one has that name." for name in taken]
