"""Dataclasses that cost next to nothing to define.

The standard library writes source code for every dataclass and compiles it: 0.6 ms a class, and
9 ms for importing what does it. A command here defines some seventy, which came to a third of its
whole run. These have the same fields, constructor, comparison, hash and text, made without
compiling anything. Type checkers are told that they are the standard ones.

What is left out is what this package does not use: ordering, fields that are no parameters,
``KW_ONLY``, dataclasses without slots. ``dataclasses.fields``, ``replace`` and ``asdict`` work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
    from dataclasses import field as field

    def field_names(cls: type) -> tuple[str, ...]:
        """Names of a dataclass's fields, in order."""
else:
    _MISSING = object()

    class field:
        """A field whose default is made anew for each value."""

        __slots__ = ("default_factory",)

        def __init__(self, *, default_factory):
            self.default_factory = default_factory

    def dataclass(*, frozen=False, slots):
        """Make a class of annotated fields a dataclass with slots."""
        if not slots:
            raise TypeError("only dataclasses with slots are made here")
        return lambda cls: _made(cls, frozen)

    def field_names(cls):
        """Names of a dataclass's fields, in order."""
        return cls.__match_args__

    def _made(cls, frozen):
        inherited = getattr(cls, "__field_defaults__", {})
        annotations = cls.__annotations__
        own = [name for name, kind in annotations.items() if not _is_class_variable(kind)]
        body = dict(cls.__dict__)
        defaults = {**inherited, **{name: body.pop(name, _MISSING) for name in own}}
        optional = False
        for name, default in defaults.items():
            if default is not _MISSING:
                optional = True
            elif optional:
                raise TypeError(f"field {name} without a default follows one with a default")
        for name in ("__dict__", "__weakref__"):
            body.pop(name, None)
        body["__slots__"] = tuple(name for name in own if name not in inherited)
        body["__match_args__"] = tuple(defaults)
        body["__field_defaults__"] = defaults
        body["__dataclass_fields__"] = _StandardFields()
        body.setdefault("__repr__", _repr)
        body.setdefault("__eq__", _eq)
        if frozen:
            body.setdefault("__hash__", _hash)
            body["__setattr__"], body["__delattr__"] = _refuse_set, _refuse_delete
            body["__getstate__"], body["__setstate__"] = _values, _restore
        else:
            body["__hash__"] = None
        # Slots only come with the making of a class, so it is made once more.
        made = type(cls)(cls.__name__, cls.__bases__, body)
        made.__qualname__ = cls.__qualname__
        made.__init__ = _constructor(made, defaults)
        return made

    def _is_class_variable(kind):
        return str(kind).startswith(("ClassVar", "typing.ClassVar"))

    def _constructor(cls, defaults):
        # The slots' own setters: they work on frozen values, and are the fastest way.
        setters = tuple(getattr(cls, name).__set__ for name in defaults)
        count = len(setters)
        required = sum(default is _MISSING for default in defaults.values())
        plain = not any(isinstance(default, field) for default in defaults.values())
        standing = tuple(defaults.values())
        check = getattr(cls, "__post_init__", None)

        def __init__(self, *values, **named):
            if not named and plain and required <= len(values) < count:
                values += standing[len(values) :]
            elif named or len(values) != count:
                values = _all_values(cls, defaults, values, named)
            for assign, value in zip(setters, values, strict=True):
                assign(self, value)
            if check is not None:
                check(self)

        __init__.__qualname__ = f"{cls.__qualname__}.__init__"
        return __init__

    def _all_values(cls, defaults, values, named):
        call = f"{cls.__name__}()"
        if len(values) > len(defaults):
            raise TypeError(f"{call} takes {len(defaults)} values, {len(values)} were given")
        given = dict(zip(defaults, values, strict=False))
        for name, value in named.items():
            if name not in defaults:
                raise TypeError(f"{call} got an unexpected keyword argument {name!r}")
            if name in given:
                raise TypeError(f"{call} got multiple values for argument {name!r}")
            given[name] = value
        missing = [n for n, d in defaults.items() if d is _MISSING and n not in given]
        if missing:
            raise TypeError(f"{call} missing required arguments: {', '.join(missing)}")
        return tuple(
            given[name] if name in given
            else default.default_factory() if isinstance(default, field)
            else default
            for name, default in defaults.items()
        )  # fmt: skip

    def _values(self):
        return tuple(getattr(self, name) for name in self.__match_args__)

    def _restore(self, state):
        for name, value in zip(self.__match_args__, state, strict=True):
            object.__setattr__(self, name, value)

    def _repr(self):
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__match_args__)
        return f"{type(self).__qualname__}({fields})"

    def _eq(self, other):
        if other.__class__ is not self.__class__:
            return NotImplemented
        return _values(self) == _values(other)

    def _hash(self):
        return hash(_values(self))

    def _refuse_set(self, name, value):
        raise AttributeError(f"cannot assign to {name!r}: {type(self).__name__} is frozen")

    def _refuse_delete(self, name):
        raise AttributeError(f"cannot delete {name!r}: {type(self).__name__} is frozen")

    class _StandardFields:
        """What ``dataclasses.fields`` and its like look for; made when one of them asks."""

        def __get__(self, instance, owner):
            import dataclasses

            rows = []
            annotations = {}
            for base in reversed(owner.__mro__):
                annotations.update(getattr(base, "__annotations__", {}))
            for name, default in owner.__field_defaults__.items():
                kind = annotations[name]
                if default is _MISSING:
                    rows.append((name, kind))
                elif isinstance(default, field):
                    made = dataclasses.field(default_factory=default.default_factory)
                    rows.append((name, kind, made))
                else:
                    rows.append((name, kind, default))
            standard = dataclasses.make_dataclass(owner.__name__, rows)
            return standard.__dataclass_fields__
