"""Ids of earlier responses and their items, resolved within an attempt."""

import pytest

from apps.gym.capture.captured_responses import ResponsesWire
from apps.gym.capture.previous_responses import PreviousResponses, item_ids
from apps.gym.serving.completions import BadCompletion
from apps.gym.traces.events import ModelCall
from apps.gym.traces.items import message
from apps.gym.wires.chat_deltas import Delta
from apps.gym.wires.protocol import Reply
from tests.gym.captured_calls import asked, said

THOUGHT = {"type": "reasoning", "id": "rs_model", "summary": [], "encrypted_content": "abc"}
REPLY = [THOUGHT, {**said("One. Two."), "id": "msg_model"}, asked("c1"), asked("c2")]


def call(number, *, parent=0, kept=0, items_in=(), items=()):
    return ModelCall(seen=0, call=number, parent=parent, kept=kept, items_in=list(items_in), items=list(items))


def made():
    responses = PreviousResponses()
    responses.add(call(1, items_in=[message("user", "Hi")], items=REPLY), {})
    return responses


def reference(item):
    return {"type": "item_reference", "id": item}


def test_references_in_any_order_become_the_items_of_the_model():
    responses = made()
    ids = list(item_ids(REPLY, responses.name(1)))
    assert [one.split("_")[0] for one in ids] == ["rs", "msg", "fc", "fc"]
    assert responses.restore([reference(one) for one in ids]) == REPLY


def test_a_text_that_was_streamed_in_pieces_is_restored_once():
    responses = made()
    pieces = [f"msg_{responses.name(1)}_0", f"fc_{responses.name(1)}_0", f"msg_{responses.name(1)}_1"]
    assert responses.restore(list(map(reference, pieces))) == [REPLY[1], REPLY[2]]
    with pytest.raises(BadCompletion) as refused:
        responses.restore([reference(pieces[0]), reference(f"fc_{responses.name(1)}_2")])
    assert refused.value.param == "input[1].id"


def test_ids_in_a_stream_are_those_of_the_whole_response_although_the_order_differs():
    wire = ResponsesWire()
    request = wire.read({"input": "Hi"}, made())
    stream = wire.open_stream(request, "t_1")
    written = stream.begin()
    for delta in (
        Delta("text", "One. "),
        Delta("call", "run", 0, "c1"),
        Delta("text", "Two."),
        Delta("reasoning", "Hm."),
        Delta("call", "run", 1, "c2"),
    ):
        written += stream.add(delta)
    written += stream.end(Reply(items=REPLY, finish_reason="tool_calls"))
    streamed = ["msg_t_1_0", "fc_t_1_0", "msg_t_1_1", "rs_t_1_0", "fc_t_1_1"]
    assert all(f'"item_id":"{one}"'.encode() in written for one in streamed)
    whole = wire.write(Reply(items=REPLY, finish_reason="tool_calls"), request, "t_1")
    assert [item["id"] for item in whole["output"]] == ["rs_t_1_0", "msg_t_1_0", "fc_t_1_0", "fc_t_1_1"]


def test_items_that_come_back_in_full_get_the_ids_that_the_model_gave_them():
    responses = made()
    sent = [{**THOUGHT, "id": f"rs_{responses.name(1)}_0"}, message("user", "x"), {**THOUGHT, "id": "rs_other"}]
    assert responses.restore(sent) == [THOUGHT, message("user", "x"), {**THOUGHT, "id": "rs_other"}]


def test_ids_of_another_attempt_find_nothing():
    responses, others = made(), made()
    item, response = f"msg_{others.name(1)}_0", f"resp_{others.name(1)}"
    assert responses.restore([{**said("x"), "id": item}]) == [{**said("x"), "id": item}]
    with pytest.raises(BadCompletion):
        responses.restore([reference(item)])
    with pytest.raises(BadCompletion) as refused:
        responses.find(response)
    assert refused.value.code == "previous_response_not_found"


@pytest.mark.parametrize("given", ["", "resp_{}_2", "resp_{}_x", "resp_{}_1_0", "msg_{}_1_0", "resp_{}_²", 7, None])
def test_other_ids_are_no_responses(given):
    responses = made()
    token = responses.name(1).partition("_")[0]
    with pytest.raises(BadCompletion):
        responses.find(given.format(token) if isinstance(given, str) else given)


def test_a_conversation_of_many_calls_is_found_in_the_kept_items_of_its_calls():
    responses = PreviousResponses()
    last, size = 1_500, 0
    for number in range(1, last + 1):
        size = 2 * number
        new = call(
            number,
            parent=number - 1,
            kept=size - 2,
            items_in=[message("user", f"{number}?")],
            items=[said(f"{number}!")],
        )
        responses.add(new, {"instructions": ""})
    number, items = responses.find(f"resp_{responses.name(last)}")
    assert (number, len(items), items[-1]) == (last, size, said(f"{last}!"))
    fork = call(last + 1, parent=3, kept=1, items_in=[message("user", "Other?")], items=[said("Yes.")])
    responses.add(fork, {})
    items = responses.find(f"resp_{responses.name(last + 1)}")[1]
    assert items == [message("user", "1?"), message("user", "Other?"), said("Yes.")]
