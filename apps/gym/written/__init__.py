"""The interface for custom environments: one class each, outside this project.

See docs/start/own_environment.md.

Everything that such a file imports is here.
"""

from apps.gym.environments.protocol import ToolRefused
from apps.gym.environments.task_generation import Call, Case, Difficulty, Move, Seen, ask, say
from apps.gym.rewards import Reward
from apps.gym.traces.items import Item, TaskRow
from apps.gym.written.environment import Attempted, Environment, tool

__all__ = [
    "Attempted",
    "Call",
    "Case",
    "Difficulty",
    "Environment",
    "Item",
    "Move",
    "Reward",
    "Seen",
    "TaskRow",
    "ToolRefused",
    "ask",
    "say",
    "tool",
]
