from dataclasses import dataclass


@dataclass
class Spec:
    size: int
    tokens_each: int = 1
    version: str = ""
