"""The built-in environments by name."""

from apps.gym.builtin.calculator import Calculator
from apps.gym.builtin.exact_match import ExactMatch
from apps.gym.builtin.judged import Judged
from apps.gym.builtin.protocol import BuiltinEnvironment

BUILTINS: dict[str, type[BuiltinEnvironment]] = {
    Calculator.name: Calculator,
    ExactMatch.name: ExactMatch,
    Judged.name: Judged,
}
