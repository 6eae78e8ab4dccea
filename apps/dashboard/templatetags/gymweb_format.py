"""Template filters for numbers, ages, chips and JSON. All output is escaped."""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django import template
from django.db.models.fields import BLANK_CHOICE_DASH
from django.forms import BoundField, ChoiceField, Form, ModelChoiceField
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from apps.dashboard.chrome.icons import ICONS
from apps.dashboard.chrome.number_formats import (
    delta,
    duration,
    fixed,
    in_unit,
    interval_end,
    number,
    percent,
    signed,
    size,
    usd,
)
from apps.dashboard.forms.fields import is_any_set
from apps.dashboard.overview.endpoint_cards import can_check
from apps.dashboard.traces.item_text import view_item
from apps.environments.models import Environment
from apps.gym.outcomes import ENDED_BY_ITSELF
from apps.policies.models import Health, PolicyModel
from apps.rollouts.models import Collection, Rollout

register = template.Library()
for each in (duration, number, fixed, interval_end, delta, signed, usd, in_unit, size, percent):
    register.filter(each)


@register.filter
def cost(amount: float | None) -> str:
    """Format a cost in USD, and an unknown one as a dash with its reason."""
    return usd(amount) if amount is not None else format_html('<span class="muted" title="{}">–</span>', _NO_PRICES)


_NO_PRICES = "unknown: the model has no prices"
_GOOD = {
    "healthy",
    "closed",
    "completed",
    "settled",
    "ready",
    "active",
    "finished",
    "answered",
    "environment_done",
    "checked",
    "done",
    "accepted",
    "sent",
    "pushed",
}
_BAD = {"unhealthy", "open", "failed", "rejected", "lost"}
_WARN = {"paused", "retrying", "half_open", "draft", "empty", "disputed", "throttled", "masked", "stale", "warning"}
_BUSY = {
    "running",
    "loading",
    "receiving",
    "writing",
    "queued",
    "planning",
    "draining",
    "deleting",
    "making",
    "claimed",
    "sending",
}
_GLYPHS = {"ok": "✓", "bad": "✗", "warn": "◐", "muted": "○", "busy": "●"}


@register.filter
def pretty_json(value: Any) -> str:
    """Return indented JSON. Text with JSON is parsed first; other text is returned unchanged."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return str(value)
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


_HIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f]"
)
"""Hidden characters: bidirectional controls and zero-width ones.

Excludes the joiners that scripts need, and ESC, which starts colours.
"""


@register.filter
def revealed(value: Any) -> str:
    """Make hidden characters of the text visible.

    Each gets its own element, which ends its text direction, and the style sheet shows its code point. The text is
    unchanged.
    """
    text = str(value)
    if not _HIDDEN.search(text):
        return text
    parts, last = [], 0
    for found in _HIDDEN.finditer(text):
        parts.append((text[last : found.start()], f"U+{ord(found[0]):04X}", found[0]))
        last = found.end()
    named = format_html_join("", '{}<span class="control" data-code="{}">{}</span>', parts)
    return format_html("{}{}", named, text[last:])


register.filter("as_json", json.dumps)  # for a script, in an attribute


@register.filter
def at(values: Sequence[Any] | Mapping[int, Any], place: int) -> Any:
    """Return the item of a list at an index, or of a mapping by its key."""
    return values[place]


@register.filter
def coded(text: str) -> SafeString:
    """Render text between `backticks` as code."""
    parts = enumerate(text.split("`"))
    return format_html_join(
        "", "{}", ((format_html("<code>{}</code>", part) if odd % 2 else part,) for odd, part in parts)
    )


@register.filter
def ago(moment: datetime | None) -> SafeString | str:
    """Format as `3 min ago`, with the exact UTC time on hover. A script keeps it current."""
    if moment is None:
        return "never"
    seconds = max(0, int((timezone.now() - moment).total_seconds()))
    units = ((86_400, "d"), (3_600, "h"), (60, "min"))
    text = next((f"{seconds // length} {unit} ago" for length, unit in units if seconds >= length), "just now")
    return format_html(
        '<time datetime="{}" title="{}">{}</time>', moment.isoformat(), f"{moment:%Y-%m-%d %H:%M:%S} UTC", text
    )


@register.filter
def as_of(moment: datetime) -> SafeString:
    """Format as `as of 12:30:05 UTC`, with the date if it is not today."""
    day = "" if moment.date() == timezone.now().date() else f"{moment.day} {moment:%b}, "
    text = f"as of {day}{moment:%H:%M:%S} UTC"
    return format_html('<time datetime="{}" data-as-of>{}</time>', moment.isoformat(), text)


@register.filter
def reward_chip(reward: float | None) -> SafeString:
    """Render a reward as number and symbol: ✓ from 1, ✗ up to 0, ◐ between, a dash for none."""
    if reward is None:
        return format_html(
            '<span class="reward-chip muted" title="no reward"><span aria-hidden="true">{}</span></span>', "–"
        )
    kind = "ok" if reward >= 1 else "bad" if reward <= 0 else "warn"
    return format_html(
        '<span class="reward-chip {}" title="reward {}"><span aria-hidden="true">{}</span> {}</span>',
        kind,
        repr(float(reward)),
        _GLYPHS[kind],
        _short_reward(reward),
    )


_MOST_DIGITS = 1e6


def _short_reward(reward: float) -> str:
    """Format with two decimals, or more if two would round a fraction to 0 or 1; scientific for many digits."""
    if reward == 0:
        return "0.00"
    if abs(reward) >= _MOST_DIGITS:
        return f"{reward:.3g}"
    for digits in (2, 3, 4):
        short = f"{reward:.{digits}f}"
        if all((reward > edge, reward < edge) == (float(short) > edge, float(short) < edge) for edge in (0, 1)):
            return short
    return f"{reward:.2g}" if abs(reward) < 0.5 else repr(float(reward))


@register.filter
def status_chip(status: str, label: str = "") -> SafeString:
    """Render a state as symbol and word; the colour is redundant."""
    tones = {"ok": _GOOD, "bad": _BAD, "warn": _WARN, "busy": _BUSY}
    kind = next((kind for kind, states in tones.items() if status in states), "muted")
    return format_html(
        '<span class="chip {}"><span aria-hidden="true">{}</span> {}</span>',
        kind,
        _GLYPHS[kind],
        label or str(status).replace("_", " "),
    )


@register.filter
def collection_chip(collection: Collection) -> SafeString:
    """Render the state of a collection. A collection with failures only is not shown as successful."""
    if collection.state == Collection.State.COMPLETED and 0 < collection.total == collection.failed:
        return status_chip("failed", "all failed")
    return status_chip(collection.state)


@register.filter
def health_chip(checked: Environment | PolicyModel) -> SafeString:
    """Render the health of an environment or a model. Without a server, it runs in the worker process."""
    if checked.health == Health.UNKNOWN and not can_check(checked):
        return format_html('<span class="muted">{}</span>', "no server to check")
    return status_chip(checked.health, checked.get_health_display())


_CHECKS = {"ok": "healthy", "warning": "warning", "failed": "failed", "not_applicable": "not_applicable"}


@register.filter
def check_chip(check: dict[str, Any]) -> SafeString:
    """Render a health check: its name with a status symbol, which screen readers announce in words."""
    status = str(check.get("status"))
    chip = status_chip(_CHECKS.get(status, ""), str(check.get("name", "")).replace("_", " "))
    return format_html('{} <span class="visually-hidden">{}:</span>', chip, status.replace("_", " "))


register.filter(can_check)
register.filter("as_item", view_item)  # a Responses item made ready for templates/_item.html


@register.simple_tag
def icon(name: str) -> SafeString:
    """Render a 16 px icon that is hidden from screen readers, because the text beside it has the meaning."""
    return format_html(
        '<svg class="icon" viewBox="0 0 16 16" width="16" height="16" aria-hidden="true" focusable="false">'
        '<path d="{}"/></svg>',
        ICONS[name],
    )


@register.filter
def worded(field: BoundField) -> BoundField:
    """Render the field. A choice field without choices says so."""
    [(_, dashes)] = BLANK_CHOICE_DASH
    word = "Choose one" if field.field.required else "None"
    if isinstance(field.field, ModelChoiceField):
        if field.field.empty_label == dashes:
            field.field.empty_label = word
    elif isinstance(field.field, ChoiceField):
        widget = field.field.widget
        widget.choices = [(value, word if label == dashes else label) for value, label in widget.choices]
    return field


@register.filter
def has_choice(filters: Form) -> bool:
    """Return True if any filter except the search differs from its default."""
    return is_any_set(filters, [field.name for field in filters.visible_fields() if field.name != "q"])


@register.filter
def flags_of(rollout: Rollout) -> list[str]:
    """Return the flags of a rollout in words, as the filter key `flag:` finds them."""
    holds = {
        "truncated": rollout.stop_reason not in {"", *ENDED_BY_ITSELF},
        "masked": rollout.masked != "",
        "ambiguous path": rollout.ambiguous_path,
        "tool error": rollout.tool_errors > 0,
        "redactions not reviewed": rollout.flagged,
        "no token counts": rollout.calls_without_usage > 0,
        "retried": rollout.attempt > 1,
    }
    flags = [label for label, is_so in holds.items() if is_so]
    return flags + [notice.title.lower() for notice in rollout.setup_notices]


@register.filter
def key_hint(hint: str) -> str:
    """Format the end of a stored key as `…a1b2`."""
    return "…" + hint.lstrip(".…")
