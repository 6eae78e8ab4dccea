"""Start one of NeMo Gym's agents, unmodified, between servers of ours:
python real_agent.py CHECKOUT PORT ENVIRONMENT_NAME ENVIRONMENT_PORT MODEL_PORT [AGENT OPTIONS].

AGENT is a folder of responses_api_agents. OPTIONS are those of the whole configuration, as JSON. With the option
`_serves`, the path of another server in it, that server is started in place of the agent.

Its launcher would begin a Ray cluster first, which this agent does not use; that step alone is left out.
"""

import json
import os
import runpy
import sys
from pathlib import Path

import yaml


def block(kind: str, server: str, port: int, **more: object) -> dict[str, object]:
    return {kind: {server: {"entrypoint": "app.py", "host": "127.0.0.1", "port": port, **more}}}


def configure(
    folder: Path,
    port: int,
    environment: str,
    environment_port: int,
    model_port: int,
    options: dict[str, object],
    served: str = "agent",
) -> None:
    """What NeMo Gym's launcher hands to its servers; our two are there already."""
    whole = {
        environment: block("resources_servers", environment, environment_port, domain="agent"),
        "policy_model": block("responses_api_models", "openai_model", model_port),
        "agent": block(
            "responses_api_agents",
            folder.name,
            port,
            resources_server={"type": "resources_servers", "name": environment},
            model_server={"type": "responses_api_models", "name": "policy_model"},
        ),
        "head_server": {"host": "127.0.0.1", "port": 11000},
        "default_host": "127.0.0.1",
        "dry_run": False,
        "profiling_enabled": False,
        "profiling_results_dirpath": str(folder),
        "uvicorn_logging_show_200_ok": False,
        "uvicorn_timeout_worker_healthcheck": 30,
        **options,
    }
    os.environ |= {"NEMO_GYM_CONFIG_DICT": yaml.safe_dump(whole), "NEMO_GYM_CONFIG_PATH": served}


if __name__ == "__main__":
    checkout, name = Path(sys.argv[1]).absolute(), sys.argv[3]
    own, environment_port, model_port = int(sys.argv[2]), int(sys.argv[4]), int(sys.argv[5])
    kind, options = sys.argv[6:] or ["simple_agent", "{}"]
    whole = json.loads(options)
    served, _, folder = whole.pop("_serves", "agent").partition(".")
    agent = checkout / "responses_api_agents" / kind
    configure(agent, own, name, environment_port, model_port, whole, served)
    agent = checkout / folder.replace(".", "/") if folder else agent
    sys.path[:0] = [str(agent), str(checkout)]
    os.chdir(checkout)
    import nemo_gym.server_utils

    nemo_gym.server_utils.initialize_ray = lambda: None
    sys.argv = ["app.py"]
    runpy.run_path(str(agent / "app.py"), run_name="__main__")
