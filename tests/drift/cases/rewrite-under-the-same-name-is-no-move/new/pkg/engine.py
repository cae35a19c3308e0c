class State:
    """States of the engine."""

    IDLE = "idle"
    NAME = "name"
    END = "end"
    STOPPED = "stopped"

    def advance(self, token):
        return {"{": self.NAME}.get(token, self.IDLE)
