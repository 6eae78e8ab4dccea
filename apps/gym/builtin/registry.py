"""The built-in environments by name."""

from apps.gym.builtin.blackjack.environment import Blackjack
from apps.gym.builtin.calculator import Calculator
from apps.gym.builtin.code_exec.environment import CodeExec
from apps.gym.builtin.exact_match import ExactMatch
from apps.gym.builtin.instruction_following.environment import InstructionFollowing
from apps.gym.builtin.judged import Judged
from apps.gym.builtin.mcqa.environment import Mcqa
from apps.gym.builtin.protocol import BuiltinEnvironment
from apps.gym.builtin.search.environment import Search
from apps.gym.builtin.sokoban.environment import Sokoban
from apps.gym.builtin.structured_output.environment import StructuredOutput
from apps.gym.builtin.text_to_sql.environment import TextToSql
from apps.gym.builtin.twenty_questions.environment import TwentyQuestions
from apps.gym.builtin.workplace.environment import Workplace

BUILTINS: dict[str, type[BuiltinEnvironment]] = {
    Calculator.name: Calculator,
    CodeExec.name: CodeExec,
    ExactMatch.name: ExactMatch,
    InstructionFollowing.name: InstructionFollowing,
    Judged.name: Judged,
    Mcqa.name: Mcqa,
    StructuredOutput.name: StructuredOutput,
    TextToSql.name: TextToSql,
    Sokoban.name: Sokoban,
    Blackjack.name: Blackjack,
    Search.name: Search,
    Workplace.name: Workplace,
    TwentyQuestions.name: TwentyQuestions,
}
