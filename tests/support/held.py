"""How much an object holds: the sizes of every container that can be reached from it."""

from collections import deque
from typing import Any

CONTAINERS = (dict, list, set, deque)
PLAIN = (str, bytes, int, float, bool, type(None), type, type(len))


def container_sizes(root: object, packages: tuple[str, ...] = ("voice_runtime", "tests")) -> dict[str, int]:
    """Path -> length of every dict, list, set and deque of `root` and of the objects of `packages` that it holds."""
    sizes: dict[str, int] = {}
    _walk(root, "", sizes, set(), packages)
    return sizes


def _walk(value: Any, path: str, sizes: dict[str, int], seen: set[int], packages: tuple[str, ...]) -> None:
    if isinstance(value, PLAIN) or id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, CONTAINERS):
        sizes[path] = len(value)
        members = list(value.values()) if isinstance(value, dict) else list(value)
        for at, member in enumerate(members[:50]):
            _walk(member, f"{path}[{at}]", sizes, seen, packages)
    elif type(value).__module__.split(".")[0] in packages:
        for name in _attributes(value):
            _walk(getattr(value, name, None), f"{path}.{name}", sizes, seen, packages)


def _attributes(value: Any) -> list[str]:
    slots = [name for cls in type(value).__mro__ for name in getattr(cls, "__slots__", ())]
    return [*getattr(value, "__dict__", ()), *slots]
