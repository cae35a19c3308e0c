class Thing:
    @property
    def size(self):
        return 1
