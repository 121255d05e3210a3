"""Load a slow package on its first use; all other imports stand at the top of a file.

cvxpy, matplotlib and scikit-learn together take as long to load as torch does, and most solves need none of them.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from covopt.runtime.interrupts import loading


class LazyModule(ModuleType):
    """A stand-in for a module, which is loaded when one of its names is first used.

    The caller also imports the module under `if TYPE_CHECKING`, for the type checker.
    """

    _loaded: ModuleType | None = None

    def __getattr__(self, name: str) -> object:
        if name == "__isabstractmethod__":  # asked by ABCMeta of all that stands in a class
            raise AttributeError(name)
        if self._loaded is None:
            with loading():
                self._loaded = import_module(self.__name__)
        return getattr(self._loaded, name)


lazy = LazyModule
