"""Conversations there and back again: 2,000 of them, equal up to what chat cannot say."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.gym.errors import PolicyError
from apps.gym.traces.chat_turns import Message, Reasoning, SentMessages, assistant_items, chat_items, chat_messages
from apps.gym.traces.items import Item

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
name = st.text("abcdefgh_", min_size=1, max_size=8)
image = st.builds(
    lambda url, detail: {"type": "input_image", "image_url": url, **({"detail": detail} if detail else {})},
    st.just("data:image/png;base64,AAAA"),
    st.sampled_from(["", "low", "high"]),
)
part = st.one_of(text.map(lambda said: {"type": "input_text", "text": said}), image)
content = st.one_of(text, st.lists(part, min_size=1, max_size=3))
# Images of results go to another message.
result = st.one_of(text, st.lists(text.map(lambda said: {"type": "input_text", "text": said}), min_size=1, max_size=3))
opening = st.builds(
    lambda role, said: {"type": "message", "role": role, "content": said},
    st.sampled_from(["system", "developer", "user"]),
    content,
)
thought = st.lists(text, min_size=1, max_size=2).map(
    lambda texts: {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": one} for one in texts]}
)
spoken = text.map(lambda one: {"type": "output_text", "text": one, "annotations": []})
refused = st.sampled_from(["No.", "I cannot.\n"]).map(lambda one: {"type": "refusal", "refusal": one})
said = st.lists(st.one_of(spoken, spoken, spoken, refused), min_size=1, max_size=2).map(
    lambda parts: {"type": "message", "id": "msg", "role": "assistant", "status": "completed", "content": parts}
)
call = st.builds(
    lambda called, arguments: {"type": "function_call", "name": called, "arguments": arguments},
    name,
    st.sampled_from(["{}", '{"a": 1}', '{"text": "ä\\n"}', "not JSON"]),
)


@st.composite
def conversations(draw: st.DrawFn) -> list[Item]:
    """An opening, then turns of thoughts, texts, refusals and calls in any order, each call with its output, other
    people in between."""
    items = draw(st.lists(opening, min_size=1, max_size=3))
    for turn in range(draw(st.integers(0, 4))):
        calls = [
            {**one, "id": f"fc_{turn}_{number}", "call_id": f"call_{turn}_{number}"}
            for number, one in enumerate(draw(st.lists(call, max_size=3)))
        ]
        thoughts, texts = draw(st.lists(thought, max_size=2)), draw(st.lists(said, max_size=2))
        items += draw(st.permutations([*thoughts, *texts, *calls]))
        items += [{"type": "function_call_output", "call_id": one["call_id"], "output": draw(result)} for one in calls]
        if not calls:
            items.append(draw(opening))
    return items


def as_chat_can_say_it(items: list[Item]) -> list[Item]:
    """The same conversation with what the wire changes, all of it written in docs/use/models.md: fresh ids, what stands
    together in a turn one message with its thoughts first and its calls last, texts and thoughts joined, empty ones
    dropped, developers called system."""
    plain: list[Item] = []
    turn: list[Item] = []

    def end_turn() -> None:
        # Nothing stands between the parts of one thought; several thoughts are paragraphs.
        thoughts = ["".join(part["text"] for part in item["summary"]) for item in turn if item["type"] == "reasoning"]
        messages = [item["content"] for item in turn if item["type"] == "message"]
        parts = [part.get("text", "") or part.get("refusal", "") for content in messages for part in content]
        if not any(part["type"] == "refusal" for content in messages for part in content):
            texts = ("".join(part["text"] for part in content) for content in messages)
            parts = ["\n\n".join(filter(None, texts))]
        if joined := "\n\n".join(filter(None, thoughts)):
            plain.append({"type": "reasoning", "text": joined})
        if parts := [part for part in parts if part]:
            plain.append({"type": "message", "role": "assistant", "parts": parts})
        plain.extend(
            {key: item[key] for key in ("type", "call_id", "name", "arguments")}
            for item in turn
            if item["type"] == "function_call"
        )
        turn.clear()

    for item in items:
        if item["type"] in ("reasoning", "function_call") or item.get("role") == "assistant":
            turn.append(item)
            continue
        end_turn()
        role = {"role": "system"} if item.get("role") == "developer" else {}
        plain.append({**item, **role})
    end_turn()
    return plain


@settings(max_examples=500)
@given(conversations())
def test_a_conversation_survives_the_way_to_chat_and_back(items: list[Item]) -> None:
    back = chat_items(chat_messages(items))
    assert as_chat_can_say_it(back) == as_chat_can_say_it(items)


@st.composite
def plain_conversations(draw: st.DrawFn) -> tuple[list[Item], int]:
    """Conversations in the order that chat has as well, and how many turns of the model they have: a thought, a text
    and calls side by side, each with its output. Texts and thoughts may be empty."""
    items = draw(st.lists(opening.filter(lambda one: one["role"] != "developer"), min_size=1, max_size=3))
    turns = draw(st.integers(0, 5))
    for turn in range(turns):
        thoughts = draw(st.lists(text, max_size=1))
        items += [{"type": "reasoning", "id": f"rs{turn}", "summary": _summary(one)} for one in thoughts]
        texts = draw(st.lists(text, max_size=1))
        calls = [
            {**one, "id": f"fc_{turn}_{number}", "call_id": f"call_{turn}_{number}", "status": "completed"}
            for number, one in enumerate(draw(st.lists(call, min_size=0 if texts else 1, max_size=4)))
        ]
        items += [
            {"type": "message", "id": f"m{turn}", "role": "assistant", "status": "completed", "content": _output(one)}
            for one in texts
        ]
        items += calls
        items += [{"type": "function_call_output", "call_id": one["call_id"], "output": draw(result)} for one in calls]
        if not calls:
            items.append(draw(opening.filter(lambda one: one["role"] != "developer")))
    return items, turns


def _summary(said: str) -> list[dict[str, str]]:
    return [{"type": "summary_text", "text": said}]


def _output(said: str) -> list[dict[str, object]]:
    return [{"type": "output_text", "text": said, "annotations": []}]


def without_ids_and_empty_texts(items: list[Item]) -> list[Item]:
    def is_empty(item: Item) -> bool:
        of_the_model = item["type"] == "reasoning" or item.get("role") == "assistant"
        return of_the_model and not any(part["text"] for part in item.get("summary") or item["content"])

    return [{key: value for key, value in item.items() if key != "id"} for item in items if not is_empty(item)]


@settings(max_examples=500)
@given(plain_conversations())
def test_what_chat_has_a_place_for_comes_back_but_for_ids_merged_calls_and_empty_texts(
    made: tuple[list[Item], int],
) -> None:
    """Field by field; that is all that a conversation loses which is written as chat has it."""
    items, turns = made
    messages = chat_messages(items)
    assert [message["role"] for message in messages].count("assistant") == turns
    assert without_ids_and_empty_texts(chat_items(messages)) == without_ids_and_empty_texts(items)
    ids = [item["id"] for item in chat_items(messages) if "id" in item]
    assert len(set(ids)) == len(ids)


@settings(max_examples=300)
@given(conversations())
def test_reasoning_written_as_text_comes_back_as_reasoning(items: list[Item]) -> None:
    tags = "<think>"
    if any(tags in str(item) or "</think>" in str(item) for item in items):
        return
    messages = chat_messages(items, reasoning="text")
    assert not any("reasoning_content" in message for message in messages)
    expected = [one for one in as_chat_can_say_it(items) if one["type"] == "reasoning"]
    found = [one for one in as_chat_can_say_it(chat_items(messages, reasoning="text")) if one["type"] == "reasoning"]
    assert [one["text"].strip("\n") for one in found] == [
        one["text"].strip("\n") for one in expected if one["text"].strip("\n")
    ]


@settings(max_examples=300)
@given(conversations(), st.sampled_from(["field", "text", "dropped"]), st.data())
def test_a_growing_conversation_has_the_messages_of_its_items(
    items: list[Item], reasoning: Reasoning, data: st.DataObject
) -> None:
    sent = SentMessages()
    for end in sorted(data.draw(st.lists(st.integers(0, len(items)), max_size=5))):
        messages = sent.extend(items[:end], instructions="Be brief.", reasoning=reasoning)

        assert messages == chat_messages(items[:end], instructions="Be brief.", reasoning=reasoning)


def test_dropped_reasoning_is_not_sent() -> None:
    items = [
        {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "42"}]},
    ]
    assert chat_messages(items, reasoning="dropped") == [{"role": "assistant", "content": "42"}]
    assert chat_messages(items, reasoning="text") == [
        {"role": "assistant", "content": "<think>\nhm\n</think>\n\n42"},
    ]


@pytest.mark.parametrize(
    ("content", "thought", "said"),
    [
        ("<think>\nSix sevens.\n</think>\n\n42", "Six sevens.", "42"),
        ("Six sevens.\n</think>\n42", "Six sevens.", "42"),
        ("<think>\nnever ends, \\boxed{4}", "never ends, \\boxed{4}", None),
        ("<think>Six sevens.</think>\n\n  42", "Six sevens.", "  42"),
        ("Six sevens.</think>\n    42", "Six sevens.", "    42"),
        ("42 <think>late</think>", "", "42 <think>late</think>"),
    ],
)
def test_thoughts_in_the_text_are_found_where_models_put_them(content: str, thought: str, said: str | None) -> None:
    items = assistant_items({"role": "assistant", "content": content}, "x", reasoning="text")
    thoughts = [item["summary"][0]["text"] for item in items if item["type"] == "reasoning"]
    texts = [item["content"][0]["text"] for item in items if item["type"] == "message"]
    assert (thoughts, texts) == ([thought] if thought else [], [] if said is None else [said])


@pytest.mark.parametrize(
    "message",
    [
        {"reasoning": {"text": "Hm."}},
        {"reasoning": {"summary": [{"type": "summary_text", "text": "Hm."}]}},
        {"reasoning": None, "reasoning_details": [{"type": "reasoning.text", "text": "Hm.", "index": 0}]},
        {"reasoning_details": [{"type": "reasoning.summary", "summary": "Hm."}, {"type": "reasoning.encrypted"}]},
        {
            "content": [
                {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]},
                {"type": "text", "text": "42"},
            ]
        },
        {"content": [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "42"}]},
    ],
)
def test_thoughts_are_kept_whichever_shape_they_come_in(message: Message) -> None:
    thought, said = assistant_items({"role": "assistant", "content": "42", **message}, "x")
    assert (thought["summary"][0]["text"], said["content"][0]["text"]) == ("Hm.", "42")


def test_an_image_that_has_no_address_is_not_sent_as_an_empty_one() -> None:
    with pytest.raises(PolicyError, match="An image without an `image_url`"):
        chat_messages([{"role": "user", "content": [{"type": "input_image", "file_id": "f1"}]}])


def test_images_of_results_follow_all_results_of_a_turn_in_a_message_of_the_user() -> None:
    """Many servers accept only text in the results of tools."""
    image = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
    both = [{"type": "input_text", "text": "The page:"}, image]
    items = [
        {"type": "function_call_output", "call_id": "c1", "output": both},
        {"type": "function_call_output", "call_id": "c2", "output": [image]},
        {"type": "function_call_output", "call_id": "c3", "output": "done"},
        {"role": "user", "content": "And now?"},
    ]
    sent = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    assert chat_messages(items) == [
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "The page:"}]},
        {"role": "tool", "tool_call_id": "c2", "content": "The result has only images. They follow."},
        {"role": "tool", "tool_call_id": "c3", "content": "done"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Images of the result of c1:"},
                sent,
                {"type": "text", "text": "Images of the result of c2:"},
                sent,
            ],
        },
        {"role": "user", "content": "And now?"},
    ]


def test_results_without_an_id_answer_the_open_calls_in_order():
    calls = [{"id": given, "function": {"name": name, "arguments": "{}"}} for given, name in (("", "a"), ("x", "b"))]
    results = [{"role": "tool", "tool_call_id": given, "content": given or "first"} for given in ("x", "")]
    _, *items = chat_items([{"role": "user", "content": "Go."}, {"role": "assistant", "tool_calls": calls}, *results])
    ids = {item["name"]: item["call_id"] for item in items if item["type"] == "function_call"}
    answered = {item["call_id"]: item["output"] for item in items if item["type"] == "function_call_output"}
    assert answered == {ids["b"]: "x", ids["a"]: "first"}
