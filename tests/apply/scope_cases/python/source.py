"""A module."""
import functools
from typing import overload

ONE_LINE = [1, 2]
REGISTRY = {
    "a": 1,
}


@functools.cache
# between decorator and function
def plain(
    x: int,
) -> int:
    y = """
def not_a_function():
    pass
"""
    return lambda: y


# a comment between functions
class Outer(Base):
    """Doc."""

    table = (
        1,
        2,
    )

    class Inner:
        async def method(self):
            def local():
                return 1

            return local

    @property
    def value(self): return self._value

    @value.setter
    def value(self, new):
        self._value = new

    @overload
    def get(self, key: int) -> int: ...
    @overload
    def get(self, key: str) -> str: ...
    def get(self, key):
        match key:
            case int():
                return 1
            case _:
                return f"{key!r:>{10}}"


if CUDA:

    def kernel(x):
        return x

else:
    try:
        import triton
    except ImportError:

        def kernel(x):
            return None


def again(x):
    return 1


def again(x):
    return 2


def generic[T: int](x: T) -> T:
    type Alias = list[T]
    return x
