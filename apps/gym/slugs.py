"""Words that no slug may be, since the addresses of pages use them where a slug stands."""

from apps.gym.redaction.redactor import Redactor

_REDACTOR = Redactor()
RESERVED_SLUGS = frozenset({"new", "import"})


def find_slug_problem(slug: str) -> str:
    """What keeps this from being the slug of something new; empty when nothing does."""
    if slug.lower() in RESERVED_SLUGS:
        return "This word is part of the pages' own addresses: choose another slug."
    if _REDACTOR.redact_text(slug)[1]:
        return "This looks like a credential, and a slug is shown in addresses: choose another one."
    return ""
