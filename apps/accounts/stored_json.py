"""JSON as databases give it back: PostgreSQL writes the number 1e40 out, as a whole one that JSON for programs has no
room for. Here it is a float, as it was when it was stored."""

import json
from typing import Any

from django.db import models

from apps.gym.storable import read_whole


class _Decoder(json.JSONDecoder):
    def __init__(self, **options: Any) -> None:
        super().__init__(**{**options, "parse_int": read_whole})


class StoredJSONField(models.JSONField):
    """For what holds numbers that people, verifiers or files gave. Migrations know it as the JSONField that it is."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{**options, "decoder": _Decoder})

    def deconstruct(self) -> tuple[str, str, Any, Any]:
        name, _, args, options = super().deconstruct()
        options.pop("decoder", None)
        return str(name), "django.db.models.JSONField", args, options
