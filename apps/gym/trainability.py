"""Every reason why something is left out of training data.

Metrics, pairs, previews, exports, streams and manifests take their reasons from `REASONS` and count them in a `Ledger`
(apps.gym.training_ledger), which refuses unknown ones.
"""

from typing import Literal, Protocol, get_args

import msgspec

from apps.gym.outcomes import ENDED_BY_ITSELF, MASKED

Level = Literal["task", "rollout", "pair", "turn", "token"]
"""What a reason leaves out. Turns and tokens are parts of used sources. The rest is counted in the unit of the export.
"""
PARTS: frozenset[Level] = frozenset({"turn", "token"})
LEVELS: tuple[Level, ...] = get_args(Level)


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """Why something is not trained on by default.

    `label` follows a number ("3 masked by the verifier"). `override` is the filter or option that includes it, or the
    person who can; empty if nothing does. `filter` finds such rollouts in a collection; empty if only a format decides.
    """

    name: str
    level: Level
    label: str
    sentence: str
    override: str = ""
    filter: str = ""


def _reasons(level: Level, *rows: tuple[str, ...]) -> dict[str, Reason]:
    """Return the reasons of rows (name, label, sentence, override, filter); the last two may be missing."""
    names = ("name", "label", "sentence", "override", "filter")
    return {row[0]: Reason(level=level, **dict(zip(names, row, strict=False))) for row in rows}


REASONS: dict[str, Reason] = {
    # How the rollout ended, and what people decided. The selection checks these in this order.
    **_reasons(
        "rollout",
        ("not_finished", "not finished", "The rollout is queued or running.", "", "status:queued,running"),
        ("failed", "failed", "The rollout failed, so it has no reward.", "", "status:failed"),
        (
            "judge_failed",
            "failed in the judge",
            "The judge failed, so the rollout has no reward.",
            "reverification",
            "error:judge_error",
        ),
        ("cancelled", "cancelled", "A user cancelled the rollout.", "", "status:cancelled"),
        (
            MASKED,
            "masked by the verifier",
            "The verifier reported that the reward is no valid measurement. NeMo Gym's formats keep such rollouts.",
            "",
            "flag:masked",
        ),
        (
            "no_reward",
            "without a reward",
            "The rollout completed without a reward.",
            "reviewer",
            "flag:unscored -flag:masked,credentials,truncated,ambiguous -notice:*",
        ),
        (
            "flagged",
            "with redactions not reviewed",
            "Credentials were redacted, and the redactions are not reviewed.",
            "include_flagged",
            "flag:credentials status:completed -flag:masked",
        ),
        (
            "ambiguous_path",
            "with an ambiguous main path",
            "No captured call surely wrote the agent's answer, so the main path may be another conversation.",
            "include_ambiguous",
            "flag:ambiguous status:completed -flag:masked,credentials",
        ),
        (
            "setup_notice",
            "with a set-up notice",
            "The set-up of the server decided how the rollout ended, not the model.",
            "include_noticed",
            "notice:* status:completed -flag:masked,credentials,ambiguous",
        ),
        ("redacted", "with redacted credentials", "Credentials were redacted.", "include_redacted", "flag:redacted"),
        ("below_min_reward", "below the minimum reward", "The reward is below min_reward.", "min_reward"),
        (
            "truncated",
            "cut off by a limit",
            "The rollout was cut off, so it does not show how to end.",
            "include_truncated",
            "flag:truncated -flag:masked,credentials,ambiguous -notice:*",
        ),
        ("not_selected", "not selected by the filter", "The filter or the list of rollouts leaves it out.", "q"),
        ("no_trace", "without a trace", "The trace was deleted or never stored."),
        ("identical_completion", "identical to another rollout", "Another row has the same completion.", "dedupe"),
        (
            "identical_completion_with_another_reward",
            "identical to another rollout with another reward",
            "Another row has the same completion and another reward: one of the two rewards is wrong.",
            "dedupe",
        ),
        ("beyond_the_best_of_its_task", "over the limit per task", "The task has enough rows.", "per_task"),
        ("beyond_max_rows", "over the maximum number of rows", "The export has enough rows.", "max_rows"),
    ),
    # What the format or its trainer cannot hold without a change of meaning.
    **_reasons(
        "rollout",
        ("no_assistant_turn", "without a turn of the model", "The trace has no reply of the model."),
        (
            "injected_turns",
            "with turns that the model did not write",
            "The client sent turns that no captured call wrote, and the format cannot leave them out of the loss.",
            "injected",
        ),
        ("nothing_to_train_on", "with nothing to train on", "The format makes no row of it."),
        (
            "tools_changed",
            "whose tools changed midway",
            "A tool was removed or redefined between two calls. A row has only one list of tools.",
        ),
        ("tool_not_function", "with a tool that is no function", "The format only holds function tools."),
        ("orphan_tool_output", "with an output of no call", "A tool output belongs to no call."),
        (
            "results_not_in_call_order",
            "with a result of a later call only",
            "A call has no result and a later call of its turn has one. The format has no call ids to tell them apart.",
        ),
        ("unknown_item", "with an unknown item", "The trace has an item that the format cannot hold."),
        ("unknown_role", "with an unknown role", "A message has a role that the format cannot hold."),
        ("unknown_content", "with unknown content", "A message has content that the format cannot hold."),
        ("empty_turn", "with an empty turn", "A turn of the model has neither text nor a call."),
        ("malformed_item", "with a malformed item", "An item of the trace lacks a field."),
        (
            "malformed_arguments",
            "with malformed arguments",
            "The arguments of a call are not a JSON object.",
            "malformed",
        ),
        ("inexact_numbers", "with inexact numbers", "The `datasets` library would round a number.", "numbers"),
        ("image_content", "with images", "The format would lose an image.", "images"),
        ("file_content", "with files", "The format cannot hold a file."),
        ("audio_content", "with audio", "The format cannot hold audio."),
        ("turns_do_not_alternate", "whose turns do not alternate", "The trainer needs turns that alternate."),
        (
            "system_message_in_the_middle",
            "with a system message in the middle",
            "The trainer only reads a system message at the start.",
        ),
        ("parallel_calls", "with parallel calls", "Templates of the family take one call per turn.", "family"),
        (
            "text_beside_call",
            "with text beside a call",
            "Templates of the family take no text beside a call.",
            "family",
        ),
        ("reasoning_as_answer", "with reasoning", "The family would train it as an answer.", "reasoning"),
        ("image_placeholder_in_text", "with an image placeholder in a text", "The trainer would count it as an image."),
        (
            "template_raises",
            "for which the chat template raises",
            "The chat template of the check raises an error.",
            "misfits",
        ),
        (
            "template_loses",
            "of which the chat template loses a part",
            "The chat template of the check loses or changes a text, a call, a result or the tools.",
            "misfits",
        ),
        ("remote_image", "with a remote image", "The trainer would have to download an image."),
        ("image_in_completion", "with an image after the prompt", "The trainer only reads images of the prompt."),
        ("credential_in_tokens", "with a credential in their tokens", "A credential in tokens cannot be masked."),
        ("not_encodable", "that JSON cannot hold", "A number or a character cannot be written as JSON."),
        ("tokens_unreadable", "with unreadable tokens", "The stored tokens are damaged."),
        ("tokens_not_captured", "without captured tokens", "No token IDs were captured.", "", "sampled:0"),
        ("tokens_partly_captured", "with partly captured tokens", "Some turns have no token IDs."),
        ("impossible_logprobs", "with impossible log probabilities", "A log probability is above 0 or not finite."),
        ("token_counts_differ", "with differing token counts", "The token IDs of a reply do not match its usage."),
        (
            "all_tokens_masked",
            "whose tokens a grammar may have forced",
            "No sampled token is trainable, because a grammar may have forced all of them.",
            "grammar_calls",
            "sampled:>0 trainable:0",
        ),
        ("grammar_calls", "with calls that used a grammar", "A grammar may have forced tokens.", "grammar_calls"),
        (
            "altered_sampling",
            "with altered sampling",
            "Tokens were sampled with fields that change their distribution, such as top_p.",
            "altered_sampling",
        ),
    ),
    **_reasons(
        "task",
        ("other_split", "of another split", "The task belongs to another split.", "splits"),
        ("never_scored", "without any reward", "No rollout of the task has a reward."),
        ("solved_too_rarely", "solved too rarely", "The solve rate is below min_solve_rate.", "min_solve_rate"),
        ("solved_too_often", "solved too often", "The solve rate is above max_solve_rate.", "max_solve_rate"),
        ("zero_variance", "without variance", "All rewards of the task are equal.", "drop_zero_variance"),
        ("prompt_template_gap", "with a gap in the prompt", "The prompt template names a field without a value."),
        ("no_user_message", "without a user message", "The prompt has no user message."),
        (
            "prompt_without_final_user_message",
            "whose prompt does not end with a user message",
            "The trainer needs a prompt that ends with a user message.",
        ),
        ("too_few_attempts", "with fewer than two usable rollouts", "A pair needs two rollouts."),
        ("tie", "with equal rewards", "All usable rollouts have the same reward."),
        ("below_margin", "with a reward difference below the margin", "No two rewards differ enough.", "margin"),
        (
            "chosen_too_weak",
            "whose best reward is below the minimum chosen reward",
            "No reward reaches min_chosen_reward.",
            "min_chosen_reward",
        ),
        ("judged_equal", "reviewed as equal", "Reviewers found both rollouts equal.", "reviewer"),
        ("judged_both_bad", "reviewed as both bad", "Reviewers found both rollouts bad.", "reviewer"),
        ("judged_split", "on which reviewers disagree", "Reviewers disagree.", "reviewer"),
        (
            "preference_cycle",
            "whose preference contradicts another",
            "The preference contradicts another one.",
            "reviewer",
        ),
    ),
    **_reasons(
        "pair",
        ("different_prompts", "with different prompts", "The two rollouts have different prompts or tools."),
        ("identical_completions", "with identical completions", "The two rollouts are identical."),
        ("same_actions", "with the same actions", "The two rollouts take the same actions."),
        (
            "states_differ",
            "whose environment replies differ before the actions do",
            "The environment answered differently before the model acted differently.",
        ),
        ("lengths_differ", "above the maximum length ratio", "One rollout is much longer.", "max_length_ratio"),
        ("rejected", "rejected by a reviewer", "A reviewer rejected the pair.", "include_rejected"),
        ("not_accepted", "not accepted by a reviewer", "No reviewer accepted the pair.", "only_accepted"),
        ("other_source", "of another source", "The preference has another source.", "sources"),
    ),
    **_reasons(
        "turn",
        (
            "foreign_turn",
            "not written by the model",
            "The client of the agent sent this turn in the model's name. It is not in the loss.",
        ),
        ("logprobs_of_turn", "with impossible log probabilities", "The tokens of this turn are left out."),
        ("counts_of_turn", "with differing token counts", "The tokens of this turn are left out."),
    ),
    **_reasons(
        "token",
        (
            "grammar",
            "possibly forced by a grammar",
            "Strict tools, a forced call or a response format may have forced these tokens, so their log probabilities "
            "are not the model's.",
            "grammar_calls",
        ),
    ),
}
"""All reasons by name."""


class Dropped(Exception):
    """Raised if a source makes no rows; `reason` is a name in REASONS."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = REASONS[reason].name


def label_reason(name: str) -> str:
    """Return the label of a reason. Manifests of earlier versions may have unknown ones."""
    return REASONS[name].label if name in REASONS else name.replace("_", " ")


class RolloutRow(Protocol):
    """The columns of a rollout that decide by themselves whether it may be trained on."""

    @property
    def status(self) -> str: ...
    @property
    def reward(self) -> float | None: ...
    @property
    def masked(self) -> str: ...
    @property
    def flagged(self) -> bool: ...
    @property
    def ambiguous_path(self) -> bool: ...
    @property
    def notices(self) -> str: ...
    @property
    def stop_reason(self) -> str: ...


def find_reason(
    row: RolloutRow,
    *,
    include_flagged: bool = False,
    include_truncated: bool = False,
    include_masked: bool = False,
    include_ambiguous: bool = False,
    include_noticed: bool = False,
    min_reward: float | None = None,
) -> str:
    """Return why a rollout is left out, as far as its columns tell, or an empty string."""
    if row.status != "completed":
        return row.status if row.status in {"failed", "cancelled"} else "not_finished"
    holds = {
        MASKED: row.masked and not include_masked,
        "flagged": row.flagged and not include_flagged,
        "ambiguous_path": row.ambiguous_path and not include_ambiguous,
        "setup_notice": row.notices != "" and not include_noticed,
        "below_min_reward": min_reward is not None and row.reward is not None and row.reward < min_reward,
        "truncated": not include_truncated and row.stop_reason not in ENDED_BY_ITSELF,
        # Last, because a verdict of reviewers can replace a reward.
        "no_reward": row.reward is None and not row.masked,
    }
    return next((reason for reason, is_so in holds.items() if is_so), "")


STRICT_TOOLS, FORCED_CALLS, RESPONSE_FORMAT = "strict tools", "forced tool calls", "a response format"
GRAMMARS = {
    STRICT_TOOLS: "Set strict_tools of the agent to never, and collect again.",
    FORCED_CALLS: "Set tool_choice to auto, and collect again.",
    RESPONSE_FORMAT: "Collect again without a response format.",
}
"""Remedies by cause of a grammar."""
