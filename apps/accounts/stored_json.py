"""A JSON field that restores floats: PostgreSQL returns 1e40 as a long integer."""

import json
from typing import Any

from django.db import models

from apps.gym.storable import parse_integer


class _Decoder(json.JSONDecoder):
    def __init__(self, **options: Any) -> None:
        super().__init__(**{**options, "parse_int": parse_integer})


class StoredJSONField(models.JSONField):
    """A JSON field for numbers from users, verifiers or files. Migrations treat it as a JSONField."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{**options, "decoder": _Decoder})

    def deconstruct(self) -> tuple[str, str, Any, Any]:
        name, _, args, options = super().deconstruct()
        options.pop("decoder", None)
        return str(name), "django.db.models.JSONField", args, options
