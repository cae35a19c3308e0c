class Base:
    pass


class Thing(Base):
    def __init__(self):
        self.width_limit = 1
