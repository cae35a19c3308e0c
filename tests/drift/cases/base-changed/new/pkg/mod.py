class Base:
    pass


class Mixin:
    pass


class Thing(Base):
    pass
