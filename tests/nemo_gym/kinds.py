"""The rules of NeMo Gym's light servers, as their documentation and replies show them."""

import itertools
import json
import re
import unicodedata
from datetime import datetime
from typing import Any

from tests.nemo_gym.servers import Kind, Tool

Output = list[dict[str, Any]]
State = dict[str, Any]


def texts(output: Output) -> str:
    parts = [
        part["text"]
        for item in output
        if item["type"] == "message" and item.get("role") == "assistant"
        for part in item["content"]
        if part["type"] == "output_text"
    ]
    return "\n".join(parts)


def calls(output: Output) -> list[tuple[str, Any]]:
    return [(item["name"], json.loads(item["arguments"])) for item in output if item["type"] == "function_call"]


def boxed(text: str) -> str | None:
    """What the last whole \\boxed{…} holds."""
    start = text.rfind("\\boxed{")
    if start < 0:
        return None
    depth = 0
    for place in range(start + 6, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return text[start + 7 : place]
    return None


def _weather(description: str) -> Tool:
    def call(arguments: dict[str, Any], state: State) -> Any:
        return {"city": arguments["city"], "weather_description": description.format(**arguments)}

    return Tool(call, {"city": str}, description="Get the current weather for a city.")


SINGLE_TOOL_CALL = Kind(
    "example_single_tool_call",
    verify=lambda row, output, state: {"reward": 1.0},
    tools={"get_weather": _weather("The weather in {city} is cold.")},
)


def _note_city(arguments: dict[str, Any], state: State) -> Any:
    state.setdefault("cities", []).append(arguments["city"])
    return {"weather": f"The weather in {arguments['city']} is sunny and 72 F."}


def _verify_weather(row: dict[str, Any], output: Output, state: State) -> dict[str, Any]:
    """By what the session saw, and by the names in the trace: they must be those of its tools."""
    city = row["verifier_metadata"]["expected_city"]
    seen = city in state.get("cities", [])
    named = {name for name, _ in calls(output)} == {"get_weather"}
    return {"reward": float(seen and named and "72 F" in texts(output)), "tool_call_seen": seen}


MCP_WEATHER = Kind(
    "example_mcp_weather",
    verify=_verify_weather,
    tools={"get_weather": Tool(_note_city, {"city": str}, description="Get a weather report.")},
    needs=("verifier_metadata",),
    over_mcp=True,
)


def _seed_counter(row: dict[str, Any], state: State) -> None:
    state["counter"] = row.get("initial_count", 0)


def _increment(arguments: dict[str, Any], state: State) -> Any:
    state["counter"] = state.get("counter", 0) + arguments["count"]
    return {"success": True}


SESSION_STATE = Kind(
    "example_session_state_mgmt",
    verify=lambda row, output, state: {"reward": float(state.get("counter", 0) == row["expected_count"])},
    tools={
        "increment_counter": Tool(_increment, {"count": int}),
        "get_counter_value": Tool(lambda arguments, state: {"count": state.get("counter", 0)}),
    },
    needs=("expected_count",),
    seed=_seed_counter,
)


def _verify_synonyms(row: dict[str, Any], output: Output, state: State) -> dict[str, Any]:
    said = [arguments["synonym_values"] for name, arguments in calls(output) if name == "extract_synonym_values"]
    found, wanted = (said[-1] if said else []), row["expected_synonym_values"]
    return {
        "reward": float(found == wanted),
        "parsed_synonym_values": found,
        "accuracy": found == wanted,
        "set_overlap": len(set(found) & set(wanted)) / len(wanted),
        "original_term_minefield_hit": row["minefield_label_value"] in found,
        "order_instruction_following_failure": found != wanted and set(found) == set(wanted),
    }


MULTI_STEP = Kind(
    "example_multi_step",
    verify=_verify_synonyms,
    tools={
        "get_synonym_value": Tool(
            lambda arguments, state: {"synonym_value": sum(map(ord, arguments["synonym"]))}, {"synonym": str}
        ),
        "extract_synonym_values": Tool(lambda arguments, state: {"success": True}, {"synonym_values": list}),
    },
    needs=("id", "expected_synonyms", "expected_synonym_values", "minefield_label", "minefield_label_value"),
    declares=("id", "expected_synonyms", "expected_synonym_values", "minefield_label", "minefield_label_value"),
)


def _verify_components(row: dict[str, Any], output: Output, state: State) -> dict[str, Any]:
    made, wanted = calls(output), row["expected_call"]
    right = any(
        name == wanted["name"] and all(arguments.get(key) == value for key, value in wanted["arguments"].items())
        for name, arguments in made
    )
    schemas = {tool["name"]: tool["parameters"] for tool in row["responses_create_params"].get("tools", [])}
    needed = schemas.get(made[0][0], {}).get("required", []) if made else []
    parts = {
        "correctness": float(right),
        "schema_valid": float(bool(made) and isinstance(made[0][1], dict) and all(key in made[0][1] for key in needed)),
        "format": float(len(made) == 1 and not any(item["type"] == "message" for item in output)),
    }
    predicted = [{"name": name, "arguments": arguments} for name, arguments in made]
    return {"reward": sum(parts.values()), "reward_components": parts, "predicted_calls": predicted, **parts}


MULTIREWARD = Kind(
    "example_tool_call_multireward",
    verify=_verify_components,
    tools={"get_weather": _weather("The weather in {city} is sunny.")},
    needs=("expected_call",),
)


def _verify_letter(row: dict[str, Any], output: Output, state: State) -> dict[str, Any]:
    assert row.get("grading_mode", "strict_single_letter_boxed") == "strict_single_letter_boxed"
    box = re.sub(r"\\text\{(.*)\}", r"\1", boxed(texts(output)) or "").strip()
    letter = re.fullmatch(r"([A-Za-z])(?:[:).-].*)?", box, re.DOTALL)
    keys = {key for option in row["options"] for key in option}
    found = letter[1].upper() if letter and letter[1].upper() in keys else None
    wanted = row["expected_answer"].upper()
    return {"reward": float(found == wanted), "expected_answer": row["expected_answer"], "extracted_answer": found}


MCQA = Kind("mcqa", verify=_verify_letter, needs=("expected_answer", "options"), declares=("expected_answer",))


def _normal(text: str) -> str:
    return unicodedata.normalize("NFKC", text).strip().strip("\"'").lower().rstrip(".!?").strip()


def _verify_string(row: dict[str, Any], output: Output, state: State) -> dict[str, Any]:
    text = texts(output)
    final = re.findall(r"final answer\s*(?:is)?\s*:?\s*(.+)", text, re.IGNORECASE)
    ways = {
        "boxed": boxed(text),
        "final_answer": final[-1] if final else boxed(text),
        "last_line": next((line for line in reversed(text.splitlines()) if line.strip()), None),
        "full_response": text,
    }
    found, wanted = ways[row.get("extraction_mode", "final_answer")], row["expected_answer"]
    if found is None:
        equal = False
    elif row.get("case_sensitive"):
        equal = found == wanted
    else:
        equal = _normal(found) == _normal(wanted) or _number(found) == _number(wanted) is not None
    return {"reward": float(equal), "expected_answer": wanted, "extracted_answer": found}


def _number(text: str) -> float | None:
    try:
        return float(_normal(text).replace(",", ""))
    except ValueError:
        return None


STRING_MATCH = Kind("string_match", verify=_verify_string, needs=("expected_answer",), declares=("expected_answer",))


def _verify_calls(row: dict[str, Any], output: Output, state: State) -> dict[str, Any]:
    made, expected = calls(output), row["expected_answers"]
    left, correct = list(made), 0
    for wanted in expected:
        for one in left:
            if one[0] == wanted["name"] and all(one[1].get(k) == v for k, v in wanted["arguments"].items()):
                left.remove(one)
                correct += 1
                break
    return {
        "reward": float(correct == len(expected) == len(made)),
        "num_expected": len(expected),
        "num_predicted": len(made),
        "num_correct": correct,
        "predicted_calls": [{"name": name, "arguments": arguments} for name, arguments in made],
    }


XLAM = Kind("xlam_fc", verify=_verify_calls, needs=("expected_answers",))


def minutes(time: str) -> int:
    for form in ("%I:%M%p", "%I%p", "%H:%M"):
        try:
            moment = datetime.strptime(time.strip().replace(" ", ""), form)
        except ValueError:
            continue
        return moment.hour * 60 + moment.minute
    raise ValueError(time)


def allows(constraint: str | None, start: int, end: int) -> bool:
    if not constraint:
        return True
    kind, _, rest = constraint.partition(" ")
    if kind == "between":
        first, _, second = rest.partition(" and ")
        return minutes(first) <= start and end <= minutes(second)
    return {"before": end <= minutes(rest), "after": start >= minutes(rest), "at": start == minutes(rest)}[kind]


def _verify_calendar(row: dict[str, Any], output: Output, state: State) -> dict[str, Any]:
    last, expected = output[-1], row["exp_cal_state"]
    text = last["content"][0]["text"] if last["type"] == "message" else ""
    if "<think>" in text:
        return {"reward": 0.0}
    if not expected:
        return {"reward": 1.0}
    found = re.search(r"\[.*?\]", text, re.DOTALL)
    try:
        events = json.loads(found[0]) if found else None
    except ValueError:
        events = None
    if events is None or len(events) != len(expected):
        return {"reward": 0.0}
    spans = sorted((minutes(one["start_time"]), minutes(one["start_time"]) + one["duration"]) for one in events)
    apart = all(before[1] <= after[0] for before, after in itertools.pairwise(spans))
    return {"reward": float(apart and all(_fits(one, expected.get(str(one["event_id"]))) for one in events))}


def _fits(event: dict[str, Any], wanted: dict[str, Any] | None) -> bool:
    if wanted is None or event["duration"] != wanted["duration"]:
        return False
    start = minutes(event["start_time"])
    end = start + event["duration"]
    inside = minutes(wanted["min_time"]) <= start and end <= minutes(wanted["max_time"])
    return inside and allows(wanted["constraint"], start, end)


CALENDAR = Kind("calendar", verify=_verify_calendar, needs=("exp_cal_state",))


def _verify_reasoning(row: dict[str, Any], output: Output, state: State) -> dict[str, Any]:
    """Knights and knaves only, the one data set among the example rows: everybody must be told right, in any order."""
    text = texts(output)
    tagged = re.findall(r"<answer>(.*?)</answer>", text, re.DOTALL)
    found = tagged[-1] if tagged else boxed(text) or text
    score = float(_people(found) == _people(row["answer"]))
    return {
        "reward": score,
        "score": score,
        "task_name": row["metadata"]["source_dataset"],
        "extracted_answer": found,
    }


def _people(answer: str) -> set[tuple[str, str]]:
    return set(re.findall(r"(\w+) is an? (\w+)", answer))


REASONING = Kind("reasoning_gym", verify=_verify_reasoning, needs=("question", "answer", "metadata"))


def _verify_math(row: dict[str, Any], output: Output, state: State) -> dict[str, Any]:
    """The library's verdict on equal writings; where it says no, a judge that is asked both ways and says no too."""
    found = boxed(texts(output))
    equal = found is not None and _formula(found) == _formula(row["expected_answer"])
    evaluations = None if equal else [{"judge": "A!=B"}]
    return {
        "reward": float(equal),
        "expected_answer": row["expected_answer"],
        "extracted_answer": found,
        "library_reward": float(equal),
        "judge_evaluations": evaluations,
    }


def _formula(text: str) -> str:
    return re.sub(r"\s|\\\(|\\\)|\$", "", text)


MATH = Kind(
    "math_with_judge", verify=_verify_math, needs=("question", "expected_answer"), declares=("expected_answer",)
)


def _reset_follow_ups(row: dict[str, Any], state: State) -> tuple[str | None, dict[str, Any]]:
    state["turn"] = 0
    return None, {}


def _step_follow_ups(
    row: dict[str, Any], output: Output, state: State
) -> tuple[str | None, float, bool, bool, dict[str, Any]]:
    turn = state["turn"]
    if turn < len(row.get("follow_ups", [])):
        state["turn"] = turn + 1
        return row["follow_ups"][turn], 0.0, False, False, {}
    wanted = row.get("expected_answer", "")
    return None, float(bool(wanted) and wanted.lower() in texts(output).lower()), True, False, {}


MULTI_TURN = Kind("example_multi_turn_gymnasium", reset=_reset_follow_ups, step=_step_follow_ups)


def hand_value(hand: list[str]) -> int:
    total = sum(11 if card == "A" else 10 if card in "JQK" else int(card) for card in hand)
    for _ in range(hand.count("A")):
        total -= 10 if total > 21 else 0
    return total


def blackjack(cards: str) -> Kind:
    """A game with this deck: two cards for the player, two for the dealer, then whoever draws. "T" is a ten."""

    def show(hand: list[str]) -> str:
        return f"[{', '.join(hand)}]"

    def table(state: State) -> str:
        player = state["player"]
        return (
            f"Your hand: {show(player)} = {hand_value(player)}\nDealer shows: {state['dealer'][0]}\n"
            "Respond with <action>hit</action> or <action>stand</action>."
        )

    def reset(row: dict[str, Any], state: State) -> tuple[str | None, dict[str, Any]]:
        deck = ["10" if card == "T" else card for card in cards]
        state |= {"player": deck[:2], "dealer": deck[2:4], "deck": deck[4:]}
        return table(state), {"supports_explicit_close": True}

    def step(row: dict[str, Any], output: Output, state: State) -> tuple[str | None, float, bool, bool, dict[str, Any]]:
        player, dealer, deck = state["player"], state["dealer"], state["deck"]
        action = re.search(r"<action>\s*(hit|stand)\s*</action>", texts(output), re.IGNORECASE)
        if action and action[1].lower() == "hit":
            player.append(deck.pop(0))
            value = hand_value(player)
            if value > 21:
                return None, -1.0, True, False, {"result": "bust", "player": show(player), "value": value}
            return table(state), 0.0, False, False, {}
        while hand_value(dealer) < 17:
            dealer.append(deck.pop(0))
        mine, theirs = hand_value(player), hand_value(dealer)
        won = (mine > theirs or theirs > 21) - (mine < theirs <= 21)
        result = {1: "win", 0: "draw", -1: "loss"}[won]
        told = {"result": result, "player": show(player), "player_value": mine, "dealer": show(dealer)}
        return None, float(won), True, False, {**told, "dealer_value": theirs}

    return Kind("blackjack", reset=reset, step=step)


def workplace(recorded: dict[tuple[str, str], str]) -> Kind:
    """The dispatcher with its catch-all route; it answers what was recorded."""

    def dispatch(name: str, arguments: dict[str, Any], state: State) -> Any:
        state.setdefault("calls", []).append(name)
        known = recorded.get((name, json.dumps(arguments, sort_keys=True)))
        return json.loads(known) if known else {"output": f"Error executing tool {name!r}: {name!r}"}

    def verify(row: dict[str, Any], output: Output, state: State) -> dict[str, Any]:
        return {"reward": float(len(state.get("calls", [])) == len(calls(output)))}

    needs = ("id", "ground_truth", "category", "environment_name")
    return Kind(
        "workplace_assistant", verify=verify, anything=dispatch, needs_session=True, needs=needs, declares=needs
    )
