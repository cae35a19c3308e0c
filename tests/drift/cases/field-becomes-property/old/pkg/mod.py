from dataclasses import dataclass


@dataclass
class Thing:
    size: int = 1
