"""Read YAML that others wrote: within bounds of size and depth, since a few lines of it can stand for any amount."""

from typing import Any

import yaml

_MOST_BYTES = 4 * 1024 * 1024
_MOST_NODES = 200_000
_MOST_LEVELS = 64


class NotYaml(Exception):
    """The text is no YAML, or more of it than is read."""


def read_yaml(text: str) -> Any:
    """What the text holds. Raises NotYaml."""
    if len(text) > _MOST_BYTES:
        raise NotYaml(f"is larger than {_MOST_BYTES:,} characters")
    try:
        # Which looks at the characters of all of it at once.
        loader = yaml.SafeLoader(text)
    except yaml.YAMLError as error:
        raise NotYaml(f"is not YAML: {' '.join(str(error).split())}") from None
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        # Before anything is built of it: an alias is a few bytes, and what it stands for may hold further ones.
        if _measure(node, {}, 0) > _MOST_NODES:
            raise NotYaml(f"stands for more than {_MOST_NODES:,} values, by its aliases")
        return loader.construct_document(node)
    except (yaml.YAMLError, ValueError) as error:
        raise NotYaml(f"is not YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise NotYaml(f"is nested more than {_MOST_LEVELS} deep") from None
    finally:
        loader.dispose()


def _measure(node: yaml.Node, known: dict[int, int], level: int) -> int:
    """How many values it stands for, with each alias written out."""
    if level > _MOST_LEVELS:
        # An alias to what holds it has no end either.
        raise RecursionError
    if isinstance(node, yaml.ScalarNode):
        return 1
    if id(node) not in known:
        inner = [each for pair in node.value for each in pair] if isinstance(node, yaml.MappingNode) else node.value
        known[id(node)] = 1 + sum(_measure(each, known, level + 1) for each in inner)
    return known[id(node)]
