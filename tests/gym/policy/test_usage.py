"""Which replies left their tokens untold, so that no limit and no cost can count them."""

import pytest

from apps.gym.traces.events import JudgeCall, ModelCall
from apps.gym.traces.items import message
from apps.gym.wires.protocol import lacks_usage

SAID = [message("assistant", "4")]
TOLD = {"input_tokens": 0, "output_tokens": 0}
JUDGED = {"judge": "j", "question": "score", "prompt": []}


@pytest.mark.parametrize(
    ("call", "lacks"),
    [
        (ModelCall(seen=1, items=SAID, finish_reason="stop", usage=TOLD), False),
        (ModelCall(seen=1, items=SAID, finish_reason="stop"), True),
        (ModelCall(seen=1, items=SAID, finish_reason="stop", usage={"input_tokens": 3}), True),
        (ModelCall(seen=1, items=SAID, finish_reason="stop", usage={"output_tokens": 3}), True),
        (ModelCall(seen=1, items=[], finish_reason="stop"), True),
        (ModelCall(seen=1, items=[], finish_reason="max_output_tokens"), True),
        (ModelCall(seen=1, items=[], finish_reason="context_length"), False),
        (JudgeCall(**JUDGED, items=SAID, finish_reason="stop", usage=TOLD), False),
        (JudgeCall(**JUDGED, items=SAID, finish_reason="stop"), True),
        (JudgeCall(**JUDGED, problem="The judge model cannot be reached."), False),
    ],
)
def test_a_reply_that_was_paid_for_tells_both_its_counts_or_lacks_its_usage(call, lacks):
    assert lacks_usage(call) is lacks
