from dataclasses import dataclass


@dataclass
class Spec:
    size: int
    ratio: int = 1
    version: str = ""
