"""The virtual environment of a server, from the requirements in its folder, as NeMo Gym builds it."""

import hashlib
import importlib.metadata
import shutil
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

_MANIFESTS = ("pyproject.toml", "requirements.txt")
_MARKER = ".gymweb-installed"


async def prepare_python(folder: Path, tree: dict[str, Any], run: Callable[[list[str]], Awaitable[None]]) -> Path:
    """Return the Python of a server. Build its virtual environment with `run`, unless it is complete.

    A folder without requirements and virtual environment runs with the Python of GymWeb.
    """
    shared = tree.get("uv_venv_dir")
    venv = Path(shared, *folder.parts[-2:], ".venv") if shared else folder / ".venv"
    python, marker = venv / "bin" / "python", venv / _MARKER
    manifest = next((folder / name for name in _MANIFESTS if (folder / name).is_file()), None)
    if manifest is None:
        return python if python.exists() else Path(sys.executable)
    release = _find_release(folder.parents[1])
    digest = hashlib.sha256(manifest.read_bytes() + release.encode()).hexdigest()
    is_complete = marker.exists() and marker.read_text() == digest
    if python.exists() and (is_complete or tree.get("skip_venv_if_present")):
        return python
    wanted, uv = str(tree.get("python_version") or ""), shutil.which("uv")
    if uv:
        await run([uv, "venv", "--allow-existing", *(["--python", wanted] if wanted else []), str(venv)])
        install = [uv, "pip", "install", "--python", str(python)]
    else:
        await run([f"python{wanted}" if wanted else sys.executable, "-m", "venv", str(venv)])
        install = [str(python), "-m", "pip", "install", "--disable-pip-version-check"]
    given = ["-e", "."] if manifest.name == "pyproject.toml" else ["-r", manifest.name]
    if release:
        # The servers of an installed NeMo Gym name the checkout above them, which is not there.
        given = [release, *(given if manifest.name == "pyproject.toml" else ["-r", str(venv / manifest.name)])]
        lines = manifest.read_text(encoding="utf-8").splitlines(keepends=True)
        (venv / manifest.name).write_text("".join(line for line in lines if "../.." not in line), encoding="utf-8")
    await run([*install, *given])
    marker.write_text(digest)
    return python


def _find_release(root: Path) -> str:
    """Return `nemo-gym==VERSION` if the folder is that of an installed package, else an empty text."""
    found = next(iter(importlib.metadata.distributions(name="nemo-gym", path=[str(root)])), None)
    return f"nemo-gym=={found.version}" if found else ""
