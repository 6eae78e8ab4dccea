"""Whatever stands in a line, it is read or refused: nothing else comes out."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from apps.gym.rollout_files.rollout_rows import check_task, read_attempt
from apps.gym.rollout_files.shapes.stored_rows import read_line
from apps.gym.tasks.file_rows import RowRefused
from apps.gym.traces.events import decode_event, encode_event
from apps.gym.traces.graph import TraceGraph

TEXTS = ["", "x", "text", "user", "assistant", "tool", "image_url", "[1]", "{}", '{"name": "f"}', "\x00", "length"]
LEAVES = st.none() | st.booleans() | st.integers(-3, 10**20) | st.floats(-2, 2) | st.sampled_from(TEXTS)
NAMES = (
    "role content tool_calls tool_call_id function_call name arguments id type text image_url file function reasoning "
    "reasoning_content refusal annotations weight summary parameters description x"
)
KEYS = st.sampled_from(NAMES.split())
OF_RESULTS = "answer info task metrics error tool_defs token_usage stop_condition is_truncated example_id model"
OF_LOGS = "tools functions reward reward_components metadata model usage finish_reason temperature id"
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=12
)
MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "tool", "system", "function", "text"])},
    optional={
        "content": VALUES,
        "tool_calls": VALUES,
        "tool_call_id": VALUES,
        "reasoning_content": VALUES,
        "name": VALUES,
    },
)
MESSAGES = st.lists(MESSAGE, max_size=5) | VALUES
RESULT = st.fixed_dictionaries(
    {"prompt": MESSAGES, "completion": MESSAGES, "reward": st.floats(0, 1) | VALUES},
    optional=dict.fromkeys(OF_RESULTS.split(), VALUES),
)
LOG = st.fixed_dictionaries(
    {"messages": st.lists(MESSAGE, min_size=1, max_size=6)},
    optional=dict.fromkeys(OF_LOGS.split(), VALUES),
)
NODE = st.fixed_dictionaries(
    {"parent": st.none() | st.integers(-1, 4), "message": MESSAGE | VALUES, "sampled": st.booleans()},
    optional={
        "token_ids": st.lists(st.integers(0, 9), max_size=3) | VALUES,
        "mask": st.lists(st.booleans(), max_size=3) | VALUES,
        "logprobs": VALUES,
    },
)
TRACE = st.fixed_dictionaries(
    {"nodes": st.lists(NODE, max_size=5) | VALUES},
    optional=dict.fromkeys(
        ["task", "agent", "tools", "calls", "rewards", "metrics", "stop_condition", "ok", "errors", "timing"], VALUES
    ),
)
EPISODE = TRACE | st.fixed_dictionaries(
    {"traces": st.lists(TRACE, max_size=2) | VALUES}, optional=dict.fromkeys(["task", "errors", "ok"], VALUES)
)


METRICS = st.dictionaries(st.sampled_from(["prompt_tokens", "prompt_token_ids", "logprobs"]), VALUES)
STEP = st.fixed_dictionaries(
    {"source": st.sampled_from(["user", "agent", "agent", "system"]), "message": st.sampled_from(TEXTS) | VALUES},
    optional={
        "tool_calls": VALUES,
        "observation": VALUES | st.fixed_dictionaries({"results": VALUES}),
        "metrics": METRICS | VALUES,
        "timestamp": VALUES,
        "llm_call_count": VALUES,
        "reasoning_content": VALUES,
    },
)
SOUND_STEPS = [{"source": "user", "message": "Hi."}, {"source": "agent", "message": "Hello."}]
STEPS = st.lists(STEP, max_size=3).map(
    lambda steps: [{"step_id": at, **one} for at, one in enumerate([*SOUND_STEPS, *steps], 1)]
)
TRAJECTORY = st.fixed_dictionaries(
    {"schema_version": st.just("ATIF-v1.7"), "agent": st.just({"name": "a"}), "steps": STEPS},
    optional={"subagent_trajectories": VALUES, "extra": VALUES | st.fixed_dictionaries({"gymweb": VALUES})},
)
BLOCK = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "tool_use", "tool_result", "thinking", "image"])},
    optional=dict.fromkeys(["text", "id", "tool_use_id", "name", "input", "content", "source", "thinking"], VALUES),
)
CLAUDE = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["user", "assistant", "system", "attachment"]) | VALUES,
        "uuid": st.sampled_from("cdef"),
        "parentUuid": st.sampled_from("abbcdef"),
        "message": st.fixed_dictionaries(
            {"content": st.text() | st.lists(BLOCK, max_size=2) | VALUES}, optional={"id": VALUES, "usage": VALUES}
        ),
    },
    optional=dict.fromkeys(["isSidechain", "subtype", "timestamp", "rendered", "toolUseResult", "agentId"], VALUES),
)
PAYLOAD = st.fixed_dictionaries(
    {"type": st.sampled_from(["message", "function_call", "reasoning", "token_count", "thread_rolled_back"]) | VALUES},
    optional=dict.fromkeys(
        ["role", "content", "call_id", "name", "arguments", "output", "info", "num_turns", "message", "summary"], VALUES
    ),
)
CODEX = st.fixed_dictionaries(
    {"type": st.sampled_from(["response_item", "event_msg", "compacted", "turn_context"]), "payload": PAYLOAD | VALUES}
)
SESSIONS = st.one_of(
    st.tuples(st.just("claude_code"), st.lists(CLAUDE, min_size=1, max_size=5)),
    st.tuples(st.just("codex"), st.lists(CODEX, min_size=1, max_size=6)),
).map(lambda given: as_session(*given))
SOUND_LINES = {
    "claude_code": [
        {"type": "user", "uuid": "a", "parentUuid": None, "message": {"content": "Hi."}},
        {"type": "assistant", "uuid": "b", "parentUuid": "a", "message": {"content": "Hello."}},
    ],
    "codex": [
        {"type": "response_item", "payload": {"type": "message", "role": "user", "content": "Hi."}},
        {"type": "response_item", "payload": {"type": "message", "role": "assistant", "content": "Hello."}},
    ],
}


def as_session(kind, lines):
    """The lines after a sound prompt and reply."""
    return {"_gymweb_session": kind, "lines": [[at, one] for at, one in enumerate(SOUND_LINES[kind] + lines, 1)]}


@settings(max_examples=400)
@given(TRAJECTORY | SESSIONS)
def test_a_trajectory_or_session_is_read_or_refused(row):
    try:
        stored = read_line(json.dumps(row).encode())
        check_task(stored.task)
        attempt = stored.attempt(stored.task, environment="any")
    except RowRefused as refusal:
        assert refusal.code
        assert refusal.message
        return
    graph = TraceGraph(attempt.events)
    assert graph.main_leaf
    assert all(event == decode_event(encode_event(event)) for event in attempt.events)


@settings(max_examples=200)
@given(RESULT | LOG | EPISODE)
def test_a_line_is_read_or_refused(row):
    try:
        stored = read_line(json.dumps(row).encode())
        check_task(stored.task)
        attempt = read_attempt(stored.row, stored.task, environment="any")
    except RowRefused as refusal:
        assert refusal.code
        assert refusal.message
        return
    assert (attempt.reward is None) == (stored.kind == "failure" or "verification_skipped" in stored.row)


def test_endless_nesting_is_refused():
    deep = b'{"messages": ' + b"[" * 900 + b"]" * 900 + b"}"
    try:
        read_line(deep)
    except RowRefused as refusal:
        assert refusal.code == "too_deep"
    else:
        raise AssertionError("it was read")
