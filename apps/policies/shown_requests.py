"""What a policy model adds to its requests, as people may see it: rows may be older than the rule that refuses
credentials there."""

import copy
from typing import Any

from apps.policies.installation_redactor import fresh_redactor
from apps.policies.models import KEY_PLACE


def show_extras(extras: Any) -> Any:
    """Headers or a body without credentials. A value with the place of the key is judged by what stands beside that."""
    if not isinstance(extras, dict):
        return extras
    redactor = fresh_redactor()
    shown: dict[str, Any] = {}
    for name, value in extras.items():
        if isinstance(value, str) and KEY_PLACE in value:
            shown[name] = KEY_PLACE.join(redactor.redact_text(part)[0] for part in value.split(KEY_PLACE))
        else:
            shown |= redactor.redact_value({name: copy.deepcopy(value)})[0]
    return shown
