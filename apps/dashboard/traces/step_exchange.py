"""A single step: its figures, and for a model call the HTTP request and response."""

from typing import Any

from apps.accounts.keyset_reading import read_by_key
from apps.dashboard.traces.bodies import Body, json_body, read_output
from apps.dashboard.traces.card_building import decode
from apps.dashboard.traces.card_parts import find_body
from apps.dashboard.traces.cards import Card
from apps.dashboard.traces.trace_reading import events_of, read_graph, read_turn
from apps.gym.errors import GymError
from apps.gym.traces.events import JudgeCall, ModelCall, TraceUnion, conversation, tool_offers
from apps.gym.traces.items import Item, Tool
from apps.gym.wires.protocol import Ask
from apps.policies.models import PolicyModel
from apps.policies.policy_clients import rebuild_request
from apps.rollouts.models import Rollout

_COUNTED = {"tokens in", "tokens out", "reasoning tokens", "cached", "cache writes"}
_LINE_EVENTS = ("session", "prompt", "model_call", "tool_result", "environment_turn")


Figure = tuple[str, float | str, str]
"""Label, value and unit."""


def read_step(rollout: Rollout, attempt: int, seq: int, *, whole: bool = True) -> dict[str, Any] | None:
    """Return the template context of a step, or None if the attempt has no such event.

    It has card, figures and event; with `whole` also the neighbours and, for a model call, the exchange.
    """
    found = events_of(rollout, attempt).filter(seq=seq).values_list("kind", "payload").first()
    if found is None:
        return None
    event = decode(found[1])
    card = next((card for card in read_turn(rollout, attempt, seq) if card.seq == seq or card.last_seq >= seq), None)
    stored = read_output(found[1]).at(seq, "event")
    step = {"seq": seq, "card": card, "figures": _figures(rollout, event, card), "stored": stored}
    if not whole:
        return step
    beside = {"previous": _neighbour(rollout, attempt, seq, -1), "next": _neighbour(rollout, attempt, seq, 1)}
    return {**step, **_exchange(rollout, attempt, seq, event), **beside}


def read_text(rollout: Rollout, attempt: int, seq: int, part: str) -> Body | None:
    """Return a text in full, by its part."""
    payload = events_of(rollout, attempt).filter(seq=seq).values_list("payload", flat=True).first()
    if payload is None:
        return None
    if part == "event":
        return read_output(payload)
    event = decode(payload)
    if part in ("request", "response"):
        return _exchange(rollout, attempt, seq, event).get(part)
    return find_body(event, seq, part) if event is not None else None


def _exchange(rollout: Rollout, attempt: int, seq: int, event: TraceUnion | None) -> dict[str, Any]:
    """Return path, request and response of a model call, and why the request cannot be sent. Empty for other events."""
    if not isinstance(event, ModelCall):
        return {}
    items, tools = (
        _captured_request(rollout, attempt, seq) if event.call else _conversation(rollout, attempt, seq, event)
    )
    ask = Ask(items=items, tools=tools, sampling=event.sampling)
    path, problem = "", ""
    try:
        path, sent = rebuild_request(policy_model=rollout.collection.policy_model, ask=ask)
    except GymError as why:
        sent, problem = {"input": items, "tools": tools, **event.sampling}, str(why)
    bodies = {
        "request": json_body(sent).at(seq, "request"),
        "response": json_body(_response_body(event)).at(seq, "response"),
    }
    return {"path": path, "problem": problem, **bodies}


def _response_body(event: ModelCall) -> dict[str, Any]:
    return {
        "id": event.response_id,
        "model": event.model,
        "output": event.items,
        "finish_reason": event.finish_reason,
        "usage": event.usage,
    }


def _conversation(rollout: Rollout, attempt: int, seq: int, call: ModelCall) -> tuple[list[Item], list[Tool]]:
    """Return the items of the conversation that a call of a linear trace got, and the tools that it was offered."""
    rows = events_of(rollout, attempt).filter(seq__lt=seq, kind__in=_LINE_EVENTS).values_list("seq", "payload")
    read = (decode(payload) for _, payload in read_by_key(rows, by="seq", size=200))
    events = [event for event in read if event is not None]
    return conversation(events)[: call.seen], (tool_offers([*events, call]) or [[]])[-1]


def _captured_request(rollout: Rollout, attempt: int, seq: int) -> tuple[list[Item], list[Tool]]:
    """Return the items of a captured call's request, and the tools that it offered."""
    graph = read_graph(events_of(rollout, attempt).filter(seq__lte=seq))
    call = next(number for number, place in graph.seq_of.items() if place == seq)
    return graph.request(call), graph.tools(call)


def _figures(rollout: Rollout, event: TraceUnion | None, card: Card | None) -> list[Figure]:
    found: list[Figure] = []
    if event is not None and event.duration:
        found.append(("Duration", event.duration, "duration"))
    if event is not None and event.at:
        found.append(("Since start of attempt", max(0.0, event.at - event.duration), "duration"))
    if isinstance(event, ModelCall | JudgeCall):
        usage = event.usage
        counts = (
            ("Tokens in", usage.get("input_tokens", 0)),
            ("Cached tokens in", usage.get("cached_tokens", 0)),
            ("Tokens written to cache", usage.get("cache_write_tokens", 0)),
            ("Tokens out", usage.get("output_tokens", 0)),
            ("reasoning tokens", usage.get("reasoning_tokens", 0)),
            ("Tokens per second", usage.get("output_tokens", 0) / event.duration if event.duration else 0),
        )
        found += [(label, count, "number") for label, count in counts if count]
        cost = _prices(rollout, event)
        if cost:
            found.append(("Cost", cost, "usd"))
    if card is not None:
        found += [(label.capitalize(), value, "text") for label, value in card.facts if label not in _COUNTED]
    return found


def _prices(rollout: Rollout, event: ModelCall | JudgeCall) -> float:
    """Return the cost in USD at current prices of the policy model, or for a judge call of the model with its name."""
    model: PolicyModel | None = rollout.collection.policy_model
    if isinstance(event, JudgeCall):
        model = PolicyModel.objects.filter(slug=event.judge).first()
    cost: float = model.prices.cost(event.usage) if model else 0.0
    return cost


def _neighbour(rollout: Rollout, attempt: int, seq: int, way: int) -> int | None:
    events = events_of(rollout, attempt)
    rows = events.filter(seq__gt=seq) if way > 0 else events.filter(seq__lt=seq).order_by("-seq")
    return rows.values_list("seq", flat=True).first()
