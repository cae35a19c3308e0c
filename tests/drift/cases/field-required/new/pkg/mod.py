from dataclasses import dataclass


@dataclass
class Spec:
    size: int
    layers: list
    ratio: int = 1
    version: str = ""
