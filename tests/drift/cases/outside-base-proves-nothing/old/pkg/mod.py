class Thing:
    def __init__(self):
        self.width_limit = 1
