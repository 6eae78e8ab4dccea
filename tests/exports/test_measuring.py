"""What a preview says of a row's tokens: those it holds, else what the model told, else a guess that says so."""

import msgspec
import pytest

from apps.exports.export_orders import ExportOrder, prepare_export
from apps.exports.export_preview import preview_rows
from apps.gym.traces.events import ModelCall
from apps.pairs.pair_sets import PairOrder, build_pairs
from tests.factories import make_collection, make_rollout, make_trace
from tests.gym.traces import call, said, trace, turn, with_tokens

pytestmark = pytest.mark.django_db


def told(trace, *counts):
    """The trace with the usage of its model calls: `(read, written)` a call, None where nothing was told."""
    given = iter(counts)

    def tell(event):
        count = next(given)
        usage = {} if count is None else {"input_tokens": count[0], "output_tokens": count[1]}
        return msgspec.structs.replace(event, usage=usage)

    return [tell(event) if isinstance(event, ModelCall) else event for event in trace]


@pytest.mark.parametrize(
    ("format", "counts", "expected"),
    [
        ("trl_sft", [(40, 10), (70, 5)], [(75, "usage")]),
        ("trl_sft_turns", [(40, 10), (70, 5)], [(50, "usage"), (75, "usage")]),
        ("trl_sft_tokens", [(2, 1), (4, 2)], [(6, "ids")]),
        ("scored_rollouts", [(2, 1), (4, 2)], [(6, "ids")]),
        ("trl_sft", [(40, 10), None], None),
        ("trl_grpo", [(40, 10), (70, 5)], None),
    ],
)
def test_the_tokens_of_a_row_are_counted_told_or_guessed_from_its_size(format, counts, expected):
    made = make_collection()
    make_rollout(made, trace=told(with_tokens(make_trace(), ([1, 2], [3]), ([1, 2, 3, 4], [5, 6])), *counts))
    preview = preview_rows(prepare_export(ExportOrder(format=format, collection=made)), limit=2)
    guessed = [(-(-size // 4), "size") for size in preview.bytes]
    assert list(zip(preview.tokens, preview.tokens_from, strict=True)) == (expected or guessed)


@pytest.mark.parametrize(("worse", "expected"), [((90, 9), (99, "usage")), (None, None)])
def test_a_pair_is_as_long_as_its_longer_side(worse, expected):
    made = make_collection()
    make_rollout(made, reward=1.0, trace=told(make_trace("4", 1.0), (40, 10), (70, 5)))
    make_rollout(made, reward=0.0, trace=told(make_trace("5", 0.0), (40, 10), worse))
    preview = preview_rows(
        prepare_export(ExportOrder(format="trl_dpo", collection=made, pair_set=build_pairs(PairOrder(collection=made))))
    )
    guessed = (-(-preview.bytes[0] // 4), "size")
    assert (preview.tokens[0], preview.tokens_from[0]) == (expected or guessed)


def test_what_cannot_be_written_is_counted_in_a_preview_too():
    made = make_collection()
    make_rollout(made, trace=trace(turn(call('{"n": 123456789012345678901}')), turn(said("4"))))
    preview = preview_rows(prepare_export(ExportOrder(format="trl_sft", collection=made)))
    assert (preview.rows, preview.dropped) == ([], {"not_encodable": 1})
