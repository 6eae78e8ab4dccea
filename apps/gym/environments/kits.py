"""The kits of the built-in environments by name. An environment without a kit gets its tasks only from files."""

from apps.gym.environments.blackjack import kit as blackjack_kit
from apps.gym.environments.calculator import kit as calculator_kit
from apps.gym.environments.code_exec import kit as code_exec_kit
from apps.gym.environments.exact_match import kit as exact_match_kit
from apps.gym.environments.instruction_following import kit as instruction_following_kit
from apps.gym.environments.mcqa import kit as mcqa_kit
from apps.gym.environments.search import kit as search_kit
from apps.gym.environments.simulated_user import kit as simulated_user_kit
from apps.gym.environments.sokoban import kit as sokoban_kit
from apps.gym.environments.structured_output import kit as structured_output_kit
from apps.gym.environments.task_generation import Kit
from apps.gym.environments.text_to_sql import kit as text_to_sql_kit
from apps.gym.environments.twenty_questions import kit as twenty_questions_kit
from apps.gym.environments.workplace import kit as workplace_kit

KITS: dict[str, Kit] = {
    "calculator": calculator_kit.KIT,
    "code_exec": code_exec_kit.KIT,
    "exact_match": exact_match_kit.KIT,
    "instruction_following": instruction_following_kit.KIT,
    "mcqa": mcqa_kit.KIT,
    "structured_output": structured_output_kit.KIT,
    "text_to_sql": text_to_sql_kit.KIT,
    "sokoban": sokoban_kit.KIT,
    "blackjack": blackjack_kit.KIT,
    "search": search_kit.KIT,
    "workplace": workplace_kit.KIT,
    "twenty_questions": twenty_questions_kit.KIT,
    "simulated_user": simulated_user_kit.KIT,
}
