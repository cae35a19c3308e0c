from dataclasses import dataclass


@dataclass(kw_only=True)
class Base:
    size: int


@dataclass(kw_only=True)
class Spec(Base):
    ratio: int = 1
