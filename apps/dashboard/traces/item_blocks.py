"""Blocks of a card from conversation items; unknown kinds become JSON."""

from collections.abc import Iterator

from apps.dashboard.traces.bodies import Body, json_body, parse_json
from apps.dashboard.traces.call_outputs import Pairing, Position, output_body
from apps.dashboard.traces.cards import Block
from apps.dashboard.traces.images import find_image
from apps.gym.traces.items import Item, item_type, text_of

_TEXT_PARTS = {"input_text", "output_text", "text", "refusal"}
NOT_AN_OBJECT = "malformed arguments: not a JSON object"
NOT_ASKED = "no matching call"


def item_blocks(seq: int, position: Position, item: Item, pairing: Pairing) -> Iterator[Block]:
    place = position[1]
    match item_type(item):
        case "message":
            yield from _message_blocks(seq, place, item)
        case "reasoning":
            yield _reasoning_block(item, seq, place)
        case "function_call":
            yield _call_block(seq, position, item, pairing)
        case "function_call_output":
            if not pairing.is_shown(position):
                yield Block("output", "result", output_body(item, seq, place), mark=NOT_ASKED)
        case kind:
            yield Block("json", kind, json_body(item).at(seq, str(place)))


def _message_blocks(seq: int, place: int, item: Item) -> Iterator[Block]:
    role, content = str(item.get("role", "message")), item.get("content")
    if isinstance(content, str) or not content:
        yield Block("text", role, Body(str(content or ""), "markdown", seq, str(place)))
        return
    for sub, part in enumerate(content if isinstance(content, list) else [content]):
        address = f"{place}.{sub}"
        if isinstance(part, dict) and part.get("type", "text") in _TEXT_PARTS:
            is_refusal = part.get("type") == "refusal"
            text = part.get("refusal") if is_refusal else part.get("text")
            body = Body(str(text or ""), "markdown", seq, address)
            yield Block("text", role, body, mark="refusal" if is_refusal else "")
        else:
            body, image = json_body(part).at(seq, address), find_image(part, seq, address)
            yield Block("image" if image else "json", f"{role}: part", body, image=image)


def _reasoning_block(item: Item, seq: int, place: int) -> Block:
    text = text_of(item)
    body = Body(text, "markdown") if text else json_body(item)
    return Block("reasoning", "reasoning", body.at(seq, str(place)))


def _call_block(seq: int, position: Position, item: Item, pairing: Pairing) -> Block:
    body, mark = _arguments(item.get("arguments"))
    result = pairing.result_of(str(item.get("call_id", "")), position)
    return Block("call", str(item.get("name", "")), body.at(seq, str(position[1])), mark=mark, result=result)


def _arguments(arguments: object) -> tuple[Body, str]:
    if not isinstance(arguments, str):
        return json_body(arguments), "" if isinstance(arguments, dict) else "not a JSON object"
    parsed = parse_json(arguments)
    if isinstance(parsed, dict):
        return Body(arguments, "json"), ""
    return Body(arguments), NOT_AN_OBJECT
