"""What an operator's code raises, told in one line and kept from ending more than it should."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from apps.gym.errors import EnvironmentFault, GymError

Given = ParamSpec("Given")
Result = TypeVar("Result")


class Stopped(Exception):
    """The code raised what would have ended a whole process."""


def tell(problem: BaseException) -> str:
    """One line of it: its type, and what it says."""
    if isinstance(problem, Stopped):
        return str(problem)
    try:
        said = str(problem).encode(errors="replace").decode()
    except Exception:
        said = "what it says cannot be read"
    return f"{type(problem).__name__}: {said}" if said else type(problem).__name__


def guard(work: Callable[Given, Result], name: str, kind: type | tuple[type, ...]) -> Callable[Given, Result]:
    """The same function with one error, EnvironmentFault, which says whose it is; also for a result of another type."""

    @wraps(work)
    def guarded(*given: Given.args, **named: Given.kwargs) -> Result:
        try:
            result = work(*given, **named)
        except GymError:
            raise
        except (Exception, SystemExit, KeyboardInterrupt) as problem:
            raise EnvironmentFault(f"{name}: {tell(problem)}").lasting() from problem
        if not isinstance(result, kind):
            raise EnvironmentFault(f"{name}: it gives {_names(kind)}, not {type(result).__name__}").lasting()
        return result

    return guarded


def _names(kind: type | tuple[type, ...]) -> str:
    return " or ".join(one.__name__ for one in (kind if isinstance(kind, tuple) else (kind,)))
