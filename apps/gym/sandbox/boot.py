"""The first lines that run in a sandbox: they bound the process for good, then become the program.

Kept as text: no file of this project is seen from inside.
"""

import textwrap

from apps.gym.sandbox.protocol import Limits

BOOT = textwrap.dedent(
    """
    import resource, sys
    for name, value in zip(("AS", "CPU", "NPROC", "FSIZE", "NOFILE", "CORE"), map(int, sys.argv[1:7])):
        if value >= 0:
            resource.setrlimit(getattr(resource, "RLIMIT_" + name), (value, value))
    source = sys.stdin.buffer.read(int(sys.argv[7])).decode()
    del sys.argv[1:], name, value, resource
    exec(compile(source, "program.py", "exec"), {"__name__": "__main__", "__builtins__": __builtins__})
    """
).strip()
_DESCRIPTORS = 64


def boot_arguments(python: str, program: bytes, limits: Limits, *, bound_processes: bool = True) -> list[str]:
    """No site packages, no folder of its own on the path, nothing compiled to disk. Hashes of texts are seeded by the
    environment, so that the same program gives the same output."""
    bounds = [
        limits.memory,
        limits.cpu_seconds,
        limits.processes if bound_processes else -1,
        limits.files,
        _DESCRIPTORS,
        0,
    ]
    return [python, "-s", "-S", "-P", "-B", "-c", BOOT, *map(str, bounds), str(len(program))]
