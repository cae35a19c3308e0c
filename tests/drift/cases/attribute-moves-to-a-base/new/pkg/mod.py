class Base:
    def __init__(self):
        self.width_limit = 1


class Thing(Base):
    pass
