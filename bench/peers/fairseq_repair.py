"""What fairseq 0.12.2 needs to be imported at all by Python 3.11."""

SITECUSTOMIZE = '''\
"""Let a dataclass instance stand as a field's default, as Python 3.10 did: fairseq and hydra 1.0 count on it."""
import dataclasses

_checked = dataclasses.Field.__init__


def _hashable_default(self, default, *others):
    if dataclasses.is_dataclass(default) and not isinstance(default, type) and type(default).__hash__ is None:
        type(default).__hash__ = object.__hash__
    _checked(self, default, *others)


dataclasses.Field.__init__ = _hashable_default
'''
