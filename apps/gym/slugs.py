"""Reserved slugs: URLs of pages use these words instead of a slug."""

from apps.gym.redaction.redactor import Redactor

_REDACTOR = Redactor()
RESERVED_SLUGS = frozenset({"new", "import"})


def find_slug_problem(slug: str) -> str:
    """Return why this cannot be a new slug, or an empty text."""
    if slug.lower() in RESERVED_SLUGS:
        return "This slug is reserved. Choose another one."
    if _REDACTOR.redact_text(slug)[1]:
        return "This looks like a credential, but slugs are visible in URLs. Choose another one."
    return ""
