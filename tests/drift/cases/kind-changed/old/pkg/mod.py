class Thing:
    def __init__(self, a):
        self.a = a
