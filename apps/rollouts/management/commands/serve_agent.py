"""`manage.py serve_agent SLUG --model SLUG --environment SLUG --port P`: serve an agent as an agent server."""

from argparse import ArgumentParser
from functools import partial
from typing import Any

from apps.accounts.management.spec_arguments import find_row
from apps.agents.models import Agent
from apps.environments.models import Environment
from apps.policies.models import PolicyModel
from apps.rollouts.management.serving_options import PortCommand, yaml_block
from apps.rollouts.serving.served_connections import RUN_SECONDS, connect_served_agent


class Command(PortCommand):
    help = "Serve an agent with its policy model and environment (/run, /v1/responses), at the root of its own port."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("agent", metavar="SLUG")
        parser.add_argument("--model", required=True, metavar="SLUG")
        parser.add_argument("--environment", required=True, metavar="SLUG")
        parser.add_argument(
            "--run-seconds", type=float, default=RUN_SECONDS, help="for one attempt (default: %(default)s)"
        )
        super().add_arguments(parser)

    def handle(self, *, host: str, port: int, max_body: int, **options: Any) -> None:
        agent = find_row(Agent, options["agent"])
        model = find_row(PolicyModel, options["model"])
        environment = find_row(Environment, options["environment"], "judge_model")
        seconds = options["run_seconds"]
        references = (
            f"      resources_server: {{type: resources_servers, name: {environment.slug}}}\n"
            "      model_server: {type: responses_api_models, name: policy_model}\n"
        )
        self.serve(
            partial(connect_served_agent, agent, model, environment, run_seconds=seconds),
            host=host,
            port=port,
            max_body=max_body,
            seconds=seconds + 5.0,
            explain=lambda host, port: yaml_block(
                kind="responses_api_agents", name=agent.slug, server=agent.slug, at=(host, port), more=references
            ),
        )
