"""Runs `gymweb` as its users do: a process of its own, whose output never has the key."""

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from tests.deadlines import DEADLINE
from tests.gymweb.serving import ROOT

CLIENT = ROOT / "clients" / "python"


@dataclass
class CommandLine:
    """In a folder of its own, which also has its profiles and temporary files."""

    folder: Path
    secrets: list[str] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        """With a program `gymweb` on the PATH, whatever is installed in this environment."""
        for name in ("bin", "tmp"):
            (self.folder / name).mkdir(exist_ok=True)
        script = self.folder / "bin" / "gymweb"
        script.write_text(f"#!{sys.executable}\nfrom gymweb_client.cli import main\nmain()\n")
        script.chmod(0o700)
        mine = {name: value for name, value in os.environ.items() if not name.startswith("GYMWEB_")}
        return {
            **mine,
            "PATH": f"{script.parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(CLIENT),
            "XDG_CONFIG_HOME": str(self.folder / "config"),
            "TMPDIR": str(self.folder / "tmp"),
            "TERM": "dumb",
            "COLUMNS": "200",
        }

    def start(self, *words: str, **environment: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            words,
            cwd=self.folder,
            env={**self.environment, **environment},
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def run(self, *words: str, code: int = 0, stdin: str = "", **environment: str) -> tuple[str, str]:
        """Return standard output and standard error."""
        with self.start(*words, **environment) as process:
            out, err = process.communicate(stdin, timeout=DEADLINE)
        assert process.returncode == code, f"{' '.join(words)}: {process.returncode}\n{out}\n{err}"
        assert not any(secret in out + err for secret in self.secrets)
        return out, err

    def gymweb(self, *words: str, code: int = 0, stdin: str = "", **environment: str) -> tuple[str, str]:
        return self.run("gymweb", *words, code=code, stdin=stdin, **environment)
