"""Write parallel calls as turns with one call each, for chat templates that take only one."""

from typing import Any

Message = dict[str, Any]


def split_calls(messages: list[Message]) -> list[tuple[Message, int]]:
    """Return the messages with one call per turn, each followed by its result, and the old place of each message.

    Calls stay in one turn unless each has exactly one result after it.
    """
    made: list[tuple[Message, int]] = []
    results_left = 0
    for place, message in enumerate(messages):
        calls = message.get("tool_calls") or []
        following = enumerate(messages[place + 1 : place + 1 + len(calls)], start=place + 1)
        results = {one.get("tool_call_id"): (one, number) for number, one in following}
        if results_left:
            results_left -= 1
        elif len(calls) > 1 and set(results) == {call["id"] for call in calls} and len(results) == len(calls):
            results_left = len(calls)
            rest = {key: value for key, value in message.items() if key != "reasoning_content"} | {"content": ""}
            for number, call in enumerate(calls):
                turn = {**(rest if number else message), "tool_calls": [call]}
                made += [(turn, place), results[call["id"]]]
        else:
            made.append((message, place))
    return made
