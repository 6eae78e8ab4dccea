"""Environments that an operator writes: one class each, outside this project. docs/environments.md walks through one.

What such a file imports is all here.
"""

from apps.gym.environments.protocol import ToolRefused
from apps.gym.environments.task_generation import Call, Case, Difficulty, Move, Seen, ask, say
from apps.gym.rewards import Reward
from apps.gym.traces.items import Item, TaskRow
from apps.gym.written.attempts import Attempted
from apps.gym.written.environment import Environment, tool

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
