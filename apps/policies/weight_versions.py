"""Weight versions of models in use: running rollouts learn of a change at once."""

from weakref import WeakValueDictionary

from apps.gym.traces.items import dump_json
from apps.gym.wires.protocol import Weights
from apps.policies.models import PolicyModel

_Endpoint = tuple[int, str]


class WeightsInUse:
    """A Weights object for each endpoint in use, shared by all of its clients.

    If the version of a model changes and its requests stay the same, the weights changed: running rollouts use the new
    version. If the server or model name (for example an adapter) changes, running rollouts keep the old endpoint and
    version.
    """

    def __init__(self) -> None:
        self._known: WeakValueDictionary[_Endpoint, Weights] = WeakValueDictionary()

    def of(self, policy_model: PolicyModel) -> Weights:
        weights = self._known.setdefault(_endpoint_of(policy_model), Weights(policy_model.version))
        weights.version = policy_model.version
        return weights

    def follow_versions(self) -> None:
        """Read the versions of the models in use."""
        in_use = {pk for pk, _ in list(self._known)}
        if not in_use:
            return
        needed = ("provider", "base_url", "more_base_urls", "model_name", "extra_body", "version")
        for row in PolicyModel.objects.filter(pk__in=in_use).only(*needed):
            weights = self._known.get(_endpoint_of(row))
            if weights is not None:
                weights.version = row.version


def _endpoint_of(policy_model: PolicyModel) -> _Endpoint:
    asked = [policy_model.provider, policy_model.base_urls, policy_model.model_name, policy_model.extra_body]
    return policy_model.pk, dump_json(asked)
