"""Earlier responses of an attempt, for requests of the Responses API that name them or their items by id.

OpenAI stores responses, so clients send `previous_response_id` or an `item_reference` instead of the conversation. Here
the calls of the attempt are the store. An id never finds anything of another attempt.
"""

import secrets
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from apps.gym.serving.completions import BadCompletion
from apps.gym.traces.events import ModelCall
from apps.gym.traces.items import Item, item_type

_PREFIXES = {"message": "msg", "reasoning": "rs", "function_call": "fc"}
_JOINED = ("msg_", "rs_")
"""Prefixes of items that may be streamed in several pieces. The reply then joins them to one item."""


def item_ids(items: Iterable[Item], name: str) -> Iterator[str]:
    """Yield the ids of the items of a response: type, name of the response, number among its items of this type.

    So an item has the same id in a stream and in the whole response, even if their orders differ.
    """
    counts: Counter[str] = Counter()
    for kind in map(item_type, items):
        yield f"{_PREFIXES.get(kind, kind)}_{name}_{counts[kind]}"
        counts[kind] += 1


class PreviousResponses:
    """The calls of one attempt by the ids that its clients see."""

    def __init__(self) -> None:
        self._token = secrets.token_hex(8)
        self._calls: dict[int, tuple[ModelCall, dict[str, Any]]] = {}

    def name(self, number: int) -> str:
        """Return the name of a call: the part of its ids that no other call of any attempt has."""
        return f"{self._token}_{number}"

    def add(self, call: ModelCall, body: dict[str, Any]) -> None:
        """Add a complete call. `body` has `store` and `instructions` of its request."""
        self._calls[call.call] = (call, {"store": body.get("store"), "instructions": bool(body.get("instructions"))})

    def find(self, given: object) -> tuple[int, list[Item]]:
        """Return the number of the call with this response id, and its request and reply without `instructions`.

        Raises BadCompletion.
        """
        call, body = self._find(given)
        if call is None or given != f"resp_{self.name(call.call)}" or body.get("store") is False:
            raise BadCompletion(
                f"Previous response with id '{given}' not found. {_remedy(body)}",
                "previous_response_id",
                code="previous_response_not_found",
            )
        return call.call, self._conversation(call)[bool(body.get("instructions")) :]

    def restore(self, items: list[Item]) -> list[Item]:
        """Return the items of `input` with references replaced. The other items get the ids that the model gave them.

        Raises BadCompletion for unknown references.
        """
        restored: list[Item] = []
        for place, item in enumerate(items):
            given, is_reference = item.get("id"), item.get("type") == "item_reference"
            if not is_reference and self._token not in str(given):
                restored.append(item)
                continue
            call, body = self._find(given)
            named = zip(item_ids(call.items, self.name(call.call)), call.items, strict=True) if call else ()
            own = next((one for name, one in named if name == given), None)
            if is_reference:
                is_piece = call is not None and str(given).startswith(_JOINED)
                if (own is None and not is_piece) or body.get("store") is False:
                    raise BadCompletion(f"Item with id '{given}' not found. {_remedy(body)}", f"input[{place}].id")
                restored += [own] if own else []
            else:
                restored.append({**item, "id": own["id"]} if own and "id" in own else item)
        return restored

    def _find(self, given: object) -> tuple[ModelCall | None, dict[str, Any]]:
        _, found, rest = given.partition(f"_{self._token}_") if isinstance(given, str) else ("", "", "")
        number = rest.partition("_")[0]
        is_number = bool(found) and number.isascii() and number.isdecimal() and len(number) < 10
        return self._calls.get(int(number), (None, {})) if is_number else (None, {})

    def _conversation(self, call: ModelCall) -> list[Item]:
        path = [call]
        while path[-1].parent:
            path.append(self._calls[path[-1].parent][0])
        items: list[Item] = []
        for one in reversed(path):
            items[one.kept :] = [*one.items_in, *one.items]
        return items


def _remedy(body: dict[str, Any]) -> str:
    if body.get("store") is False:
        return "Its request has `store: false`. Leave `store` out, or send the conversation itself."
    return "Name a complete response of the same attempt, or send the conversation itself."
