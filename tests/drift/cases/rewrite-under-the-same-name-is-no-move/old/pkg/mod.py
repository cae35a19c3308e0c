class State:
    """Where a parser stands."""

    START = 0
    NAME = 1
    ARGUMENTS = 2
    END = 3

    def next(self):
        return self.NAME if self is self.START else self.END
