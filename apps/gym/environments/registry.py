"""The built-in environments by name."""

from apps.gym.environments.blackjack.environment import Blackjack
from apps.gym.environments.calculator.environment import Calculator
from apps.gym.environments.code_exec.environment import CodeExec
from apps.gym.environments.instruction_following.environment import InstructionFollowing
from apps.gym.environments.protocol import BuiltinEnvironment
from apps.gym.environments.search.environment import Search
from apps.gym.environments.simulated_user.environment import SimulatedUser
from apps.gym.environments.single_turn import ExactMatch, Judged, Mcqa, StructuredOutput
from apps.gym.environments.sokoban.environment import Sokoban
from apps.gym.environments.text_to_sql.environment import TextToSql
from apps.gym.environments.twenty_questions.environment import TwentyQuestions
from apps.gym.environments.workplace.environment import Workplace

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
    SimulatedUser.name: SimulatedUser,
}
