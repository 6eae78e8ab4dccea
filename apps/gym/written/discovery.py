"""Load custom environments from entry points and from the paths in GYMWEB_ENVIRONMENTS.

These files are the operator's own code. They run in web processes and workers, with the same permissions.
"""

import importlib
import importlib.util
import logging
import sys
import traceback
from collections.abc import Callable, Iterable
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from apps.gym.environments.registry import BUILTINS
from apps.gym.written.environment import Environment, tell
from apps.gym.written.registry import PROBLEMS, WRITTEN

logger = logging.getLogger(__name__)

ENTRY_POINTS = "gymweb.environments"
_NO_ENVIRONMENTS = ("test_", "conftest", "_")


def load_environments(places: Iterable[str]) -> None:
    """Rebuild the registry. Never raises for errors in custom code; they are listed as problems."""
    WRITTEN.clear()
    PROBLEMS.clear()
    for point in entry_points(group=ENTRY_POINTS):
        _load(f"the entry point {point.value}", point.load)
    for place in places:
        _load_place(place)


def _load_place(place: str) -> None:
    folder = Path(place).expanduser()
    if folder.is_dir():
        files = sorted(path for path in folder.glob("*.py") if not path.name.startswith(_NO_ENVIRONMENTS))
        if not files:
            _refuse(place, ValueError("the folder has no Python file with an environment"))
        for path in files:
            _load(str(path), partial(_import_file, path))
    elif folder.is_file():
        _load(place, partial(_import_file, folder))
    elif "/" in place or place.endswith(".py"):
        _refuse(place, FileNotFoundError("there is no such folder or file"))
    else:
        _load(place, partial(importlib.import_module, place))


def _load(where: str, bring: Callable[[], Any]) -> None:
    """Load a module or an Environment class."""
    try:
        brought = bring()
    # Catch SystemExit too: a custom file must not end this process.
    except (Exception, SystemExit) as problem:
        _refuse(where, problem)
        return
    found = [brought] if isinstance(brought, type) else _classes_of(brought)
    if not found:
        _refuse(where, ValueError("no class in it is an Environment"))
    _keep(found, where)


def _import_file(path: Path) -> ModuleType:
    """Import a file as a module of its own name, with its folder on the path."""
    path = path.resolve()
    if str(path.parent) not in sys.path:
        # Last on the path, so that its files do not hide GymWeb's modules.
        sys.path.append(str(path.parent))
    known = sys.modules.get(path.stem)
    if known is not None and getattr(known, "__file__", None) == str(path):
        return known
    if known is not None or path.stem in sys.stdlib_module_names:
        raise ImportError(f"a module named {path.stem} already exists. Rename the file")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[path.stem]
        raise
    return module


def _classes_of(module: Any) -> list[type[Environment]]:
    """Return the environment classes defined in the module, not imported ones."""
    values = vars(module).values() if isinstance(module, ModuleType) else ()
    found = [value for value in values if isinstance(value, type) and issubclass(value, Environment)]
    return [value for value in found if value.__module__ == module.__name__ and value is not Environment]


def _keep(found: Iterable[type], where: str) -> None:
    for one in found:
        if not issubclass(one, Environment):
            _refuse(where, TypeError(f"{one.__name__} is not an Environment"))
        elif one.problem:
            _refuse(where, TypeError(f"{one.__name__}, {one.problem}"))
        elif one.name in BUILTINS:
            _refuse(where, ValueError(f"an environment named {one.name} is built in. Use another name"))
        elif WRITTEN.setdefault(one.name, one) is not one:
            _refuse(where, ValueError(f"two environments are named {one.name}"))


def _refuse(where: str, problem: BaseException) -> None:
    told = f"{where}: {_find_line(where, problem)}{tell(problem)}"
    logger.error("an environment could not be loaded: %s", told)
    PROBLEMS.append(told)


def _find_line(where: str, problem: BaseException) -> str:
    """Return the place of the error in the custom code; empty if it was not reached."""
    frames = traceback.extract_tb(problem.__traceback__)
    reached = [frame for frame in frames if frame.filename != __file__ and "importlib" not in frame.filename]
    if not reached:
        return ""
    last = reached[-1]
    return f"line {last.lineno}: " if last.filename == where else f"{last.filename}, line {last.lineno}: "
