"""The verifiers that stand alone, by name."""

from apps.gym.verifiers.call_argument import CallArgument
from apps.gym.verifiers.contains import Contains
from apps.gym.verifiers.efficiency import Efficiency
from apps.gym.verifiers.exact_match import ExactMatch
from apps.gym.verifiers.final_state import FinalState
from apps.gym.verifiers.instructions import Instructions
from apps.gym.verifiers.llm_judge import LLMJudge
from apps.gym.verifiers.mathematics import Mathematics
from apps.gym.verifiers.multiple_choice import MultipleChoice
from apps.gym.verifiers.numeric import Numeric
from apps.gym.verifiers.patterns import Patterns
from apps.gym.verifiers.protocol import Verifier, read_type
from apps.gym.verifiers.string_match import StringMatch
from apps.gym.verifiers.structured_output import StructuredOutput
from apps.gym.verifiers.tool_call_form import ToolCallForm
from apps.gym.verifiers.tool_calls import ToolCalls

_ALL: tuple[type[Verifier], ...] = (
    ExactMatch,
    Numeric,
    Mathematics,
    MultipleChoice,
    StringMatch,
    Contains,
    Patterns,
    StructuredOutput,
    ToolCalls,
    CallArgument,
    ToolCallForm,
    FinalState,
    Instructions,
    Efficiency,
    LLMJudge,
)
SINGLES: dict[str, type[Verifier]] = {read_type(verifier): verifier for verifier in _ALL}
