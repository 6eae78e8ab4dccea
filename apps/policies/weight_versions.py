"""Weight versions of models in use, so that running rollouts notice updates immediately."""

from weakref import WeakValueDictionary

from apps.gym.traces.items import dump_json
from apps.gym.wires.protocol import Weights
from apps.policies.models import PolicyModel

_Endpoint = tuple[int, str]


class WeightsInUse:
    """One Weights object per endpoint in use, shared by all its clients.

    If only the version of a model changes, its weights were updated, and running rollouts record the new version. If
    the server or model name changes, for example to another adapter, running rollouts keep the old endpoint and
    version.
    """

    def __init__(self) -> None:
        self._known: WeakValueDictionary[_Endpoint, Weights] = WeakValueDictionary()

    def of(self, policy_model: PolicyModel) -> Weights:
        weights = self._known.setdefault(_endpoint_of(policy_model), Weights(policy_model.version))
        weights.version = policy_model.version
        return weights

    def follow_versions(self) -> None:
        """Update the versions of models in use."""
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
