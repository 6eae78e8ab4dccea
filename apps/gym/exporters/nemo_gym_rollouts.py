"""NeMo Gym rollout rows: task fields, the actual request, response and reward.

Other verifier fields are next to the reward, as NeMo Gym servers return them. An imported row is exported unchanged,
except for later findings.

NeMo Gym verifies again from two files: this one, and its materialised inputs, which `input_row` makes from the same
rows. It sends an input with the `response` to `/verify`. Inputs contain no verifier output, because servers reject
their own output as input.
"""

from collections.abc import Iterator
from typing import Any

from apps.gym.exporters.captured_rows import TOKEN_CHOICES, is_constrained, name_altered, refuse_sampling
from apps.gym.exporters.protocol import Attempt, Format, Options, Row
from apps.gym.rollout_files.originals import NUMBERS, find_original, restore_params, restore_response
from apps.gym.tasks.parameters import PARAMS
from apps.gym.tasks.rollout_keys import ECHOED, OURS, is_of_attempt, verifier_fields, with_details
from apps.gym.traces.events import ModelCall, TraceUnion, Verification
from apps.gym.traces.items import TaskRow, as_object
from apps.gym.traces.messages import offered_tools
from apps.gym.traces.responses import assemble_response, prompt_items, with_unique_ids
from apps.gym.traces.segments import TokenFigures, check_prefixes, stored_tokens
from apps.gym.traces.tokens import TokensUnreadable, drop_tokens, restore_tokens
from apps.gym.trainability import Dropped

_SAMPLING = {"temperature", "top_p", "max_output_tokens", "tool_choice", "parallel_tool_calls", "reasoning", "text"}
"""The sampling keys that `responses_create_params` allows. It rejects unknown keys."""


def rollout_rows(attempt: Attempt, options: Options) -> Iterator[Row]:
    """Yield the attempt's row. The last item of a turn has its tokens if they were captured.

    `gymweb.model_version` is the first version, `model_versions` lists all if it changed.

    `gymweb.tokens` has the result of the prefix check: NeMo RL accepts a row as one sequence only if `segments` is 1,
    and stops at others. With `grammar_calls` set to `mask`, calls with a grammar have no token fields, so that their
    tokens are context in later prompts.

    Raises Dropped if the trace has no model reply, or tokens that cannot be read.
    """
    refuse_sampling(attempt.events, options)
    events, row = attempt.events, attempt.task
    if not any(isinstance(event, ModelCall) for event in events):
        raise Dropped("no_assistant_turn")
    try:
        if options.grammar_calls == "mask":
            events = drop_tokens(events, is_constrained)
        found = check_prefixes(stored_tokens(events))
        events = restore_tokens(events)
    except TokensUnreadable:
        raise Dropped("tokens_unreadable") from None
    original = find_original(events)
    if not original:
        events = with_unique_ids(events)
    told = original.get("row", {})
    params = materialised_params(events, row)
    response = assemble_response(events, {**row, PARAMS: params}, stop_reason=attempt.stop_reason)
    response["created_at"] = attempt.ended
    verified = next((event for event in reversed(events) if isinstance(event, Verification)), None)
    whole, echoed = with_details(row, _details(verified, original, row))
    components = {name: float(value) for name, value in attempt.components.items()}
    place = {
        "_ng_task_index": attempt.task_index,
        "_ng_rollout_index": attempt.repeat,
        **{name: told[name] for name in NUMBERS if name in told},
    }
    yield {
        **whole,
        PARAMS: restore_params(params, original),
        "response": restore_response(response, original),
        "reward": float(attempt.reward),
        **({"reward_components": components} if components else {}),
        **({"explanation": verified.explanation} if verified and verified.explanation else {}),
        "_ng_rollout_id": f"{place['_ng_task_index']}-{place['_ng_rollout_index']}",
        "agent_ref": {"type": "responses_api_agents", "name": attempt.agent},
        **told,
        **place,
        OURS: {
            **_origin(attempt),
            "stop_reason": attempt.stop_reason,
            **echoed,
            **({"tokens": _figures(found)} if found.captured else {}),
        },
    }


def _origin(attempt: Attempt) -> Row:
    versions = {event.version: None for event in attempt.events if isinstance(event, ModelCall) and event.version}
    calls = sum(map(is_constrained, attempt.events))
    given = {
        "model_version": attempt.model_version,
        "model_versions": list(versions) if len(versions) > 1 else [],
        "logprob_mode": attempt.logprob_mode,
        **attempt.engine,
        "grammar_calls": calls,
        "altered_sampling": name_altered(attempt.events),
        "reward_override": attempt.override,
    }
    return {**attempt.columns, **{name: value for name, value in given.items() if value}}


def _details(verified: Verification | None, original: dict[str, Any], row: TaskRow) -> dict[str, Any]:
    """Return the details of the verification that counts. Details too large for a trace come from the imported row."""
    if verified is None:
        return {}
    cut = original.get("details") if not verified.reverification else None
    details = {**verified.details, **cut} if cut else verified.details
    if not verified.masked:
        return details
    # NeMo Gym's metrics read the first field, NeMo RL the second.
    config = as_object(details.get("instance_config", row.get("instance_config")))
    return {**details, "mask_sample": True, "instance_config": {**config, "mask_sample": True}}


def _figures(found: TokenFigures) -> dict[str, Any]:
    breaks = [{"after_call": each.after, "agreed": each.agreed, "within": each.within} for each in found.breaks]
    return {"calls": found.calls, "captured": found.captured, "segments": found.segments, "breaks": breaks}


def materialised_params(events: list[TraceUnion], row: TaskRow) -> dict[str, Any]:
    """Return the actual request parameters of the task: prompt with system prompt and examples, tools, sampling.

    Nulls are left out, because NeMo Gym rejects them for tools and tool_choice, and so are `instructions`, because the
    prompt already begins with them.
    """
    given = {key: value for key, value in row["responses_create_params"].items() if value is not None}
    given.pop("instructions", None)
    used = next((event.sampling for event in events if isinstance(event, ModelCall)), {})
    sampling = {key: value for key, value in used.items() if key in _SAMPLING and value is not None}
    tools = offered_tools(events, row)
    return {**given, **sampling, "input": prompt_items(events), **({"tools": tools} if tools else {})}


_OF_AN_INPUT = frozenset({"agent_ref", "skills_ref", "_ng_task_index", "_ng_rollout_index", "_ng_attempt_index"})


def input_row(row: Row) -> Row:
    """Return the request of a rollout row as in NeMo Gym's `_materialized_inputs` file.

    Nulls are left out, because NeMo Gym rejects them for tools and tool_choice.
    """
    said = verifier_fields(row) or frozenset()
    task = {key: value for key, value in row.items() if key not in said and not is_of_attempt(key)}
    place = {key: value for key, value in row.items() if key in _OF_AN_INPUT}
    params = {key: value for key, value in row[PARAMS].items() if value is not None}
    return {**task, **row[OURS].get(ECHOED, {}), PARAMS: params, **place}


def input_rows(attempt: Attempt, options: Options) -> Iterator[Row]:
    """Yield the input of the attempt's row."""
    yield from map(input_row, rollout_rows(attempt, options))


FORMATS = [
    Format(
        slug="nemo_gym_rollouts",
        title="NeMo Gym rollout rows",
        trainer="NeMo Gym",
        row_kind="scored",
        keeps_all=True,
        keeps_masked=True,
        rows=rollout_rows,
        features=lambda _: {},
        open_columns=True,
        choices=TOKEN_CHOICES,
        encodings=("jsonl", "jsonl.gz"),
        note="Rows as `ng_collect_rollouts` writes them, with the verifier's result in separate fields, and captured "
        "token IDs and logprobs. NeMo RL reads a row as one sequence only if `gymweb.tokens.segments` is 1.",
    ),
    Format(
        slug="nemo_gym_inputs",
        title="NeMo Gym materialised inputs",
        trainer="NeMo Gym",
        row_kind="scored",
        keeps_all=True,
        keeps_masked=True,
        rows=input_rows,
        features=lambda _: {},
        open_columns=True,
        encodings=("jsonl", "jsonl.gz"),
        note="The inputs of the nemo_gym_rollouts rows, without results. `gym eval reverify` reads both files. "
        "`agent_ref` names the agent; its resource server verifies the rows.",
    ),
]
