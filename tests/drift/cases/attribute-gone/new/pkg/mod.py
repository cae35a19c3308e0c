class Thing:
    def __init__(self):
        self.b = 2
