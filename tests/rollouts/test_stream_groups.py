"""Groups of a stream: each rollout with a reward counts once, and images have no segments."""

import json

import pytest
from msgspec.structs import replace

from apps.exports.export_jobs import write_export
from apps.exports.export_orders import ExportOrder, queue_export
from apps.rollouts.streams.rollout_stream import RolloutStream, describe_rollout
from tests.factories import make_collection, make_rollout
from tests.gym.traces import said, trace, turn, with_tokens

pytestmark = pytest.mark.django_db
THREE = with_tokens(
    trace(turn(said("a")), turn(said("b")), turn(said("c"))), ([1, 2], [3]), ([7, 8], [9]), ([4, 5], [6])
)
ONE = with_tokens(trace(turn(said("a"))), ([1, 2], [3]))


def group_line(collection, rollouts):
    collection.snapshot = {"policy_model": {}}
    stream = RolloutStream(collection=collection, grouped=True, seconds=1, keep=True, user=None)
    stream._groups[rollouts[0].task_id] = [rollout.pk for rollout in rollouts]
    return json.loads(stream._read_group(rollouts[0].task_id))


def test_segments_of_a_group_share_the_advantage_of_their_rollout() -> None:
    made = make_collection()
    rollouts = [make_rollout(made, reward=1.0, trace=THREE), make_rollout(made, reward=0.0, trace=ONE)]
    line = group_line(made, rollouts)
    figures = line["figures"]
    assert (figures["group_size"], figures["group_mean"], figures["zero_variance"]) == (2, 0.5, False)
    assert [figures["advantages"][str(one.pk)]["advantage_mean_only"] for one in rollouts] == [0.5, -0.5]
    weights = [[segment["weight"] for segment in one["segments"]] for one in line["rollouts"]]
    assert weights == [[pytest.approx(1 / 3)] * 3, [1.0]]


def test_a_failed_loser_leaves_no_usable_spread() -> None:
    made = make_collection()
    rollouts = [
        make_rollout(made, reward=1.0, trace=ONE),
        make_rollout(made, status="failed", reward=None, error_kind="policy_error"),
    ]
    figures = group_line(made, rollouts)["figures"]
    assert (figures["group_size"], figures["zero_variance"]) == (1, True)
    assert figures["advantages"] == {str(rollouts[0].pk): {"advantage": 0.0, "advantage_mean_only": 0.0}}


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        ({"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}, "image_content"),
        ({"type": "input_file", "file_id": "f"}, "file_content"),
        ({"type": "input_audio", "input_audio": {}}, "audio_content"),
    ],
)
@pytest.mark.parametrize("place", ["prompt", "result"])
def test_token_ids_without_their_image_or_file_are_in_no_row(part, reason, place, tmp_path, settings) -> None:
    settings.EXPORTS_DIR = tmp_path
    shown = {"type": "message", "role": "user", "content": [part]}
    result = {"type": "function_call_output", "call_id": "c", "output": [part]}
    events = with_tokens(trace(turn(said("a cat")), prompt=[shown if place == "prompt" else result]), ([1, 2], [3]))
    rollout = make_rollout(make_collection(), trace=events)
    told = describe_rollout(rollout, rollout.graph(tokens=True, images=True))
    assert (told["segments"], told["tokens_note"]) == ([], reason)
    export = write_export(export=queue_export(ExportOrder(format="trl_sft_tokens", collection=rollout.collection)))
    assert [one["reason"] for one in export.manifest["trainability"]["left_out"]] == [reason]


def test_segments_that_are_all_masked_do_not_count() -> None:
    made, events = make_collection(), list(THREE)
    events[2] = replace(events[2], grammar=True)
    [one] = group_line(made, [make_rollout(made, reward=1.0, trace=events)])["rollouts"]
    assert [part["weight"] for part in one["segments"] if any(part["mask"])] == [0.5, 0.5]
