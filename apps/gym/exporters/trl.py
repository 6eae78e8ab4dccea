"""TRL 1.x: SFT, DPO, KTO and reward-model rows, and prompts for GRPO.

Columns as in TRL's `dataset_formats`.

TRL trains on all `messages`, including tool outputs, unless `assistant_only_loss=True`. A DPO loss covers everything
after the prompt, including tool outputs; only `level` = `step` excludes them.
"""

from collections.abc import Callable, Iterator

from apps.gym.exporters import axolotl
from apps.gym.exporters.captured_rows import SAMPLING_FEATURES, TOKEN_CHOICES, join_attempt, sampling_columns
from apps.gym.exporters.dataset_columns import (
    ATTEMPT_FEATURES,
    PAIR_FEATURES,
    attempt_columns,
    image_feature,
    pair_columns,
    tools_column,
    tools_feature,
)
from apps.gym.exporters.image_columns import COLUMN, refuse_images, with_parts
from apps.gym.exporters.protocol import Attempt, Feature, Format, Options, Preference, Row, TaskPrompt
from apps.gym.exporters.training_conversations import (
    OPENINGS,
    TASK_FEATURES,
    attempt_conversation,
    ground_truth,
    pair_conversations,
    question_messages,
    task_columns,
)
from apps.gym.traces.messages import find_media, turn_tools
from apps.gym.traces.segments import count_captured_replies, find_missing
from apps.gym.trainability import Dropped

CHAT = {
    "reasoning": ("field", "inline", "dropped"),
    "arguments": ("object", "text"),
    "malformed": ("dropped", "text"),
    "parallel_calls": ("kept", "split"),
    "numbers": ("exact", "any"),
    "tools": ("column", "text", "system", "dropped"),
    "images": COLUMN,
    "injected": ("dropped", "kept"),
}
MLX_LM = "mlx-lm 0.32 does not read prompt and completion as messages: for it, use `trl_sft`."
IGNORED = -100
"""The label of tokens that are excluded from the loss."""


def sft_rows(attempt: Attempt, options: Options) -> Iterator[Row]:
    whole = attempt_conversation(attempt, options)
    yield {
        **with_parts(options, messages=[*whole.prompt, *whole.completion]),
        **tools_column(whole, options),
        **attempt_columns(attempt),
    }


def completion_rows(attempt: Attempt, options: Options) -> Iterator[Row]:
    whole = attempt_conversation(attempt, options, loss="completion")
    refuse_images(whole.completion)
    yield {
        **with_parts(options, prompt=whole.prompt, completion=whole.completion),
        **tools_column(whole, options),
        **attempt_columns(attempt),
    }


def turn_rows(attempt: Attempt, options: Options) -> Iterator[Row]:
    """Yield one row for each turn of the model, with its input as the prompt and its message as the completion.

    Turns that the client of a captured agent sent have no row, because the model did not write them after this input.
    Turns that another row trains have none either. Each row has the tools of its own call.
    """
    offers = turn_tools(attempt.events, attempt.task)
    # Split calls are several turns, so a row cannot be told its call's tools.
    offered = offers[0] if offers and options.parallel_calls != "split" else None
    whole = attempt_conversation(attempt, options, loss="marked", offered=offered)
    own = iter(offers)
    for index, message in enumerate(whole.completion):
        place = len(whole.prompt) + index
        if message["role"] != "assistant" or whole.is_in(whole.resent, place):
            continue
        if offered is not None and (tools := next(own, offered)) != offered:
            offered = tools
            whole = attempt_conversation(attempt, options, loss="marked", offered=offered)
        if not whole.is_in(whole.repeated, place):
            yield {
                **with_parts(options, prompt=[*whole.prompt, *whole.completion[:index]], completion=[message]),
                **tools_column(whole, options),
                "turn": index,
                **attempt_columns(attempt),
            }


def token_rows(attempt: Attempt, options: Options) -> Iterator[Row]:
    """Yield one row for each segment of captured ids, with labels only for the tokens that the model sampled.

    A segment without a token to train on is left out.

    Raises Dropped if some turns have no tokens: the rows would look complete but lack turns.
    """
    if media := find_media(attempt.events):
        raise Dropped(media)
    segments = join_attempt(attempt, options)
    replies, captured = count_captured_replies(attempt.events)
    if captured < replies or not segments:
        raise Dropped(find_missing(attempt.events, has_some=bool(segments)))
    trained = [(segment, sampled) for segment, sampled in segments if any(segment.mask)]
    for number, (segment, sampled) in enumerate(trained):
        ids = segment.input_ids.tolist()
        labels = [one if kept else IGNORED for one, kept in zip(ids, segment.mask, strict=True)]
        yield {
            "input_ids": ids,
            "labels": labels,
            "segment": number,
            **sampling_columns(attempt, sampled),
            **attempt_columns(attempt),
        }


def dpo_rows(pair: Preference, options: Options) -> Iterator[Row]:
    chosen, rejected = pair_conversations(pair, options)
    refuse_images([*chosen.completion, *rejected.completion])
    sides = with_parts(options, prompt=chosen.prompt, chosen=chosen.completion, rejected=rejected.completion)
    if options.prompt == "implicit":
        prompt = sides.pop("prompt")
        sides |= {side: [*prompt, *sides[side]] for side in ("chosen", "rejected")}
    yield {**sides, **tools_column(chosen, options), **pair_columns(pair)}


def orpo_rows(pair: Preference, options: Options) -> Iterator[Row]:
    yield {**next(axolotl.dpo_rows(pair, options)), **pair_columns(pair)}


def kto_rows(attempt: Attempt, options: Options) -> Iterator[Row]:
    whole = attempt_conversation(attempt, options, loss="completion")
    refuse_images(whole.completion)
    yield {
        **with_parts(options, prompt=whole.prompt, completion=whole.completion),
        "label": attempt.reward >= options.good_from,
        **tools_column(whole, options),
        **attempt_columns(attempt),
    }


def grpo_rows(task: TaskPrompt, options: Options) -> Iterator[Row]:
    yield {
        **with_parts(options, prompt=question_messages(task, options)),
        "environment": task.environment,
        "ground_truth": ground_truth(task.task),
        **task_columns(task),
    }


_KINDS: dict[str, Feature] = {
    "messages": "json[]",
    "prompt": "json[]",
    "completion": "json[]",
    "label": "bool",
    "turn": "int64",
    "segment": "int64",
    "input_ids": "int32[]",
    "labels": "int32[]",
}


def attempt_features(*names: str) -> Callable[[Options], dict[str, Feature]]:
    def features(options: Options) -> dict[str, Feature]:
        columns = {name: _KINDS[name] for name in names}
        return {**columns, **image_feature(options), **tools_feature(options), **ATTEMPT_FEATURES}

    return features


def _pair_features(options: Options) -> dict[str, Feature]:
    sides: dict[str, Feature] = {"prompt": "json[]", "chosen": "json[]", "rejected": "json[]"}
    if options.prompt == "implicit":
        del sides["prompt"]
    return {**sides, **image_feature(options), **tools_feature(options), **PAIR_FEATURES}


FORMATS = [
    Format(
        slug="trl_sft",
        title="TRL SFT, conversations",
        trainer="TRL",
        row_kind="demonstrations",
        rows=sft_rows,
        features=attempt_features("messages"),
        choices=CHAT,
        note="`SFTTrainer` trains on everything, including tool outputs, unless `assistant_only_loss=True`. Its "
        "`max_length` defaults to 1024 tokens; longer rows are cut. torchtune 0.6.1 silently loses all tool calls.",
    ),
    Format(
        slug="trl_sft_completion",
        title="TRL SFT, prompt and completion",
        trainer="TRL",
        row_kind="demonstrations",
        rows=completion_rows,
        features=attempt_features("prompt", "completion"),
        choices=CHAT,
        note="The loss covers the completion, including tool outputs, unless `assistant_only_loss=True`. " + MLX_LM,
    ),
    Format(
        slug="trl_sft_turns",
        title="TRL SFT, one row per turn",
        trainer="TRL",
        row_kind="demonstrations",
        rows=turn_rows,
        features=attempt_features("prompt", "completion", "turn"),
        choices={name: values for name, values in CHAT.items() if name != "injected"},
        note="One row per model turn, with the input of that turn. Works with every chat template, including "
        "templates that drop earlier reasoning. The loss covers one model turn. " + MLX_LM,
    ),
    Format(
        slug="trl_sft_tokens",
        title="TRL SFT, captured tokens",
        trainer="TRL",
        row_kind="demonstrations",
        rows=token_rows,
        features=lambda _: {
            **{name: _KINDS[name] for name in ("input_ids", "labels", "segment")},
            **SAMPLING_FEATURES,
            **ATTEMPT_FEATURES,
        },
        choices=TOKEN_CHOICES,
        encodings=("parquet", "jsonl", "jsonl.gz"),
        needs_tokens=True,
        note="The exact token IDs that the model read and sampled, without template or tokenizer. Only for the "
        "same model, or one with the same tokenizer. Axolotl loads the same file.",
    ),
    Format(
        slug="trl_dpo",
        title="TRL DPO, conversations",
        trainer="TRL",
        row_kind="preferences",
        rows=dpo_rows,
        features=_pair_features,
        choices={**CHAT, "level": ("trajectory", "step"), "prompt": ("explicit", "implicit")},
        note="`DPOTrainer`'s loss covers everything after the prompt, including tool outputs. With level “First "
        "differing action”, each side is one model turn. `DPOTrainer`'s `max_length` defaults to 1024 tokens.",
    ),
    Format(
        slug="trl_orpo",
        title="TRL ORPO and CPO, as text",
        trainer="TRL",
        row_kind="preferences",
        rows=orpo_rows,
        features=lambda _: {"prompt": "string", "chosen": "string", "rejected": "string", **PAIR_FEATURES},
        choices={
            "reasoning": ("inline", "dropped"),
            "arguments": ("object", "text"),
            "tools": ("system", "dropped"),
            "level": ("trajectory", "step"),
        },
        note="For models that use ChatML with Hermes tool calls, such as Qwen. `ORPOTrainer` and `CPOTrainer` refuse "
        "the conversations of `trl_dpo`. The loss covers everything after the prompt.",
    ),
    Format(
        slug="trl_reward",
        title="TRL reward model, pairs",
        trainer="TRL",
        row_kind="preferences",
        rows=dpo_rows,
        features=_pair_features,
        choices={**CHAT, "level": ("trajectory", "step"), "prompt": ("implicit",)},
        refused={("prompt", "explicit"): "RewardTrainer takes whole conversations: both sides include the prompt."},
        note="`RewardTrainer` scores whole conversations. Its loss uses a `margin` column if there is one. "
        "To use margins, rename `reward_margin` to `margin` (only pairs from rewards have it).",
    ),
    Format(
        slug="trl_kto",
        title="TRL KTO, rollouts labelled good or bad",
        trainer="TRL",
        row_kind="labels",
        rows=kto_rows,
        features=attempt_features("prompt", "completion", "label"),
        choices={**CHAT, "good_from": ("0.5",)},
        note="Rollouts that reach the “Minimum reward for good” are labelled good. The loss covers the completion.",
    ),
    Format(
        slug="trl_grpo",
        title="TRL GRPO, prompts",
        trainer="TRL",
        row_kind="tasks",
        rows=grpo_rows,
        features=lambda options: {
            "prompt": "json[]",
            **image_feature(options),
            "environment": "string",
            "ground_truth": "string",
            **TASK_FEATURES,
        },
        choices={"opening": OPENINGS, "images": COLUMN},
        note="`GRPOTrainer` samples its own completions. All columns except the prompt are passed to its reward "
        "functions. Tools are Python functions passed to the trainer, not a column.",
    ),
]
