"""Fail if a folder of Python has more than 28 modules, or if two modules of the apps have the same name."""

import subprocess
import sys
from collections import defaultdict
from pathlib import PurePosixPath

MOST_MODULES = 28
ROOTS = ("apps", "gymweb")
LEFT_OUT = {"migrations", "commands"}
CONVENTIONAL = {
    # Names with a meaning in Django.
    *("__init__", "__main__", "apps", "checks", "middleware", "models", "settings", "urls"),
    # Names with the same role in each package: an interface, and its implementations by name.
    *("protocol", "registry"),
    # Parts of each built-in environment.
    *("environment", "game", "kit", "tasks"),
}


def list_modules() -> list[PurePosixPath]:
    """Return the Python files in Git below the roots, without migrations and commands."""
    listed = subprocess.run(["git", "ls-files", "-z", *ROOTS], capture_output=True, check=True, text=True).stdout
    paths = [PurePosixPath(name) for name in listed.split("\0") if name.endswith(".py")]
    return [path for path in paths if not LEFT_OUT & set(path.parts)]


def find_problems(modules: list[PurePosixPath]) -> list[str]:
    by_folder: dict[PurePosixPath, int] = defaultdict(int)
    by_name: dict[str, list[str]] = defaultdict(list)
    for path in modules:
        by_folder[path.parent] += 1
        by_name[path.stem].append(str(path))
    large = [
        f"{folder} has {count} modules, at most {MOST_MODULES}: make packages by subject"
        for folder, count in sorted(by_folder.items())
        if count > MOST_MODULES
    ]
    same = [
        f"{', '.join(paths)} have the same name: rename all but one"
        for name, paths in sorted(by_name.items())
        if len(paths) > 1 and name not in CONVENTIONAL
    ]
    return large + same


if __name__ == "__main__":
    problems = find_problems(list_modules())
    print("\n".join(problems), end="\n" if problems else "")
    sys.exit(bool(problems))
