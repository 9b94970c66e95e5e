"""Frozen values: what `dataclasses` gives, made without compiling source at import.

`dataclasses.dataclass` writes and compiles four methods for every class, about 0.7 ms each; this program has some eighty values and
wants to answer within a tenth of a second. The methods here are written once and read the fields of the class. For type checkers the
names are those of `dataclasses`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import FrozenInstanceError, dataclass, field, fields, replace
else:
    _MISSING = object()

    class FrozenInstanceError(AttributeError):
        """An attempt to change a frozen value."""

    class _Field:
        __slots__ = ("default", "default_factory", "name")
        init = repr = True  # what printers of dataclasses ask

        def __init__(self, name="", default=_MISSING, default_factory=None):
            self.name = name
            self.default = default
            self.default_factory = default_factory

    def field(*, default=_MISSING, default_factory=None):
        """A field whose default is made anew for each value."""
        return _Field(default=default, default_factory=default_factory)

    def fields(value):
        """The fields of a value or of its class, in order; each has a `name`."""
        return value.__record_fields__

    def replace(value, /, **changes):
        """A copy of the value with some fields changed."""
        for one in value.__record_fields__:
            if one.name not in changes:
                changes[one.name] = getattr(value, one.name)
        return type(value)(**changes)

    def dataclass(*, frozen, slots, kw_only=False, eq=True):
        """The class as a value with slots; `frozen` and `slots` must be said and be true."""
        if not (frozen and slots):
            raise TypeError("values are frozen and have slots")

        def decorate(cls):
            found = []
            body = dict(cls.__dict__)
            for name, annotation in body.get("__annotations__", {}).items():
                if str(annotation).startswith("ClassVar"):
                    continue
                default = body.pop(name, _MISSING)
                found.append(
                    _Field(name, default.default, default.default_factory) if isinstance(default, _Field) else _Field(name, default)
                )
            body.pop("__dict__", None)
            body.pop("__weakref__", None)
            body["__slots__"] = tuple(one.name for one in found)
            body["__record_fields__"] = tuple(found)
            body["__dataclass_fields__"] = {one.name: one for one in found}
            body["__match_args__"] = () if kw_only else body["__slots__"]
            body["__init__"] = _maker(tuple(found), kw_only)
            for method in (__repr__, __setattr__, __delattr__, __getstate__, __setstate__):
                body.setdefault(method.__name__, method)
            if eq:
                body.setdefault("__eq__", __eq__)
                if body.get("__hash__") is None:
                    body["__hash__"] = __hash__
            made = type(cls)(cls.__name__, cls.__bases__, body)
            made.__qualname__ = cls.__qualname__
            return made

        return decorate

    def _maker(found, kw_only):
        names = tuple(one.name for one in found)
        set_ = object.__setattr__

        def __init__(self, /, *args, **kwargs):
            if args:
                if kw_only or len(args) > len(names):
                    raise TypeError(f"{type(self).__name__} takes {'no' if kw_only else len(names)} positional arguments")
                kwargs.update(zip(names, args, strict=False))
            for one in found:
                name = one.name
                if name in kwargs:
                    value = kwargs.pop(name)
                elif one.default is not _MISSING:
                    value = one.default
                elif one.default_factory is not None:
                    value = one.default_factory()
                else:
                    raise TypeError(f"{type(self).__name__} lacks {name}")
                set_(self, name, value)
            if kwargs:
                raise TypeError(f"{type(self).__name__} has no field {', '.join(kwargs)}")

        return __init__

    def _values(self):
        return tuple(getattr(self, name) for name in self.__slots__)

    def __eq__(self, other):
        if other.__class__ is not self.__class__:
            return NotImplemented
        return _values(self) == _values(other)

    def __hash__(self):
        return hash(_values(self))

    def __repr__(self):
        inside = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__qualname__}({inside})"

    def __setattr__(self, name, value):
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name):
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def __getstate__(self):
        return _values(self)

    def __setstate__(self, state):
        for name, value in zip(self.__slots__, state, strict=True):
            object.__setattr__(self, name, value)


__all__ = ["FrozenInstanceError", "dataclass", "field", "fields", "replace"]
