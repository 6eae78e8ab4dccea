"""The kits of the built-in environments by name; where there is none, tasks come from files alone."""

from apps.gym.builtin import calculator_kit, exact_match_kit
from apps.gym.builtin.generating import Kit

KITS: dict[str, Kit] = {
    "calculator": calculator_kit.KIT,
    "exact_match": exact_match_kit.KIT,
}
