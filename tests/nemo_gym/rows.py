"""Rows of our own in the shapes of NeMo Gym's example datasets: what is tested where theirs are not at hand."""

from typing import Any

Row = dict[str, Any]


def tool(name: str, /, **properties: str) -> Row:
    schema = {"type": "object", "properties": {key: {"type": kind} for key, kind in properties.items()}}
    schema |= {"required": list(properties), "additionalProperties": False}
    return {"type": "function", "name": name, "description": "", "parameters": schema, "strict": True}


def ask(text: str, *tools: Row, **fields: Any) -> Row:
    params: Row = {"input": [{"role": "user", "content": text}]}
    if tools:
        params["tools"] = list(tools)
    return {"responses_create_params": params, **fields}


WEATHER = tool("get_weather", city="string")
COUNTER = (tool("increment_counter", count="integer"), tool("get_counter_value"))
SYNONYMS = (tool("get_synonym_value", synonym="string"), tool("extract_synonym_values", synonym_values="array"))


def sum_of(word: str) -> int:
    return sum(map(ord, word))


def event(number: int, duration: int, constraint: str | None) -> Row:
    day = {"min_time": "10:00", "max_time": "16:00"}
    return {"event_id": number, "duration": duration, "constraint": constraint, **day}


OWN: dict[str, list[Row]] = {
    "example_single_tool_call": [ask("How is it in Bergen?", WEATHER), ask("And in Oslo?", WEATHER)],
    "example_session_state_mgmt": [
        ask("Add 1, then 4.", *COUNTER, initial_count=2, expected_count=7),
        ask("Add 1, then 2.", *COUNTER, initial_count=0, expected_count=3),
    ],
    "example_multi_step": [
        ask(
            f"Why is stove {number} warm?",
            *SYNONYMS,
            id=number,
            expected_synonyms=words,
            expected_synonym_values=[sum_of(word) for word in words],
            minefield_label="Hot",
            minefield_label_value=sum_of("Hot"),
        )
        for number, words in enumerate([["Warm"], ["Mild", "Tepid", "Warm"]])
    ],
    "example_tool_call_multireward": [
        ask("Weather in Turin?", WEATHER, expected_call={"name": "get_weather", "arguments": {"city": "Turin"}}),
    ],
    "mcqa": [
        ask(
            "Which is a prime? A: 4 B: 7 C: 9. Answer inside \\boxed{}.",
            options=[{"A": "4"}, {"B": "7"}, {"C": "9"}],
            expected_answer="B",
            grading_mode="strict_single_letter_boxed",
            uuid="00000000-0000-4000-8000-000000000001",
        ),
    ],
    "string_match": [
        ask("Capital of Norway, boxed?", expected_answer="Oslo", extraction_mode="boxed", case_sensitive=False),
        ask("12 dozen?", expected_answer="144", extraction_mode="final_answer", case_sensitive=False),
        ask("Largest fjord?", expected_answer="Sognefjord", extraction_mode="last_line", case_sensitive=False),
    ],
    "xlam_fc": [
        ask(
            "Compare two stocks.",
            tool("get_price", symbol="string"),
            id=0,
            expected_answers=[{"name": "get_price", "arguments": {"symbol": symbol}} for symbol in ("A", "B")],
        ),
    ],
    "calendar": [
        ask(
            "Fit both meetings in.",
            exp_cal_state={
                "0": event(0, 60, "after 1pm"),
                "1": event(1, 30, "between 1pm and 2:30pm"),
                "2": event(2, 45, None),
            },
        ),
    ],
    "reasoning_gym": [
        ask(
            "Ann says that Bob lies. Bob says that both tell the truth. Who is who?",
            question="Who is who?",
            answer="Ann is a sage, and Bob is a fool.",
            metadata={"source_dataset": "knights_knaves", "source_index": 0},
        ),
    ],
    "math_with_judge": [ask("What is half of a third?", question="Half of 1/3?", expected_answer="\\(\\frac{1}{6}\\)")],
    "example_multi_turn_gymnasium": [
        ask("Where is Bergen?", follow_ups=["How many live there?", "Name a mountain."], expected_answer="Ulriken"),
        ask("Where is Rome?", follow_ups=[], expected_answer="Italy"),
    ],
    "blackjack": [ask("Deal me in."), ask("Deal me in.")],
    "workplace_assistant": [
        ask(
            "Which address has Kim?",
            tool("company_directory_find_email_address", name="string"),
            id=0,
            ground_truth=[],
            category="workplace_assistant_email",
            environment_name="workplace_assistant",
        ),
    ],
}
"""By the name of their kind."""
