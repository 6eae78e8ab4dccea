"""List the settings of a collection for trackers: what was collected, with which model and limits."""

from typing import Any

from apps.exports.manifests import describe_source
from apps.rollouts.models import Collection
from apps.tracking.run_batches import Setting

MAX_CHARACTERS = 2_000


def collection_settings(collection: Collection) -> dict[str, Setting]:
    """Return the settings by dotted name, as an export's manifest has them, and the limits of the plan."""
    source = describe_source(collection)
    source["collection"].pop("state")
    names = ("limit", "rollout_timeout", "max_attempts", "solve_threshold")
    limits = {name: getattr(collection, name) for name in names}
    chosen = {"splits": collection.splits, "tags": collection.tags, "split_repeats": collection.split_repeats}
    return dict(_flatten({**source, **{name: value for name, value in chosen.items() if value}, "plan": limits}))


def _flatten(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        for key, one in value.items():
            yield from _flatten(one, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list):
        yield name, ", ".join(map(str, value))[:MAX_CHARACTERS]
    elif value is not None:
        yield name, value[:MAX_CHARACTERS] if isinstance(value, str) else value
