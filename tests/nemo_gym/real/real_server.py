"""Start one of NeMo Gym's own servers, unmodified, from a checkout: python real_server.py CHECKOUT NAME PORT.

Its launcher would begin a Ray cluster first, which these servers do not use; that step alone is left out.
"""

import os
import runpy
import sys
from pathlib import Path

import yaml


def configure(folder: Path, name: str, port: int) -> None:
    """What NeMo Gym's launcher hands to its servers: the whole configuration, and which of it is theirs."""
    own = yaml.safe_load((folder / "configs" / f"{name}.yaml").read_text())
    key, block = next((key, block) for key, block in own.items() if "resources_servers" in block)
    (inner,) = block["resources_servers"].values()
    inner |= {"host": "127.0.0.1", "port": port}
    whole = {
        key: block,
        "head_server": {"host": "127.0.0.1", "port": 11000},
        "default_host": "127.0.0.1",
        "dry_run": False,
        "profiling_enabled": False,
        "profiling_results_dirpath": str(folder),
        "uvicorn_logging_show_200_ok": False,
        "uvicorn_timeout_worker_healthcheck": 30,
    }
    os.environ |= {"NEMO_GYM_CONFIG_DICT": yaml.safe_dump(whole), "NEMO_GYM_CONFIG_PATH": key}


if __name__ == "__main__":
    checkout, name, port = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    folder = checkout / "resources_servers" / name
    configure(folder, name, port)
    sys.path[:0] = [str(folder), str(checkout)]
    os.chdir(checkout)
    import nemo_gym.server_utils

    nemo_gym.server_utils.initialize_ray = lambda: None
    sys.argv = ["app.py"]
    runpy.run_path(str(folder / "app.py"), run_name="__main__")
