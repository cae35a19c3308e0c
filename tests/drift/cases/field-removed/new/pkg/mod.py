from dataclasses import dataclass


@dataclass
class Spec:
    size: int
    version: str = ""
