"""Find the changes of models that need a migration. Changes of texts and choices need none."""

from typing import Any

from django.db.migrations.autodetector import MigrationAutodetector
from django.db.migrations.state import ModelState, ProjectState
from django.db.models import Field

FIELD_TEXTS = ("choices", "error_messages", "help_text", "validators", "verbose_name")
MODEL_TEXTS = ("verbose_name", "verbose_name_plural")


class SchemaAutodetector(MigrationAutodetector):
    """Compares models without texts, choices and validators. New migrations contain none of them either."""

    def __init__(self, from_state: ProjectState, to_state: ProjectState, questioner: Any = None) -> None:
        for state in (from_state, to_state):
            for model in state.models.values():
                _remove_texts(model)
        super().__init__(from_state, to_state, questioner)


def _remove_texts(model: ModelState) -> None:
    model.fields = {name: _copy_without_texts(field) for name, field in model.fields.items()}
    constraints = [constraint.clone() for constraint in model.options["constraints"]]
    for constraint in constraints:
        constraint.violation_error_message = constraint.default_violation_error_message
    kept = {name: value for name, value in model.options.items() if name not in MODEL_TEXTS}
    model.options = {**kept, "constraints": constraints}


def _copy_without_texts(field: "Field[Any, Any]") -> "Field[Any, Any]":
    _, _, arguments, named = field.deconstruct()
    return type(field)(*arguments, **{name: value for name, value in named.items() if name not in FIELD_TEXTS})
