"""Hybrid: several weighted verifiers, each with a component name."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from apps.gym.rewards import Reward
from apps.gym.traces.items import TaskRow
from apps.gym.verifiers.parameters_reader import find_problems_as, read_as
from apps.gym.verifiers.protocol import Problem, Verifier, read_type
from apps.gym.verifiers.single_verifiers import SINGLES


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One verifier of a hybrid, with its own name."""

    name: Annotated[
        str,
        Meta(
            pattern=r"^[A-Za-z][A-Za-z0-9_]{0,39}$",
            description="Component name: a letter, then letters, digits and _",
        ),
    ]
    verifier: Annotated[
        dict[str, Any], Meta(description='Any verifier except a hybrid, for example {"type": "exact_match"}')
    ]
    weight: Annotated[float, Meta(ge=-1e6, le=1e6, description="A negative weight is a penalty")] = 1.0
    required: Annotated[bool, Meta(description="The total reward is 0.0 unless this part gives at least 1.0")] = False


class Hybrid(Verifier, frozen=True, kw_only=True, tag="hybrid"):
    """Combines several verifiers. `combine` chooses how: `mean` (Σ weight × reward ÷ Σ positive weights), `sum`
    (Σ weight × reward), `product`, `min` or `max`.

    Every part must give a reward: if one fails, the whole verification fails. If a `required` part gives less than 1.0,
    the total is 0.0.

    Range: depends on the parts and weights; 0.0 to 1.0 for a mean of parts from 0.0 to 1.0 without negative weights.
    Components: each part's reward under its name, and the part's own components as `name.component`, if it has more
    than one.
    """

    title: ClassVar[str] = "Hybrid"
    components: Annotated[list[Part], Meta(title="Components", min_length=1, max_length=20)]
    combine: Annotated[Literal["mean", "sum", "product", "min", "max"], Meta(title="Combined by")] = "mean"

    @property
    def parts(self) -> dict[str, Verifier]:
        return {part.name: read_as(part.verifier, SINGLES) for part in self.components}

    @property
    def needs(self) -> frozenset[str]:
        return frozenset().union(*(verifier.needs for verifier in self.parts.values()))

    def find_problems(self) -> Iterator[Problem]:
        names = [part.name for part in self.components]
        for index, part in enumerate(self.components):
            at = f"/components/{index}"
            if part.name in names[:index]:
                yield f"{at}/name", f"is {part.name!r} , a repeated name. Give each part its own name"
            if part.verifier.get("type") == read_type(self):
                yield f"{at}/verifier/type", "is a nested hybrid. List its parts here instead"
                continue
            for pointer, problem in find_problems_as(part.verifier, SINGLES):
                yield f"{at}/verifier{pointer}", problem
        if self.combine == "mean" and not sum(max(part.weight, 0.0) for part in self.components) > 0:
            yield "/components", "have no positive weight. Give at least one of them a weight"

    def check_row(self, row: TaskRow) -> None:
        for part in self.parts.values():
            part.check_row(row)

    def verify(self, row: TaskRow, response: dict[str, Any]) -> Reward:
        return self.combine_rewards({name: part.verify(row, response) for name, part in self.parts.items()})

    def combine_rewards(self, rewards: Mapping[str, Reward]) -> Reward:
        """Combine the rewards of the parts. Parts without a reward (None) never reach this."""
        values = {name: reward.value or 0.0 for name, reward in rewards.items()}
        failed = [part.name for part in self.components if part.required and values[part.name] < 1.0]
        return Reward(
            value=0.0 if failed else self._combine(values),
            components=_name_components(rewards),
            explanation="\n".join(
                [f"{name} {values[name]:g}: {reward.explanation}" for name, reward in rewards.items()]
                + [f"0.0, because {', '.join(failed)} must be 1.0" if failed else ""]
            ).strip(),
            details={name: reward.details for name, reward in rewards.items() if reward.details},
        )

    def _combine(self, values: Mapping[str, float]) -> float:
        if self.combine in _UNWEIGHTED:
            return _UNWEIGHTED[self.combine](values.values())
        weighted = sum(part.weight * values[part.name] for part in self.components)
        divisor = sum(max(part.weight, 0.0) for part in self.components) if self.combine == "mean" else 1.0
        return weighted / divisor


_UNWEIGHTED: dict[str, Callable[[Iterable[float]], float]] = {"product": math.prod, "min": min, "max": max}


def _name_components(rewards: Mapping[str, Reward]) -> dict[str, float]:
    named: dict[str, float] = {}
    for name, reward in rewards.items():
        named[name] = reward.value or 0.0
        if len(reward.components) > 1:
            named |= {f"{name}.{component}": value for component, value in reward.components.items()}
    return named
