"""All in-process environments by name: built-in and custom ones."""

from apps.gym.environments.kits import KITS
from apps.gym.environments.protocol import BuiltinEnvironment
from apps.gym.environments.registry import BUILTINS
from apps.gym.environments.task_generation import Kit
from apps.gym.written.environment import Environment

WRITTEN: dict[str, type[Environment]] = {}
PROBLEMS: list[str] = []
"""Environments that could not be loaded, one sentence each."""

InProcess = type[BuiltinEnvironment] | type[Environment]


def find_environment(name: str) -> InProcess | None:
    return BUILTINS.get(name) or WRITTEN.get(name)


def list_names() -> list[str]:
    return sorted({*BUILTINS, *WRITTEN})


def find_kit(name: str) -> Kit | None:
    if name in KITS:
        return KITS[name]
    return WRITTEN[name].kit() if name in WRITTEN else None


def list_kits() -> list[str]:
    return sorted({*KITS, *(name for name in WRITTEN if find_kit(name))})
