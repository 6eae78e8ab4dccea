"""Instruction constraints on length, format, keywords, language and others. A reply follows each or not."""

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from apps.gym.redaction.shortening import cut
from apps.gym.rewards import Reward
from apps.gym.traces.items import TaskRow, last_assistant_text
from apps.gym.verifiers.instructions.ifeval_checks import (
    CONSTRAINTS,
    LANGUAGES,
    detect_language,
    language_code,
    relate,
    texts,
    whole_number,
)
from apps.gym.verifiers.protocol import Problem, TimeLimit, Verifier, permanent_error

_RELATIONS = ("relation", "let_relation", "capital_relation")


class Instruction(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One constraint with its arguments."""

    id: Annotated[str, Meta(description="For example length_constraints:number_words")]
    arguments: Annotated[
        dict[str, Any], Meta(description='For example {"num_words": 100, "relation": "at least"}')
    ] = {}


class Instructions(Verifier, frozen=True, kw_only=True, tag="instructions"):
    """1.0 if the last message follows all instructions, otherwise 0.0. With `score: fraction`, the reward is the
    share of instructions followed.

    `score`: with `all`, 1.0 if it follows all of them, otherwise 0.0; with `fraction`, followed ÷ all. An empty reply
    follows none. IFEval defines the ids and arguments. A row has them as `instruction_id_list` and `kwargs`, at the
    top level or in `verifier_metadata`, as in NeMo Gym's instruction_following.

    Languages are codes: `de`, `zh` for both kinds of Chinese, `zh-cn`, `zh-tw`; other regions are ignored (en-US is
    en). A text of fewer than 20 letters (7 Chinese, Japanese or Korean characters) has no detectable language. It
    counts as followed, as in IFEval, if its letters are of a script of the language. Combine it with a length if short
    replies must not earn the reward.

    Range: 0.0 to 1.0. Components: `instructions`, and 1.0 or 0.0 for each id.
    """

    title: ClassVar[str] = "Instruction constraints"
    instructions: Annotated[
        list[Instruction],
        Meta(
            title="Instructions", max_length=100, description="Default: `instruction_id_list` and `kwargs` of the row"
        ),
    ] = []
    score: (
        Annotated[
            Literal["all", "fraction"],
            Meta(title="Score", description="Default: fraction if the row's `grading_mode` is fraction, otherwise all"),
        ]
        | None
    ) = None
    time_limit: TimeLimit = 10.0

    def runs_on_loop(self, row: TaskRow) -> bool:
        return not any(CONSTRAINTS[one.id].slow for one in self._wanted(row))

    @classmethod
    def prepare(cls) -> None:
        # Loads the profiles of all languages, which takes a second.
        detect_language("Which language is this sentence in?")

    def find_problems(self) -> Iterator[Problem]:
        for index, instruction in enumerate(self.instructions):
            yield from (
                (f"/instructions/{index}{pointer}", problem) for pointer, problem in instruction_problems(instruction)
            )

    def check_row(self, row: TaskRow) -> None:
        if self.instructions or "instruction_id_list" in _metadata(row):
            self._wanted(row)

    def verify(self, row: TaskRow, response: dict[str, Any]) -> Reward:
        wanted = self._wanted(row)
        # Only the final message: text before a tool call is not the answer.
        reply = last_assistant_text(response.get("output") or [])
        followed = [bool(reply.strip()) and CONSTRAINTS[one.id].follows(reply, one.arguments) for one in wanted]
        part = sum(followed) / len(followed)
        by_fraction = (self.score or _metadata(row).get("grading_mode")) == "fraction"
        value = part if by_fraction else float(all(followed))
        broken = [one.id for one, kept in zip(wanted, followed, strict=True) if not kept]
        parts: dict[str, float] = {}
        for one, kept in zip(wanted, followed, strict=True):
            parts[one.id] = min(parts.get(one.id, 1.0), float(kept))
        told = f"follows {sum(followed)} of {len(followed)}"
        return Reward(
            value=value,
            components={"instructions": value, **parts},
            explanation=f"{told}; not {', '.join(broken)}" if broken else told,
            details={"follow_instruction_list": followed},
        )

    def _wanted(self, row: TaskRow) -> list[Instruction]:
        if self.instructions:
            return self.instructions
        given = _metadata(row)
        ids, arguments = given.get("instruction_id_list"), given.get("kwargs")
        if not isinstance(ids, list) or not ids:
            raise permanent_error("the task row has no `instruction_id_list`, which this verifier needs")
        arguments = [{}] * len(ids) if arguments is None else arguments
        if not isinstance(arguments, list) or len(arguments) != len(ids):
            raise permanent_error("the task row's `kwargs` must be a list as long as its `instruction_id_list`")
        wanted = []
        for index, (name, one) in enumerate(zip(ids, arguments, strict=True)):
            # Rows of some data sets have every argument for every instruction, with null for those that it lacks.
            if not isinstance(one, dict | None):
                raise permanent_error(f"the task row's instruction {index + 1}: its `kwargs` must be an object")
            kept = {key: value for key, value in (one or {}).items() if value is not None}
            instruction = Instruction(id=str(name), arguments=kept)
            for pointer, problem in instruction_problems(instruction):
                raise permanent_error(f"the task row's instruction {index + 1}: {pointer} {problem}")
            wanted.append(instruction)
        return wanted


def instruction_problems(instruction: Instruction) -> Iterator[Problem]:
    known = CONSTRAINTS.get(instruction.id)
    if known is None:
        yield "/id", f"is {cut(instruction.id, 80)!r}: give one of {', '.join(CONSTRAINTS)}"
        return
    for name in sorted(known.needs - instruction.arguments.keys()):
        yield f"/arguments/{name}", f"is missing: {instruction.id} needs it"
    for name, value in instruction.arguments.items():
        try:
            if name in _RELATIONS:
                relate(0, 0, value)
            elif name.startswith("num_") or name.endswith("frequency") or name == "nth_paragraph":
                whole_number(value)
            elif name == "language" and name in known.needs and language_code(value) not in LANGUAGES:
                yield f"/arguments/{name}", f"is {value!r:.80}: give one of {', '.join(sorted(LANGUAGES))}"
            elif name in known.needs and not all(text.strip() for text in texts(value) or [""]):
                yield f"/arguments/{name}", "is empty or contains an empty text"
        except ValueError:
            right = "at least, less than, at most or exactly" if name in _RELATIONS else "a whole number"
            yield f"/arguments/{name}", f"is {value!r:.80}: give {right}"


def _metadata(row: TaskRow) -> dict[str, Any]:
    metadata = row.get("verifier_metadata")
    return metadata if isinstance(metadata, dict) and "instruction_id_list" in metadata else row
