"""Saccade: sequence models you can see through."""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from saccade.api import (
        Model,
        PreparedData,
        TrainedRun,
        compare,
        fetch,
        load,
        measure,
        prepare,
        recipe,
        train,
        training,
        verify,
    )
    from saccade.errors import SaccadeError, UsageError
    from saccade.joint import ensemble, fused, reranked
    from saccade.lines import Request
    from saccade.recipe import Recipe

__version__ = "0.1.0"
__all__ = [
    "Model",
    "PreparedData",
    "Recipe",
    "Request",
    "SaccadeError",
    "TrainedRun",
    "UsageError",
    "compare",
    "ensemble",
    "fetch",
    "fused",
    "load",
    "measure",
    "prepare",
    "recipe",
    "reranked",
    "train",
    "training",
    "verify",
]

_HOME = {
    "Recipe": "saccade.recipe",
    "Request": "saccade.translate",
    "SaccadeError": "saccade.errors",
    "UsageError": "saccade.errors",
    "ensemble": "saccade.joint",
    "fused": "saccade.joint",
    "reranked": "saccade.joint",
}


class _Package(ModuleType):
    """Imports what is asked for when it is asked for: `import saccade` and `saccade --help` need no torch."""

    def __getattr__(self, name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module 'saccade' has no attribute {name!r}")
        value = getattr(import_module(_HOME.get(name, "saccade.api")), name)
        super().__setattr__(name, value)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        # Importing the package saccade.train would put it where the function saccade.train belongs.
        if not (name in __all__ and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
