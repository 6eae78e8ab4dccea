"""Exports and streams say how tokens were sampled: columns, notices, manifests and their types."""

import json
import math

import msgspec
import pyarrow.parquet as pq
import pytest
import yaml

from apps.exports.export_folders import rows_path
from apps.exports.export_jobs import write_export
from apps.exports.export_orders import ExportOrder, queue_export
from apps.gym.exporters.protocol import Options
from apps.gym.traces.events import ModelCall
from apps.rollouts.plans.plan_spec import Plan
from apps.rollouts.plans.planning import plan_collection
from apps.rollouts.streams.rollout_stream import RolloutStream
from tests.factories import make_agent, make_collection, make_dataset, make_policy_model, make_rollout, make_trace
from tests.gym.traces import decode_lines, with_tokens

pytestmark = pytest.mark.django_db
ENGINE = {"engine": "vllm", "engine_version": "0.32.0", "dtype": "bfloat16"}


@pytest.fixture(autouse=True)
def exports_folder(settings, tmp_path):
    settings.EXPORTS_DIR = tmp_path / "exports"


def traced(*samplings):
    given = iter(samplings)
    return [
        msgspec.structs.replace(event, sampling=next(given)) if isinstance(event, ModelCall) else event
        for event in with_tokens(make_trace(), ([1, 2], [3]), ([1, 2, 3, 4], [5]))
    ]


@pytest.fixture
def collection():
    """A rollout with top_p in one call, one with a logit bias and top_p in both, and one with neutral values."""
    made = make_collection()
    made.snapshot["policy_model"] = {"logprob_mode": "raw_logprobs", "engine": ENGINE}
    made.save()
    plain = {"temperature": 1.0}
    make_rollout(made, trace=traced({**plain, "top_p": 0.9}, plain))
    make_rollout(made, trace=traced(*[{**plain, "top_p": 0.9, "logit_bias": {"5": -100}}] * 2))
    make_rollout(made, trace=traced({**plain, "top_p": 1.0, "seed": 4}, plain))
    return made


def write(collection, format, encoding="jsonl", **options):
    order = {"format": format, "collection": collection, "encoding": encoding, "options": options}
    export = write_export(export=queue_export(ExportOrder(**order, filters={"dedupe": False})))
    assert export.state == "ready", export.error
    return export


def read(export):
    return decode_lines(rows_path(export, "train.jsonl").read_bytes())


@pytest.mark.parametrize("format", ["scored_rollouts", "trl_sft_tokens", "nemo_gym_rollouts"])
def test_the_ledger_names_altered_sampling_and_keeps_the_rows(collection, format):
    export = write(collection, format)
    found = export.manifest["trainability"]
    assert (found["used"], found["altered_sampling"]) == (3, {"top_p": 2, "logit_bias": 1})
    assert "logit_bias in 1 rollouts, top_p in 2 rollouts" in found["notice"]
    assert export.manifest["sampling_sent"] == [
        {"sampling": {"temperature": 1.0}, "calls": 2},
        {"sampling": {"logit_bias": {"5": -100}, "temperature": 1.0, "top_p": 0.9}, "calls": 2},
        {"sampling": {"temperature": 1.0, "top_p": 0.9}, "calls": 1},
        {"sampling": {"temperature": 1.0, "top_p": 1.0}, "calls": 1},
    ]
    source = export.manifest["source"]["policy_model"]
    assert {name: source[name] for name in ENGINE} == ENGINE
    assert source["logprob_mode"] == "raw_logprobs"


@pytest.mark.parametrize("format", ["scored_rollouts", "trl_sft_tokens", "nemo_gym_rollouts"])
def test_rollouts_with_altered_sampling_are_left_out_on_request(collection, format):
    export = write(collection, format, altered_sampling="drop")
    assert export.manifest["counts"]["dropped"] == {"altered_sampling": 2}
    assert (len(read(export)), export.manifest["trainability"]["notice"]) == (1, "")


def test_formats_without_tokens_count_no_sampling(collection):
    export = write(collection, "trl_sft")
    assert export.manifest["trainability"]["altered_sampling"] == {}
    assert "sampling_sent" not in export.manifest


def test_rollouts_without_trainable_tokens_count_no_sampling():
    made = make_collection()
    forced = [
        msgspec.structs.replace(event, grammar=True) if isinstance(event, ModelCall) else event
        for event in traced({"top_p": 0.9}, {"top_p": 0.9})
    ]
    make_rollout(made, trace=forced)
    found = write(made, "trl_sft_tokens").manifest["trainability"]
    assert (found["used"], found["altered_sampling"], "top_p" in found["notice"]) == (0, {}, False)


@pytest.mark.parametrize("format", ["scored_rollouts", "trl_sft_tokens"])
def test_columns_have_their_types_in_parquet_and_in_the_card(collection, format):
    export = write(collection, format, encoding="parquet")
    table = pq.read_table(rows_path(export, "train.parquet"))
    kinds = {name: str(table.schema.field(name).type) for name in ("top_p", "top_k", "min_p", "altered_sampling")}
    assert kinds == {"top_p": "double", "top_k": "int64", "min_p": "double", "altered_sampling": "string"}
    top_p = table.column("top_p").to_pylist()
    assert (math.isnan(top_p[0]), top_p[1], math.isnan(top_p[2])) == (True, 0.9, True)
    assert table.column("top_k").to_pylist() == [None, None, None]
    assert table.column("altered_sampling").to_pylist() == ["top_p", "logit_bias, top_p", ""]
    bias = table.column("logit_bias").to_pylist()[1]
    assert (json.loads(bias) if isinstance(bias, str) else bias) == {"5": -100}
    assert [table.column(name).to_pylist()[0] for name in ENGINE] == list(ENGINE.values())
    card = rows_path(export, "README.md").read_text()
    listed = yaml.safe_load(card.split("---")[1])["dataset_info"]["features"]
    features = {one["name"]: one.get("dtype") for one in listed}
    assert (features["top_p"], features["top_k"], features["logit_bias"]) == ("float64", "int64", "json")


def test_streams_have_the_sampling_and_the_engine(collection):
    rollout = collection.rollouts.order_by("pk")[1]
    stream = RolloutStream(collection=collection, grouped=False, seconds=1, keep=True, user=None)
    line = json.loads(stream._read_rollout(rollout.pk))
    sampling = {"top_p": 0.9, "logit_bias": {"5": -100}}
    assert [(one["temperature"], one["sampling"]) for one in line["segments"][0]["sampled"]] == [(1.0, sampling)] * 2
    assert {name: line[name] for name in ENGINE} == ENGINE


@pytest.mark.parametrize(("altered_sampling", "sent"), [("keep", 3), ("drop", 1)])
def test_the_ledger_of_a_stream_counts_what_it_sent(collection, altered_sampling, sent):
    """As files do: rollouts that are left out by default, here a flagged one, are not counted."""
    make_rollout(collection, trace=traced({"top_p": 0.5}, {}), flagged=True)
    wrong = [
        msgspec.structs.replace(event, usage={"output_tokens": 9}) if isinstance(event, ModelCall) else event
        for event in traced({}, {})
    ]
    make_rollout(collection, trace=[*wrong[:-2], wrong[-1]])
    options = Options(altered_sampling=altered_sampling)
    stream = RolloutStream(collection=collection, grouped=False, seconds=1, keep=True, user=None, options=options)
    lines = [
        json.loads(stream._read_rollout(pk)) for pk in collection.rollouts.order_by("pk").values_list("pk", flat=True)
    ]
    assert sum(bool(line["segments"]) and not line["left_out"] for line in lines) == sent
    assert [line["tokens_note"] for line in lines[:2]] == ["altered_sampling" if sent == 1 else ""] * 2
    found = stream._read_end()["trainability"]
    assert found["altered_sampling"] == ({"top_p": 2, "logit_bias": 1} if sent == 3 else {})
    assert ("top_p in 2 rollouts" in found["notice"]) == (sent == 3)
    assert {one["reason"]: one["count"] for one in found["left_out"] if one["level"] == "turn"} == {"counts_of_turn": 1}


@pytest.mark.parametrize(
    ("known", "engine"),
    [
        ({"engine": "vllm", "server_version": "0.32.0", "dtype": "bfloat16", "max_model_len": 64}, ENGINE),
        ({"server_version": "0.32.0"}, {"engine_version": "0.32.0"}),
        ({"max_model_len": 64}, None),
    ],
)
def test_a_collection_keeps_what_the_health_check_knew_of_the_server(known, engine):
    model = make_policy_model(capabilities=known)
    made = plan_collection(Plan(dataset=make_dataset(), agent=make_agent(), policy_model=model))
    assert made.snapshot["policy_model"].get("engine") == engine
