from abc import ABC, abstractmethod


class Backend(ABC):
    @abstractmethod
    def forward(self, x): ...

    @abstractmethod
    def warm_up(self): ...
