"""What a policy model says to the example rows: a right answer, or a wrong one."""

import json
import re
from typing import Any

from apps.gym.wires.protocol import Reply
from tests.nemo_gym.kinds import allows, hand_value, minutes

Row = dict[str, Any]
Items = list[dict[str, Any]]


def says(text: str) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}


def call(name: str, arguments: Any, number: int = 1) -> dict[str, Any]:
    written = json.dumps(arguments)
    return {"type": "function_call", "call_id": f"call_{name}_{number}", "name": name, "arguments": written}


class Solver:
    """A policy for one row. `items` of an ask after the first `prompt` ones are what was said and done since."""

    def __init__(self, row: Row, moves: Any) -> None:
        self.row, self.moves = row, moves
        self.prompt = 0

    async def ask(self, ask: Any) -> Reply:
        self.prompt = self.prompt or len(ask.items)
        return Reply(
            items=self.moves(self.row, ask.items[self.prompt :], ask.items[: self.prompt]),
            finish_reason="stop",
            model="solver",
            usage={"input_tokens": 7, "output_tokens": 5},
        )


def outputs(said: Items) -> list[Any]:
    return [json.loads(item["output"]) for item in said if item.get("type") == "function_call_output"]


def weather(row: Row, said: Items, prompt: Items) -> Items:
    done = outputs(said)
    return [says(done[0]["weather_description"])] if done else [call("get_weather", {"city": "San Francisco"})]


def count(row: Row, said: Items, prompt: Items) -> Items:
    """Two increments in one turn, then a look: the server's count is what it says."""
    done = outputs(said)
    if not done:
        missing = row["expected_count"] - row.get("initial_count", 0)
        return [call("increment_counter", {"count": 1}, 1), call("increment_counter", {"count": missing - 1}, 2)]
    if len(done) == 2:
        return [call("get_counter_value", {})]
    return [says(f"The count is {done[-1]['count']}.")]


def count_wrong(row: Row, said: Items, prompt: Items) -> Items:
    return [says("I will not count.")] if said else [call("increment_counter", {"count": 1_000})]


def synonyms(row: Row, said: Items, prompt: Items) -> Items:
    done = outputs(said)
    if len(done) < len(row["expected_synonyms"]):
        return [call("get_synonym_value", {"synonym": row["expected_synonyms"][len(done)]}, len(done))]
    if "success" not in done[-1]:
        return [call("extract_synonym_values", {"synonym_values": [one["synonym_value"] for one in done]})]
    return [says(str(row["expected_synonym_values"]))]


def synonyms_wrong(row: Row, said: Items, prompt: Items) -> Items:
    if said:
        return [says("Done.")]
    return [call("extract_synonym_values", {"synonym_values": [*row["expected_synonym_values"][::-1], 1]})]


def one_call(row: Row, said: Items, prompt: Items) -> Items:
    wanted = row["expected_call"]
    return [says("It is sunny.")] if said else [call(wanted["name"], wanted["arguments"])]


def one_call_wrong(row: Row, said: Items, prompt: Items) -> Items:
    return [says("It is sunny.")] if said else [call("get_weather", {"town": "Atlantis"})]


def letter(row: Row, said: Items, prompt: Items) -> Items:
    return [says(f"Step by step … \\boxed{{{row['expected_answer']}}}")]


def letter_wrong(row: Row, said: Items, prompt: Items) -> Items:
    return [says("\\boxed{Z}")]


def string(row: Row, said: Items, prompt: Items) -> Items:
    answer = row["expected_answer"]
    ways = {"boxed": f"It is \\boxed{{{answer}}}.", "final_answer": f"Final answer: {answer}"}
    return [says(ways.get(row["extraction_mode"], f"Let me think.\n{answer}"))]


def nothing(row: Row, said: Items, prompt: Items) -> Items:
    return [says("I do not know.")]


def calls(row: Row, said: Items, prompt: Items) -> Items:
    wanted = row["expected_answers"]
    if said:
        return [says("Those calls answer it.")]
    return [call(one["name"], one["arguments"], number) for number, one in enumerate(wanted)]


def calls_wrong(row: Row, said: Items, prompt: Items) -> Items:
    return [says("Done.")] if said else [call(row["expected_answers"][0]["name"], {"wrong": True})]


def calendar(row: Row, said: Items, prompt: Items) -> Items:
    """Every event at the first time, in quarters of an hour, that leaves room for the others."""
    events = sorted(row["exp_cal_state"].values(), key=lambda one: one["event_id"])
    placed = _place(events, [])
    assert placed is not None
    return [says(json.dumps([{**one, "event_name": f"event {one['event_id']}"} for one in placed]))]


def _place(events: list[Row], placed: list[Row]) -> list[Row] | None:
    if len(placed) == len(events):
        return placed
    event = events[len(placed)]
    for start in range(minutes(event["min_time"]), minutes(event["max_time"]) - event["duration"] + 1, 15):
        end = start + event["duration"]
        taken = any(start < _end(one) and minutes(one["start_time"]) < end for one in placed)
        if taken or not allows(event["constraint"], start, end):
            continue
        time = f"{start // 60:02}:{start % 60:02}"
        one = {"event_id": event["event_id"], "start_time": time, "duration": event["duration"]}
        if (whole := _place(events, [*placed, one])) is not None:
            return whole
    return None


def _end(event: Row) -> int:
    return minutes(event["start_time"]) + int(event["duration"])


def calendar_wrong(row: Row, said: Items, prompt: Items) -> Items:
    events = [{"event_id": int(one), "start_time": "03:00", "duration": 1} for one in row["exp_cal_state"]]
    return [says(json.dumps(events))]


def reasoning(row: Row, said: Items, prompt: Items) -> Items:
    return [says(f"If she lied … <answer>{row['answer']}</answer>")]


def box(row: Row, said: Items, prompt: Items) -> Items:
    return [says(f"Therefore \\boxed{{{row['expected_answer']}}}")]


def follow_ups(row: Row, said: Items, prompt: Items) -> Items:
    asked = sum(item.get("role") == "user" for item in said)
    last = asked == len(row["follow_ups"])
    return [says(f"I would name {row['expected_answer']}." if last else "About two million.")]


def stands(row: Row, said: Items, prompt: Items) -> Items:
    """Hits below 17, by what the table shows."""
    shown = [item["content"] for item in [*prompt, *said] if item.get("role") == "user"][-1]
    hand = re.search(r"Your hand: \[(.*?)\]", shown)
    assert hand is not None
    value = hand_value(hand[1].split(", "))
    return [says(f"I have {value}. <action>{'hit' if value < 17 else 'stand'}</action>")]


def first_tool(row: Row, said: Items, prompt: Items) -> Items:
    name = row["responses_create_params"]["tools"][0]["name"]
    return [says("That is all.")] if said else [call(name, {"name": "carlos"})]
