"""`manage.py serve_environment SLUG --port P`: serve an environment as a NeMo Gym resource server."""

from argparse import ArgumentParser
from functools import partial
from typing import Any

from apps.accounts.management.spec_arguments import find_row
from apps.environments.models import Environment
from apps.rollouts.management.serving_options import PortCommand, yaml_block
from apps.rollouts.serving.served_connections import answer_seconds, connect_served_environment


class Command(PortCommand):
    help = "Serve an environment as a resource server, at the root of a port of its own."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("environment", metavar="SLUG")
        super().add_arguments(parser)

    def handle(self, *, host: str, port: int, max_body: int, **options: Any) -> None:
        environment = find_row(Environment, options["environment"], "judge_model")
        slug = environment.slug
        self.serve(
            partial(connect_served_environment, environment),
            host=host,
            port=port,
            max_body=max_body,
            seconds=answer_seconds(environment),
            explain=lambda host, port: yaml_block(
                kind="resources_servers", name=slug, server=slug, at=(host, port), more="      domain: agent\n"
            ),
        )
