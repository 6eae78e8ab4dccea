"""The verifiers other than hybrids, by name."""

from apps.gym.verifiers.efficiency import Efficiency
from apps.gym.verifiers.final_state import FinalState
from apps.gym.verifiers.instructions.instruction_constraints import Instructions
from apps.gym.verifiers.llm_judge import LLMJudge
from apps.gym.verifiers.math.math_verifier import Mathematics
from apps.gym.verifiers.math.numeric import Numeric
from apps.gym.verifiers.protocol import Verifier, read_type
from apps.gym.verifiers.reward_model import RewardModel
from apps.gym.verifiers.structured.structured_output import StructuredOutput
from apps.gym.verifiers.text.exact_match import ExactMatch, StringMatch
from apps.gym.verifiers.text.multiple_choice import MultipleChoice
from apps.gym.verifiers.text.patterns import Contains, Patterns
from apps.gym.verifiers.tools.tool_calls import CallArgument, ToolCallForm, ToolCalls

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
    RewardModel,
)
SINGLES: dict[str, type[Verifier]] = {read_type(verifier): verifier for verifier in _ALL}
