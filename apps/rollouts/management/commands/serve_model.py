"""`manage.py serve_model SLUG --port P`: serve a policy model with the APIs of OpenAI and Anthropic."""

from argparse import ArgumentParser
from functools import partial
from typing import Any

from apps.accounts.management.spec_arguments import find_row
from apps.policies.models import PolicyModel
from apps.rollouts.management.serving_options import PortCommand, yaml_block
from apps.rollouts.serving.served_connections import connect_served_model, model_seconds


class Command(PortCommand):
    help = "Serve a policy model (/v1/responses, /v1/chat/completions, /v1/messages), at the root of a port of its own."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("model", metavar="SLUG")
        super().add_arguments(parser)

    def handle(self, *, host: str, port: int, max_body: int, **options: Any) -> None:
        model = find_row(PolicyModel, options["model"])

        def explain(host: str, port: int) -> str:
            block = yaml_block(kind="responses_api_models", name="policy_model", server="openai_model", at=(host, port))
            return (
                f"{block}\n# or, for a model server of the other side that calls this one:\n"
                f"policy_base_url: http://{host}:{port}/v1\npolicy_api_key: none\npolicy_model_name: {model.slug}\n"
                f"# or, for clients of the Messages API:\n# ANTHROPIC_BASE_URL=http://{host}:{port}\n"
            )

        connect = partial(connect_served_model, model)
        self.serve(connect, host=host, port=port, max_body=max_body, seconds=model_seconds(model), explain=explain)
