"""The verifiers that stand alone, by name."""

from apps.gym.verifiers.contains import Contains
from apps.gym.verifiers.exact_match import ExactMatch
from apps.gym.verifiers.llm_judge import LLMJudge
from apps.gym.verifiers.multiple_choice import MultipleChoice
from apps.gym.verifiers.numeric import Numeric
from apps.gym.verifiers.patterns import Patterns
from apps.gym.verifiers.protocol import Verifier, read_type

_ALL: tuple[type[Verifier], ...] = (ExactMatch, Numeric, MultipleChoice, Contains, Patterns, LLMJudge)
SINGLES: dict[str, type[Verifier]] = {read_type(verifier): verifier for verifier in _ALL}
