"""Rollouts with images become rows as each trainer loads them, or are left out by a named reason."""

import json

import pytest

from apps.gym.exporters.protocol import resolve_options
from apps.gym.exporters.registry import FORMATS
from apps.gym.traces.events import SessionOpened, ToolResult
from apps.gym.trainability import Dropped
from tests.gym.exporters.attempts import NESTED, TOOLS, attempt, paris, preference, task
from tests.gym.exporters.validators import fits_feature
from tests.gym.traces import call, said, trace, turn, with_tokens
from tests.images import png_url

ONE, TWO = png_url(shade=1), png_url(shade=2)


def image(address):
    return {"type": "input_image", "image_url": address}


def asked(*parts, text="What is it?"):
    return [{"role": "user", "content": [*parts, {"type": "input_text", "text": text}]}]


def seeing(*, tool_image=False, prompt=None, answer="A dot."):
    """A question with an image, a call whose result is text or has an image, and an answer."""
    output = [{"type": "input_text", "text": "closer:"}, image(TWO)] if tool_image else "nothing"
    events = trace(
        turn(call("{}", "c1"), finish_reason="tool_calls"),
        ToolResult(call_id="c1", name="get_weather", output=output),
        turn(said(answer)),
        prompt=prompt or asked(image(ONE)),
    )
    events[0] = SessionOpened(environment="weather", tools=TOOLS)
    return events


def rows(slug, events, **options):
    format = FORMATS[slug]
    resolved = resolve_options(format, options)
    made = list(format.rows(attempt(events), resolved))
    features = format.features(resolved)
    for row in made:
        assert {name for name in row if not fits_feature(row[name], features[name])} == set()
    return made


def reason(slug, events, **options):
    with pytest.raises(Dropped) as dropped:
        rows(slug, events, **options)
    return dropped.value.reason


CALL = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": {}}}


def test_trl_gets_parts_and_a_column():
    (row,) = rows("trl_sft", seeing(tool_image=True), images="column")
    assert row["images"] == [ONE, TWO]
    assert row["messages"] == [
        {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is it?"}]},
        {"role": "assistant", "content": [{"type": "text", "text": ""}], "tool_calls": [CALL]},
        {
            "role": "tool",
            "tool_call_id": "c1",
            "name": "get_weather",
            "content": [{"type": "text", "text": "closer:"}],
        },
        {"role": "user", "content": [{"type": "image"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "A dot."}]},
    ]


def test_text_beside_rows_with_images_stays_text_and_has_an_empty_column():
    (row,) = rows("trl_sft", paris(), images="column")
    (plain,) = rows("trl_sft", paris())
    assert row == {**plain, "images": []}


def test_trl_completions_have_their_images_in_the_prompt():
    (row,) = rows("trl_sft_completion", seeing(), images="column")
    assert (len(row["prompt"]), row["images"]) == (1, [ONE])
    assert reason("trl_sft_completion", seeing(tool_image=True), images="column") == "image_in_completion"
    first, second = rows("trl_sft_turns", seeing(tool_image=True), images="column")
    assert (first["images"], second["images"]) == ([ONE], [ONE, TWO])


def test_trl_pairs_share_the_images_of_their_prompt():
    format = FORMATS["trl_dpo"]
    options = resolve_options(format, {"images": "column"})
    (row,) = format.rows(preference(seeing(), seeing(answer="A star.")), options)
    assert row["images"] == [ONE]
    assert row["prompt"][0]["content"][0] == {"type": "image"}
    with pytest.raises(Dropped, match="image_in_completion"):
        list(format.rows(preference(seeing(tool_image=True), seeing()), options))


def test_verl_gets_placeholders_and_a_column():
    (row,) = rows("verl_sft", seeing(tool_image=True), images="column")
    messages = json.loads(row["messages"])
    assert row["images"] == [ONE, TWO]
    assert [message["content"] for message in messages] == ["<image>\nWhat is it?", "", "closer:\n<image>", "A dot."]


def test_llama_factory_gets_placeholders_a_column_and_its_name():
    (row,) = rows("llama_factory_sft", seeing(tool_image=True), images="column")
    assert row["images"] == [ONE, TWO]
    assert [turn["value"] for turn in row["conversations"]][::2] == ["<image>\nWhat is it?", "closer:\n<image>"]
    format = FORMATS["llama_factory_sft"]
    info = json.loads(
        format.companions({"train": "train.parquet"}, resolve_options(format, {"images": "column"}))[
            "dataset_info.json"
        ]
    )
    assert info["rollouts_train"]["columns"]["images"] == "images"


@pytest.mark.parametrize("slug", ["verl_sft", "llama_factory_sft"])
def test_a_placeholder_of_the_users_own_would_be_taken_for_an_image(slug):
    events = seeing(prompt=asked(image(ONE), text="Is <image> a tag?"))
    assert reason(slug, events, images="column") == "image_placeholder_in_text"


def test_openai_gets_addresses_and_images_of_tools_in_a_message_of_the_user():
    (row,) = rows("openai_sft", seeing(tool_image=True))
    shown = [{"type": "image_url", "image_url": {"url": address}} for address in (ONE, TWO)]
    assert [message["role"] for message in row["messages"]] == ["user", "assistant", "tool", "user", "assistant"]
    assert row["messages"][0]["content"] == [shown[0], {"type": "text", "text": "What is it?"}]
    assert row["messages"][2]["content"] == "closer:"
    assert row["messages"][3]["content"] == [shown[1]]
    assert row["tools"] == NESTED


@pytest.mark.parametrize("slug", ["trl_grpo", "verl_rl", "openai_rft"])
def test_prompts_have_their_images(slug):
    format = FORMATS[slug]
    column = "images" in format.choices and "column" in format.choices["images"]
    options = resolve_options(format, {"images": "column"} if column else {})
    (row,) = format.rows(task(responses_create_params={"input": asked(image(ONE))}), options)
    place = {"trl_grpo": {"type": "image"}, "openai_rft": {"type": "image_url", "image_url": {"url": ONE}}}
    if slug == "verl_rl":
        assert (row["prompt"][0]["content"], row["images"]) == ("<image>\nWhat is it?", [{"image": ONE}])
    else:
        messages = row["prompt" if slug == "trl_grpo" else "messages"]
        assert messages[0]["content"][0] == place[slug]
        assert row.get("images", [ONE]) == [ONE]


def test_other_images_and_formats_leave_the_rollout_out():
    assert reason("trl_sft", seeing()) == "image_content"
    assert reason("openai_sft", seeing(), images="dropped") == "image_content"
    assert reason("axolotl_sft", seeing()) == "image_content"
    remote = seeing(prompt=asked(image("https://example.org/a.png")))
    assert reason("trl_sft", remote, images="column") == "remote_image"
    assert rows("openai_sft", remote)[0]["messages"][0]["content"][0]["image_url"]["url"] == "https://example.org/a.png"
    hidden = seeing(prompt=[{"role": "system", "content": [image(ONE)]}, *asked()])
    assert reason("trl_sft", hidden, images="column") == "image_content"


def test_token_rows_leave_out_what_token_ids_do_not_hold():
    captured = ([1, 2], [3]), ([1, 2, 3, 4], [5])
    with pytest.raises(Dropped, match="image_content"):
        rows("trl_sft_tokens", with_tokens(seeing(tool_image=True), *captured))
