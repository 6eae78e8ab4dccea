"""The images of a row are put where its prompt marks them."""

import pytest

from apps.gym.tasks.file_rows import RowRefused
from apps.gym.tasks.mappings.column_mapping import Mapping, apply_mapping
from apps.gym.tasks.mappings.placed_images import place_images
from apps.gym.tasks.mappings.shapes import find_shape
from tests.images import png_url

ONE, TWO = png_url(shade=1), png_url(shade=2)


def image(address):
    return {"type": "input_image", "image_url": address}


def text(said):
    return {"type": "input_text", "text": said}


def test_placeholders_in_texts_are_replaced_in_order():
    messages = [
        {"role": "system", "content": "Look."},
        {"role": "user", "content": "<image>\nWhat is it? <image>"},
        {"role": "user", "content": "And?"},
    ]
    assert place_images(messages, [ONE, TWO]) == [
        messages[0],
        {"role": "user", "content": [image(ONE), text("What is it? "), image(TWO)]},
        messages[2],
    ]


def test_parts_are_replaced_and_placeholders_beside_them_are_text():
    parts = [{"type": "image", "text": None}, {"type": "text", "text": "Is <image> a word?"}]
    assert place_images([{"role": "user", "content": parts}], [ONE]) == [
        {"role": "user", "content": [image(ONE), text("Is <image> a word?")]}
    ]


def test_without_places_the_images_open_the_first_user_message():
    messages = [{"role": "system", "content": "Look."}, {"role": "user", "content": "What?"}]
    assert place_images(messages, [ONE, TWO])[1] == {"role": "user", "content": [image(ONE), image(TWO), text("What?")]}


def test_prompts_without_images_stay():
    messages = [{"role": "user", "content": "Write an <image> tag."}]
    assert place_images(messages, []) is messages


@pytest.mark.parametrize(
    ("messages", "addresses", "told"),
    [
        ([{"role": "user", "content": "<image> <image>"}], [ONE], "holds 1 images, but the prompt has places for 2"),
        ([{"role": "user", "content": [{"type": "image"}]}], [], "holds 0 images, but the prompt has places for 1"),
        ([{"role": "system", "content": "Look."}], [ONE], "the prompt has no user message"),
    ],
)
def test_images_without_a_place_are_refused(messages, addresses, told):
    with pytest.raises(ValueError, match=told):
        place_images(messages, addresses)


@pytest.mark.parametrize(
    ("shape", "row"),
    [
        ("verl", {"prompt": [{"role": "user", "content": "<image>What?"}], "reward_model": {"ground_truth": "4"}}),
        (
            "messages",
            {"messages": [{"role": "user", "content": "<image>What?"}, {"role": "assistant", "content": "4"}]},
        ),
        ("sharegpt", {"conversations": [{"from": "human", "value": "<image>What?"}, {"from": "gpt", "value": "4"}]}),
        ("prompt_answer", {"prompt": [{"role": "user", "content": "What?"}], "answer": "4"}),
        ("prompt_answer", {"question": "What?", "answer": "4"}),
    ],
)
def test_every_shape_finds_its_images(shape, row):
    row["images"] = [ONE]
    found, mapping = find_shape([row])
    assert (found, mapping.images) == (shape, "images")
    task = apply_mapping(mapping, row)
    assert task["responses_create_params"]["input"] == [{"role": "user", "content": [image(ONE), text("What?")]}]
    assert task["expected_answer"] == "4"
    assert "images" not in task


def test_a_column_of_other_things_is_not_one_of_images():
    _, mapping = find_shape([{"question": "What?", "image": "python:3.12"}])
    assert mapping.images == ""


def test_a_template_and_a_single_image_make_one_message():
    mapping = Mapping(user="{question}?", images="photo")
    task = apply_mapping(mapping, {"question": "Who", "photo": "https://example.org/a.png"})
    assert task["responses_create_params"]["input"] == [
        {"role": "user", "content": [image("https://example.org/a.png"), text("Who?")]}
    ]


@pytest.mark.parametrize(
    ("cell", "told"),
    [
        (["a.png"], "/images names the file a.png, which was not uploaded"),
        ([{"height": 3}], "/images must hold images"),
    ],
)
def test_cells_that_are_no_images_name_their_column(cell, told):
    with pytest.raises(RowRefused, match=told) as refused:
        apply_mapping(Mapping(input="question", images="images"), {"question": "What?", "images": cell})
    assert refused.value.code == "wrong_images"
