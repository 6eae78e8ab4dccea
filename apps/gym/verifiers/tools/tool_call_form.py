"""One expected call in three parts: right, valid by its tool's schema, alone. As NeMo Gym's multi-reward example."""

from typing import Annotated, Any, ClassVar

from msgspec import Meta

from apps.gym.rewards import Reward
from apps.gym.traces.items import TaskRow, item_type
from apps.gym.verifiers.answering import refuse
from apps.gym.verifiers.protocol import Verifier
from apps.gym.verifiers.tools.expected_calls import Call, calls_expected, calls_made, same


class ToolCallForm(Verifier, frozen=True, kw_only=True, tag="tool_call_form"):
    """Σ weight × component of `correctness`, `schema_valid` and `format`, each 1.0 or 0.0.

    correctness: some call has the expected name and every expected argument. schema_valid: the arguments of the first
    call are an object that holds all that its tool's schema requires, and the task declares that tool where it declares
    any. format: there is exactly one call, no message.

    Range: 0.0 to 3.0 with weights of 1. Components: `correctness`, `schema_valid`, `format`.
    """

    title: ClassVar[str] = "One tool call, in three parts"
    expected_field: Annotated[
        str, Meta(title="Field of the expected call", min_length=1, description='{"name": …, "arguments": {…}}')
    ] = "expected_call"
    correctness: Annotated[float, Meta(ge=-1e6, le=1e6, title="Weight of correctness")] = 1.0
    schema_valid: Annotated[float, Meta(ge=-1e6, le=1e6, title="Weight of valid arguments")] = 1.0
    format: Annotated[float, Meta(ge=-1e6, le=1e6, title="Weight of the form")] = 1.0

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({self.expected_field})

    def verify(self, row: TaskRow, response: dict[str, Any]) -> Reward:
        expected = calls_expected(row, self.expected_field)
        if len(expected) != 1:
            raise refuse(f"the task row's `{self.expected_field}` must be one call, not {len(expected)}")
        made = calls_made(response)
        wanted = expected[0]
        found = {
            "correctness": float(any(_holds(wanted, call) for call in made)),
            "schema_valid": float(bool(made) and _has_required(row, made[0])),
            "format": float(len(made) == 1 and not _speaks(response)),
        }
        told = ", ".join(f"{name} {value:g}" for name, value in found.items())
        return Reward(
            value=sum(getattr(self, name) * value for name, value in found.items()),
            components=found,
            explanation=f"{told}; expected {wanted.shown()}",
            details={"predicted_calls": [{"name": call.name, "arguments": call.arguments} for call in made]},
        )


def _holds(wanted: Call, call: Call) -> bool:
    if call.name != wanted.name or call.arguments is None:
        return False
    given = call.arguments
    return all(name in given and same(value, given[name]) for name, value in (wanted.arguments or {}).items())


def _has_required(row: TaskRow, call: Call) -> bool:
    tools = (row.get("responses_create_params") or {}).get("tools") or []
    schemas = {tool.get("name"): tool.get("parameters") or {} for tool in tools}
    if schemas and call.name not in schemas:
        return False
    schema = schemas.get(call.name, {})
    return call.arguments is not None and all(name in call.arguments for name in schema.get("required") or [])


def _speaks(response: dict[str, Any]) -> bool:
    return any(item_type(item) == "message" for item in response.get("output") or [])
